package serve

import (
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// port is the part of a client, an application, that the pump works on: the application's control
// page, its objects with rings, and the pump's counters. Exclusive use of the engine guards it.
type port struct {
	c     *client
	page  []byte // shared memory that begins with the control page
	ctl   *ring.Control
	bells []belled // the objects with rings, by the numbers of their bells; nil: the number is free
	cqs   []mover  // completion queues
	// settled are the queue pairs of an unmodified program. The pump frees their send ring entries
	// whose sends have completed, before it copies the completions to the program.
	settled []*programQP
	ahs     map[uint32]verbs.AH   // address handles, by the numbers in send entries
	mrs     map[uint32]*engine.MR // regions, by their handles; empty for an unmodified program
	polls   uint64                // ctl.Polls at the last check
	lost    uint64                // events lost, because the application did not read them
	posts   uint64                // work requests taken
	wcs     uint64                // completions copied to the application
	wakes   uint64                // messages by which the application woke the pump
	load    portLoad              // used by the thread of the Poller alone
	wakeFD  int                   // the socket by which the application wakes the Poller; guarded by Poller.mu
	// broken is the rule of the protocol that the client has violated, for which it is being
	// disconnected; "" means none.
	broken string
}

// belled is an object that has a bell (see addBell). The pump calls rung after the application has
// rung the bell.
type belled interface {
	rung(now clock.Time, p *port, out *packetio.Batch)
}

func (c *client) newPort(page []byte) *port {
	p := &port{c: c, page: page, ctl: ring.NewControl(page), ahs: make(map[uint32]verbs.AH), mrs: make(map[uint32]*engine.MR)}
	p.bells = append(p.bells, &accessPort{q: ring.NewQueue(p.ctl.Memory(), ring.Accesses, ring.AccessSlot)})
	return p
}

// addBell gives an object a bell: the bit in the control page by which the application announces
// new entries in the object's ring. It returns the number of the bell; false means none is free.
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

// maxBellsAtOnce is the largest number of bells of one client that one step of the pump serves, so
// that other clients do not wait long.
const maxBellsAtOnce = 8

// serve serves bells that the application has rung, and reports whether there were any.
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

// breaks records that the client has violated the protocol, and disconnects it.
func (p *port) breaks(why string) {
	if p.broken == "" {
		p.broken = why
		go p.c.cut("the application has broken the rules of the rings: " + why) // in a goroutine, because the caller has exclusive use of the engine
	}
}

// wakeIf wakes the application if one of its threads waits for queue q.
func (p *port) wakeIf(q *ring.Queue) {
	if q.Wait.Load() != 0 && q.Wait.Swap(0) != 0 {
		p.wakeUp()
	}
}

// wakeUp wakes all waiting threads of the application by one message. If unread messages fill the
// socket, it sends none.
func (p *port) wakeUp() {
	raw, err := p.c.wake.SyscallConn()
	if err != nil {
		return // the socket is being closed
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.Sendto(int(fd), []byte{1}, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	})
}
