package serve

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// programManager is the connection manager of an unmodified program. The librdmacm of the program
// uses it by a connection of its own to the daemon; see package ucma. It has a part on each NIC of the
// host (program_nics.go).
type programManager struct {
	c      *client
	nics   []*nicManager
	spread spread
	mu     sync.Mutex // guards the fields below; a goroutine that holds it enters no engine
	// channels are the descriptors that announce events: each message announces one event, which the
	// program then fetches by a command.
	channels map[uint32]*eventQueue
	sweeper  sweeper // of channels
}

// kindsOfManager says, for each type of object of the connection manager, against which quota it
// counts.
var kindsOfManager = [...]kind{ucma.ID: kindID, ucma.Event: kindEvent, ucma.Join: kindJoin}

// Take counts one more object of the connection manager against the program's quotas. It fails with ErrLimit, which names the quota.
func (x *programManager) Take(o ucma.Object) error {
	return x.c.objects.take("connection manager", need{kindsOfManager[o], 1})
}

// Add counts n more objects, or fewer if n is negative.
func (x *programManager) Add(o ucma.Object, n int) {
	x.c.objects.release(need{kindsOfManager[o], -int64(n)})
}

// announcement is the message on a channel that announces an event.
var announcement = []byte{1}

// attachManager opens the connection manager for a program. The program's first message must have
// had no descriptors.
func (c *client) attachManager(name string, fds []int) error {
	if len(fds) > 0 {
		return errors.Join(errors.New("the first message of a connection for librdmacm must carry no descriptors"), unix.EINVAL, closeAll(fds))
	}
	servers := append([]*Server{c.s}, c.s.cfg.Beside...)
	x := &programManager{c: c, channels: make(map[uint32]*eventQueue)}
	x.spread = spread{of: powerOfTwo(len(servers)), moved: make(map[uint32]int), mirrors: make(map[uint32][]mirror)}
	for i, s := range servers {
		base, n := s.cfg.Open(), &nicManager{x: x, s: s}
		n.m = ucma.New(ucma.Config{
			Device: base.Device(), Ports: s.ports, Owns: n.owns, Tell: x.tell, Channels: c.bounds.all.Manager.Channels,
			Listeners: c.bounds.all.Manager.Listeners, Quota: x,
			Rand: rand.New(rand.NewPCG(s.cfg.Seed, c.id)), Nth: i, Of: x.spread.of,
		})
		if err := base.Close(); err != nil {
			return err
		}
		x.nics = append(x.nics, n)
	}
	c.rename(name)
	x.nics[0].step(func(ucma.Step) { c.cmgr = x })
	return c.put(uverbs.Answer{}, nil)
}

func stepOf(now clock.Time, e *engine.Engine, out *packetio.Batch) ucma.Step {
	g, err := e.GSI()
	if err != nil {
		g = nil // the NIC is down
	}
	device := e.Device()
	return ucma.Step{Now: now, NIC: g, Out: out, Device: &device}
}

// tell announces an event on a channel. The queue of announcements needs no bound: each
// announcement stands for an unread event, and kindEvent is the quota of unread events.
func (x *programManager) tell(channel uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.channels[channel]; q != nil {
		q.put(announcement, math.MaxInt)
	}
}

func (c *client) executeManager(b []byte) error {
	cmd, err := ucma.ParseCommand(b)
	if err != nil {
		return err
	}
	r, err := c.cmgr.answer(cmd)
	if err != nil {
		c.notMade(makesOfManager[cmd.Op], err)
		r = result{Answer: uverbs.Answer{Errno: uint32(errnoOf(err))}}
	}
	return c.put(r.Answer, r.fds)
}

// answer executes a command.
func (x *programManager) answer(cmd ucma.Command) (r result, err error) {
	switch cmd.Op {
	case ucma.OpenChannel:
		return x.openChannel()
	case ucma.CloseChannel:
		x.closeChannel(cmd.Channel)
		return r, nil
	case ucma.GetEvent: // the program has read an announcement, so there may be room for the next one
		x.onChannel(cmd.Channel, (*eventQueue).flush)
	default: // all others are of identifiers
	}
	got, err := x.execute(cmd)
	x.onChannel(got.Channel, func(q *eventQueue) { got.Withdrawn = q.drop(got.Withdrawn) })
	r.Data, r.Drain, r.Channel = got.Data, got.Withdrawn, got.Channel
	return r, err
}

// onChannel calls f with the queue of announcements of a channel, if there is such a channel.
func (x *programManager) onChannel(n uint32, f func(q *eventQueue)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if q := x.channels[n]; q != nil {
		f(q)
	}
}

// openChannel makes an event channel. It also ends the channels whose descriptors the program has
// closed, if the preloaded library has not noticed this.
func (x *programManager) openChannel() (r result, err error) {
	q, fd, err := x.sweeper.openChannel("create event channel", &x.c.objects, x.count(), func() int {
		x.mu.Lock()
		left := abandoned(x.channels)
		x.mu.Unlock()
		for _, n := range left {
			x.closeChannel(n)
		}
		return x.count()
	})
	if err != nil {
		return r, err
	}
	r.fds = []int{fd}
	for _, n := range x.nics { // all give it the same number, because they open and close the same channels
		n.step(func(ucma.Step) { r.Number, err = n.m.OpenChannel() })
		if err != nil {
			x.c.objects.giveBack(kindChannel, 0, 0)
			q.close()
			return result{}, errors.Join(err, closeAll(r.fds))
		}
	}
	x.mu.Lock()
	x.channels[r.Number] = q
	x.mu.Unlock()
	return r, nil
}

// count returns the number of channels.
func (x *programManager) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.channels)
}

func (x *programManager) closeChannel(number uint32) {
	for _, n := range x.nics {
		n.step(func(s ucma.Step) { n.m.CloseChannel(s, number) })
	}
	x.forgetMirrors()
	x.settle(slices.Collect(maps.Keys(x.spread.moved))...)
	x.mu.Lock()
	q := x.channels[number]
	delete(x.channels, number)
	x.mu.Unlock()
	if q != nil {
		q.close()
		x.c.objects.giveBack(kindChannel, 0, 0)
	}
}

// close ends all event channels of the program and their identifiers.
func (x *programManager) close() {
	x.mu.Lock()
	all := slices.Collect(maps.Keys(x.channels))
	x.mu.Unlock()
	for _, n := range all {
		x.closeChannel(n)
	}
}
