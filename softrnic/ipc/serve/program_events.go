package serve

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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
	// asyncRoom is the room that is asked for of the socket of asynchronous events, in bytes. The kernel doubles
	// it, and an event takes 768 bytes or more: it is room for at most 1,400 events, fewer than the preloaded
	// library looks through (MAX_EVENTS).
	asyncRoom = 512 << 10
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

// widen makes more room in the socket, because the daemon does not see that the program has read: what waits
// here goes on with the next event. A daemon without privilege keeps the room that it has.
func (q *eventQueue) widen() {
	_ = unix.SetsockoptInt(q.sock, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, asyncRoom)
}

func (q *eventQueue) close() {
	if q.sock != 0 {
		_ = unix.Close(q.sock)
		q.sock = 0
	}
}

// send sends an event. If the socket is full, the event waits behind earlier ones; if maxPending
// events wait, or the program has closed its side, it is lost, and send returns false.
func (q *eventQueue) send(ev []byte) bool { return q.put(ev, maxPending) }

// put sends an event. If the socket is full, the event waits behind earlier ones; if at least
// `most` events wait, or the program has closed its side, it is lost, and put returns false.
func (q *eventQueue) put(ev []byte, most int) bool {
	if q.sock == 0 {
		return false
	}
	if q.flush(); len(q.pending) == 0 {
		switch q.try(ev) {
		case trySent:
			return true
		case tryClosed:
			return false
		case tryFull:
		}
	}
	if len(q.pending) >= most {
		return false
	}
	q.pending = append(q.pending, ev)
	return true
}

