package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// maxPending is the largest number of events that wait until the program has read earlier ones.
	maxPending = 4096
	// maxReturned replaces maxPending for events that the preloaded library gives back (repost). It
	// is larger, so that these events are never lost: the counts of sent events (such as
	// owner.events) already include them.
	maxReturned = 2 * maxPending
)

// eventQueue is the daemon's side of a descriptor from which a program reads events: those of a
// completion channel, or asynchronous ones. Exclusive use of the engine guards it. open and close
// need no guard: they are called before the first event is sent and after the last one.
type eventQueue struct {
	sock    int // 0 means that it is not open
	pending [][]byte
}

// open makes the queue's socket pair and returns the program's descriptor of it.
func (q *eventQueue) open() (int, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, limitError("events", "socket: %v", err)
	}
	q.sock = pair[0]
	return pair[1], nil
}

func (q *eventQueue) close() {
	if q.sock != 0 {
		_ = unix.Close(q.sock)
		q.sock = 0
	}
}

// send sends an event. If the socket is full, the event waits behind earlier ones; if maxPending
// events wait, it is lost, and send returns false.
func (q *eventQueue) send(ev []byte) bool { return q.put(ev, maxPending) }

// put sends an event. If the socket is full, the event waits behind earlier ones; if at least
// `most` events wait, it is lost, and put returns false.
func (q *eventQueue) put(ev []byte, most int) bool {
	if q.sock == 0 {
		return false
	}
	if q.flush(); len(q.pending) == 0 && q.try(ev) {
		return true
	}
	if len(q.pending) >= most {
		return false
	}
	q.pending = append(q.pending, ev)
	return true
}

// flush sends events that wait, until the socket is full.
func (q *eventQueue) flush() {
	for len(q.pending) > 0 && q.try(q.pending[0]) {
		q.pending = q.pending[1:]
	}
}

// drop removes up to n waiting events, newest first. It returns n minus the number of removed
// events: how many of the n events the program has received or may still receive.
func (q *eventQueue) drop(n uint32) uint32 {
	k := min(n, uint32(len(q.pending)))
	q.pending = q.pending[:uint32(len(q.pending))-k]
	return n - k
}

// withdraw removes the waiting events of an object that has ended. user is the program's own name
// for the object, n the number of its events that were sent. withdraw returns n minus the number of
// removed events: how many of the n events the program has received or may still receive. If q is
// nil, no event waits.
func (q *eventQueue) withdraw(user uint64, n uint32) uint32 {
	if q == nil {
		return n
	}
	before := len(q.pending)
	q.pending = slices.DeleteFunc(q.pending, func(ev []byte) bool { return binary.NativeEndian.Uint64(ev) == user })
	return n - min(n, uint32(before-len(q.pending)))
}

// gone reports whether the program has closed its side.
func (q *eventQueue) gone() bool {
	poll := []unix.PollFd{{Fd: int32(q.sock), Events: 0}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n == 1 && poll[0].Revents&unix.POLLHUP != 0
}

// try sends an event. It returns false only if the socket is full. If the program has closed its
// side, the event is lost and try returns true.
func (q *eventQueue) try(ev []byte) bool {
	err := unix.Sendto(q.sock, ev, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS)
}

func (p *program) createChannel(struct{}) (result, error) {
	p.forgetChannels()
	if err := p.c.objects.reserve("create channel", kindMemory, 0, 0); err != nil {
		return result{}, err
	}
	q := new(eventQueue)
	fd, err := q.open()
	if err != nil {
		p.c.objects.giveBack(kindMemory, 0, 0)
		return result{}, err
	}
	r := answer(uverbs.Handle{})
	r.fds = []int{fd}
	r.Number = p.add(uChannel, q)
	return r, nil
}

// forgetChannels ends the completion channels whose descriptors the program has closed. No command
// reports such a close.
func (p *program) forgetChannels() {
	p.c.settle()
	p.c.s.pump.with(func(*engine.Engine) {
		for h, o := range p.objects[uChannel] {
			if q := o.(*eventQueue); q.gone() {
				q.close()
				delete(p.objects[uChannel], h)
				p.c.objects.giveBack(kindMemory, 0, 0)
			}
		}
	})
}

// repost executes the command Repost. The preloaded library has read events from a descriptor to
// find those of one object, and gives the events of other objects back in c.Args; repost sends
// these again: as events of completion channel c.Channel, or as asynchronous events if c.Channel is
// NoChannel.
func (p *program) repost(c uverbs.Command) (result, error) {
	q, size := &p.async, asyncLen
	if c.Channel != uverbs.NoChannel {
		var err error
		if q, err = named[*eventQueue](p, uChannel, c.Channel); err != nil {
			return result{}, err
		}
		size = completionLen
	}
	p.c.s.pump.with(func(*engine.Engine) {
		for b := c.Args; len(b) >= size; b = b[size:] {
			q.put(bytes.Clone(b[:size]), maxReturned)
		}
	})
	return result{}, nil
}

// Lengths of events in bytes.
const (
	completionLen = 8
	asyncLen      = 16
)

// asyncKinds are the numbers of asynchronous events (enum ibv_event_type).
var asyncKinds = map[verbs.AsyncKind]uint32{
	verbs.EventCQErr: 0, verbs.EventQPFatal: 1, verbs.EventQPReqErr: 2, verbs.EventQPAccessErr: 3, verbs.EventCommEst: 4,
	verbs.EventSQDrained: 5, verbs.EventDeviceFatal: 8, verbs.EventPortActive: 9, verbs.EventPortErr: 10,
	verbs.EventSRQLimit: 15, verbs.EventQPLastWQE: 16,
}

// owner is an object to which asynchronous events refer. user is the program's own name for the
// object; events is how many events of it were sent, without those that are lost.
type owner struct {
	user   uint64
	events uint32
}

// portElement is the number of the NIC's only port. Events about the port carry it in place of the
// name of an object.
const portElement = 1

// event sends an asynchronous event to the program. It returns false if the event is lost because
// the program has not read earlier ones.
func (p *program) event(ev verbs.AsyncEvent) bool {
	var o *owner
	switch ev.Kind {
	case verbs.EventCQErr:
		o = p.cqOwners[ev.CQ]
	case verbs.EventSRQLimit:
		o = p.srqOwners[ev.SRQ]
	case verbs.EventPortActive, verbs.EventPortErr, verbs.EventDeviceFatal:
		o = &owner{user: portElement}
	default:
		o = p.qpOwners[ev.QPN]
	}
	if o == nil || p.async.sock == 0 {
		return true
	}
	b := binary.NativeEndian.AppendUint64(nil, o.user)
	b = binary.NativeEndian.AppendUint32(b, asyncKinds[ev.Kind])
	if !p.async.send(binary.NativeEndian.AppendUint32(b, 0)) {
		return false
	}
	o.events++
	return true
}

// ended returns how many asynchronous events the program has received, or may still receive, of an
// object that no longer exists. libibverbs waits until the program has acknowledged that many.
func (p *program) ended(o *owner) uint32 { return p.async.withdraw(o.user, o.events) }
