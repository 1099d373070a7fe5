package serve

import (
	"errors"
	"math"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// programManager is the connection manager of an unmodified program. The librdmacm of the program
// uses it by a connection of its own to the daemon; see package ucma. Exclusive use of the engine
// guards programManager.
type programManager struct {
	c *client
	m *ucma.Manager
	// channels are the descriptors that announce events: each message announces one event, which the
	// program then fetches by a command.
	channels map[uint32]*eventQueue
	sweeper  sweeper // of channels
}

// managerQuota counts a program's objects of the connection manager against its quotas.
type managerQuota struct{ *objects }

// kindsOfManager says, for each type of object of the connection manager, against which quota it
// counts.
var kindsOfManager = [...]kind{ucma.ID: kindID, ucma.Event: kindEvent, ucma.Join: kindJoin}

// Take counts one more object. It fails with ErrLimit, which names the quota.
func (q managerQuota) Take(o ucma.Object) error {
	return q.take("connection manager", need{kindsOfManager[o], 1})
}

// Add counts n more objects, or fewer if n is negative.
func (q managerQuota) Add(o ucma.Object, n int) { q.release(need{kindsOfManager[o], -int64(n)}) }

// announcement is the message on a channel that announces an event.
var announcement = []byte{1}

// attachManager opens the connection manager for a program. The program's first message must have
// had no descriptors.
func (c *client) attachManager(name string, fds []int) error {
	if len(fds) > 0 {
		return errors.Join(errors.New("the first message of a connection for librdmacm must carry no descriptors"), unix.EINVAL, closeAll(fds))
	}
	base := c.s.cfg.Open()
	x := &programManager{c: c, channels: make(map[uint32]*eventQueue)}
	x.m = ucma.New(ucma.Config{
		Device: base.Device(), Ports: c.s.ports, Owns: x.owns, Tell: x.tell, Channels: c.bounds.all.Manager.Channels,
		Listeners: c.bounds.all.Manager.Listeners, Quota: managerQuota{&c.objects},
		Rand: rand.New(rand.NewPCG(c.s.cfg.Seed, c.id)),
	})
	if err := base.Close(); err != nil {
		return err
	}
	c.rename(name)
	x.step(func(ucma.Step) { c.cmgr = x })
	return c.put(uverbs.Answer{}, nil)
}

// step calls f with exclusive use of the engine. s.NIC is the NIC's connection manager; nil if the
// NIC is down.
func (x *programManager) step(f func(s ucma.Step)) {
	now, e, out := x.c.s.pump.shell.Enter()
	defer x.c.s.pump.shell.Leave()
	f(stepOf(now, e, out))
}

func stepOf(now clock.Time, e *engine.Engine, out *packetio.Batch) ucma.Step {
	g, err := e.GSI()
	if err != nil {
		g = nil // the NIC is down
	}
	device := e.Device()
	return ucma.Step{Now: now, NIC: g, Out: out, Device: &device}
}

// owns reports whether a queue pair belongs to the process whose librdmacm uses x.
func (x *programManager) owns(n wire.QPN) bool {
	p := x.c.s.pump.qps[n]
	return p != nil && p.c.processKey() == x.c.processKey()
}

// tell announces an event on a channel. The queue of announcements needs no bound: each
// announcement stands for an unread event, and kindEvent is the quota of unread events.
func (x *programManager) tell(channel uint32) {
	if q := x.channels[channel]; q != nil {
		q.put(announcement, math.MaxInt)
	}
}

func (c *client) executeManager(b []byte) error {
	cmd, err := ucma.ParseCommand(b)
	if err != nil {
		return err
	}
	var r result
	c.cmgr.step(func(s ucma.Step) { r, err = c.cmgr.execute(s, cmd) })
	if err != nil {
		c.notMade(makesOfManager[cmd.Op], err)
		r = result{Answer: uverbs.Answer{Errno: uint32(errnoOf(err))}}
	}
	return c.put(r.Answer, r.fds)
}

func (x *programManager) execute(s ucma.Step, cmd ucma.Command) (r result, err error) {
	q := x.channels[cmd.Channel]
	switch {
	case cmd.Op == ucma.OpenChannel:
		return x.openChannel(s)
	case cmd.Op == ucma.CloseChannel:
		x.closeChannel(s, cmd.Channel)
		return r, nil
	case cmd.Op == ucma.GetEvent && q != nil: // the program has read an announcement, so there may be room for the next one
		q.flush()
	}
	got, err := x.m.Execute(s, cmd)
	if q := x.channels[got.Channel]; q != nil {
		got.Withdrawn = q.drop(got.Withdrawn)
	}
	r.Data, r.Drain, r.Channel = got.Data, got.Withdrawn, got.Channel
	return r, err
}

// openChannel makes an event channel. It also ends the channels whose descriptors the program has
// closed, if the preloaded library has not noticed this.
func (x *programManager) openChannel(s ucma.Step) (r result, err error) {
	q, fd, err := x.sweeper.openChannel("create event channel", &x.c.objects, len(x.channels), func() int {
		for _, n := range abandoned(x.channels) {
			x.closeChannel(s, n)
		}
		return len(x.channels)
	})
	if err != nil {
		return r, err
	}
	r.fds = []int{fd}
	if r.Number, err = x.m.OpenChannel(); err != nil {
		x.c.objects.giveBack(kindChannel, 0, 0)
		q.close()
		return result{}, errors.Join(err, closeAll(r.fds))
	}
	x.channels[r.Number] = q
	return r, nil
}

func (x *programManager) closeChannel(s ucma.Step, n uint32) {
	x.m.CloseChannel(s, n)
	if q := x.channels[n]; q != nil {
		q.close()
		delete(x.channels, n)
		x.c.objects.giveBack(kindChannel, 0, 0)
	}
}

// close ends all event channels of the program and their identifiers.
func (x *programManager) close() {
	x.step(func(s ucma.Step) {
		for n := range x.channels {
			x.closeChannel(s, n)
		}
	})
}