// flush sends events that wait, until the socket is full.
func (q *eventQueue) flush() {
	for len(q.pending) > 0 && q.try(q.pending[0]) == trySent {
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

// withdraw removes the waiting events of an object that has ended. tag is that of its owner, n the number of
// its events that were sent. withdraw returns n minus the number of removed events: how many of the n events
// the program has received or may still receive. If q is nil, no event waits.
func (q *eventQueue) withdraw(tag, n uint32) uint32 {
	if q == nil {
		return n
	}
	before := len(q.pending)
	q.pending = slices.DeleteFunc(q.pending, func(ev []byte) bool { return binary.NativeEndian.Uint32(ev[len(ev)-tagLen:]) == tag })
	return n - min(n, uint32(before-len(q.pending)))
}

// abandoned returns the keys of those queues whose descriptors the program has closed. No command
// reports such a close.
func abandoned(queues map[uint32]*eventQueue) (keys []uint32) {
	all := slices.Collect(maps.Keys(queues))
	polls := make([]unix.PollFd, len(all))
	for i, k := range all {
		polls[i].Fd = int32(queues[k].sock)
	}
	if _, err := unix.Poll(polls, 0); err != nil {
		return nil
	}
	for i := range polls {
		if polls[i].Revents&unix.POLLHUP != 0 {
			keys = append(keys, all[i])
		}
	}
	return keys
}

// sweeper says when to look for abandoned channels. A look costs time for each channel, and a
// program may have thousands.
type sweeper struct{ next int }

// sweeperStart is the number of channels up to which each new channel is a reason to look.
const sweeperStart = 16

// due reports whether to look, before a channel is made beside n channels.
func (s *sweeper) due(n int) bool { return n >= s.next }

// swept is called after a look that has left n channels.
func (s *sweeper) swept(n int) {
	s.next = 0
	if n >= sweeperStart {
		s.next = 2 * n
	}
}

// openChannel makes an event queue with a descriptor of the program, and counts it against the
// quota. It looks for abandoned channels first if that is due, or if the quota is exhausted: the
// function forget removes them and returns how many channels are left of n.
func (s *sweeper) openChannel(op string, t *objects, n int, forget func() (left int)) (q *eventQueue, fd int, err error) {
	sweep := func() { n = forget(); s.swept(n) }
	if s.due(n) {
		sweep()
	}
	if !t.has(kindChannel) {
		sweep()
	}
	if err := t.reserve(op, kindChannel, 0, 0); err != nil {
		return nil, -1, fmt.Errorf("%w: %w", unix.EMFILE, err)
	}
	q = new(eventQueue)
	if fd, err = q.open(); err != nil {
		t.giveBack(kindChannel, 0, 0)
		return nil, -1, err
	}
	return q, fd, nil
}

// tried is what became of an event.
type tried int

const (
	trySent   tried = iota
	tryFull         // the socket has no room
	tryClosed       // the program has closed its side: no process will read the event
)

func (q *eventQueue) try(ev []byte) tried {
	switch err := unix.Sendto(q.sock, ev, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil); {
	case err == nil:
		return trySent
	case errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.ENOTCONN):
		return tryClosed
	default:
		return tryFull
	}
}

func (p *program) createChannel(struct{}) (result, error) {
	q, fd, err := p.sweeper.openChannel("create completion channel", &p.c.objects, len(p.objects[uChannel]), p.forgetChannels)
	if err != nil {
		return result{}, err
	}
	r := answer(uverbs.Handle{})
	r.fds = []int{fd}
	r.Number = p.add(uChannel, q)
	return r, nil
}

// forgetChannels ends the completion channels whose descriptors the program has closed, and returns
// how many are left.
func (p *program) forgetChannels() int {
	p.c.settle()
	channels := make(map[uint32]*eventQueue, len(p.objects[uChannel]))
	for h, o := range p.objects[uChannel] {
		channels[h] = o.(*eventQueue)
	}
	ended := abandoned(channels)
	p.c.s.pump.with(func(*engine.Engine) {
		for _, h := range ended {
			channels[h].close()
		}
	})
	for _, h := range ended {
		delete(p.objects[uChannel], h)
		p.c.objects.giveBack(kindChannel, 0, 0)
	}
	return len(p.objects[uChannel])
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

// Lengths of events in bytes. Behind what libibverbs reads, each event has the tag of its object.
const (
	tagLen        = 4
	completionLen = 8 + tagLen
	asyncLen      = 16 + tagLen
)

// asyncKinds are the numbers of asynchronous events (enum ibv_event_type).
var asyncKinds = map[verbs.AsyncKind]uint32{
	verbs.EventCQErr: 0, verbs.EventQPFatal: 1, verbs.EventQPReqErr: 2, verbs.EventQPAccessErr: 3, verbs.EventCommEst: 4,
	verbs.EventSQDrained: 5, verbs.EventDeviceFatal: 8, verbs.EventPortActive: 9, verbs.EventPortErr: 10,
	verbs.EventSRQErr: 14, verbs.EventSRQLimit: 15, verbs.EventQPLastWQE: 16, verbs.EventGIDChange: 18,
}

// owner is an object to which asynchronous events refer. user is the program's own name for the
// object, which objects of other processes may have as well: children of fork have the addresses of their parent.
// tag is the object's own among all objects of the program. events is how many events of it were sent, without
// those that are lost.
type owner struct {
	user        uint64
	tag, events uint32
}

// newOwner returns the owner of a new object that the program names user.
func (p *program) newOwner(user uint64) owner {
	p.tags++
	return owner{user: user, tag: p.tags}
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
		o = p.queues.cqOwners[ev.CQ]
	case verbs.EventSRQLimit, verbs.EventSRQErr:
		o = p.queues.srqOwners[ev.SRQ]
	case verbs.EventPortActive, verbs.EventPortErr, verbs.EventDeviceFatal, verbs.EventGIDChange:
		o = &owner{user: portElement}
	default:
		o = p.queues.qpOwners[ev.QPN]
	}
	return o == nil || p.report(ev.Kind, o)
}

// report sends an asynchronous event about an object to the program. It returns false if the event is lost.
func (p *program) report(kind verbs.AsyncKind, o *owner) bool {
	if p.async.sock == 0 {
		return true
	}
	b := binary.NativeEndian.AppendUint64(nil, o.user)
	b = binary.NativeEndian.AppendUint32(b, asyncKinds[kind])
	b = binary.NativeEndian.AppendUint32(b, 0)
	if !p.async.send(binary.NativeEndian.AppendUint32(b, o.tag)) {
		return false
	}
	o.events++
	return true
}

// ended returns how many asynchronous events the program has received, or may still receive, of an
// object that no longer exists. libibverbs waits until the program has acknowledged that many.
func (p *program) ended(o *owner) uint32 { return p.async.withdraw(o.tag, o.events) }
