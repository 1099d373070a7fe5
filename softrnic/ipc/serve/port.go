package serve

import (
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// port is the part of a client that the pump works on. All of it is guarded by the engine's
// exclusiveness.
type port struct {
	c     *client
	page  []byte
	ctl   *ring.Control
	bells []belled // by bell; nil is free
	cqs   []mover
	// settled are the queue pairs of an unmodified program, whose send rings are freed of what is
	// complete before its completions are carried.
	settled []*programQP
	ahs     map[uint32]verbs.AH
	mrs     map[uint32]*engine.MR
	polls   uint64 // of the control page, when it was last looked at
	lost    uint64 // events
	posts   uint64 // work requests taken
	wcs     uint64 // completions carried
	wakes   uint64 // messages by which it woke the pump
	// broken is why the client is being cut off; "" while it keeps the rules.
	broken string
}

// belled is the object behind a doorbell. rung is called when the application has rung it.
type belled interface {
	rung(now clock.Time, p *port, out *packetio.Batch)
}

func newPort(c *client, page []byte) *port {
	p := &port{c: c, page: page, ctl: ring.NewControl(page), ahs: make(map[uint32]verbs.AH), mrs: make(map[uint32]*engine.MR)}
	p.bells = append(p.bells, &accessPort{q: ring.NewQueue(p.ctl.Memory(), ring.Accesses, ring.AccessSlot)})
	return p
}

// addBell gives an object a bell. False: none is left.
func (p *port) addBell(b belled) (uint32, bool) {
	for i := range p.bells {
		if p.bells[i] == nil {
			p.bells[i] = b
			return uint32(i), true
		}
	}
	if len(p.bells) >= ring.MaxBells {
		return 0, false
	}
	p.bells = append(p.bells, b)
	return uint32(len(p.bells) - 1), true
}

// maxBellsAtOnce bounds the objects of one client that are served in one step of the pump, and so
// how long others wait for the NIC: at most this many times ring.MaxPosts work requests.
const maxBellsAtOnce = 8

// serve looks at the doorbells. It reports whether one was rung.
func (p *port) serve(now clock.Time, out *packetio.Batch) (found bool) {
	p.ctl.Take(maxBellsAtOnce, func(bell uint32) {
		found = true
		if int(bell) < len(p.bells) && p.bells[bell] != nil && p.broken == "" {
			p.bells[bell].rung(now, p, out)
		}
	})
	return found
}

// polled reports whether the application has polled an empty completion queue since the last call.
func (p *port) polled() bool {
	n := p.ctl.Polls.Load()
	changed := n != p.polls
	p.polls = n
	return changed
}

// breaks notes a breach of the rules; the client is cut off.
func (p *port) breaks(why string) {
	if p.broken == "" {
		p.broken = why
		go p.c.cut("the application has broken the rules of the rings: " + why) // not while the engine is held
	}
}

// wakeIf wakes the application if it waits for this queue.
func (p *port) wakeIf(q *ring.Queue) {
	if q.Wait.Load() != 0 && q.Wait.Swap(0) != 0 {
		p.wakeUp()
	}
}

// wakeUp makes the application look at everything it waits for. An application that has not read
// the last wake-ups needs no further one.
func (p *port) wakeUp() {
	raw, err := p.c.wake.SyscallConn()
	if err != nil {
		return // being closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Sendto(int(fd), []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	})
}
