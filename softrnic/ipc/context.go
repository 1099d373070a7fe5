package ipc

import (
	"errors"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxEvents bounds the asynchronous events that are kept for a program that does not fetch them.
const maxEvents = 256

// Context is a NIC of another process. All methods may be called by all threads of the program.
type Context struct {
	conn    *net.UnixConn
	wake    *os.File // the wake socket
	page    []byte   // the control page
	ctl     *ring.Control
	device  verbs.DeviceAttr
	spin    time.Duration
	inside  bool // the daemon is this very process, as in tests
	managed bool
	runtime *device.Runtime
	tasks   sync.WaitGroup
	// patience is how long the daemon may be silent.
	patience time.Duration
	writing  sync.Mutex // one message after the other

	wordsMu sync.Mutex  // guards words
	words   *ring.Queue // of accesses to words

	wakes wakes
	gone  atomic.Bool   // the daemon is
	dead  chan struct{} // closed when the daemon is gone

	mu       sync.Mutex // guards what follows
	calls    map[uint64]chan answer
	nextCall uint64
	events   []verbs.AsyncEvent
	reason   error // why this side has ended the connection
	failure  error // why the connection has ended
	closed   bool
	memories map[*memory]struct{}
	mapped   map[mapping]struct{}
}

// mapping is an object with memory that is unmapped when the object goes, or with its context.
type mapping interface{ unmap() }

// remember makes sure that an object's memory goes with c.
func (c *Context) remember(m mapping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mapped[m] = struct{}{}
}

// forget is for an object whose memory has gone.
func (c *Context) forget(m mapping) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mapped, m)
}

var (
	_ verbs.Context   = (*Context)(nil)
	_ verbs.Allocator = (*Context)(nil)
)

// Runtime is real time.
func (c *Context) Runtime() verbs.Runtime { return c.runtime }

// Device describes the NIC.
func (c *Context) Device() verbs.DeviceAttr {
	d := c.device
	d.GIDs = append([]verbs.GID(nil), d.GIDs...)
	return d
}

// AllocPD makes a protection domain.
func (c *Context) AllocPD() (verbs.PD, error) {
	var h proto.Handle
	if err := c.call(proto.OpAllocPD, proto.None{}, &h); err != nil {
		return nil, err
	}
	return &pd{ctx: c, h: h.H}, nil
}

// NextAsyncEvent waits for an asynchronous event of an object of this context, or of the NIC.
func (c *Context) NextAsyncEvent(deadline clock.Time) (verbs.AsyncEvent, error) {
	const op = "next async event"
	for {
		wake := c.wakes.next()
		c.mu.Lock()
		if len(c.events) > 0 {
			ev := c.events[0]
			c.events = append(c.events[:0], c.events[1:]...)
			c.mu.Unlock()
			return ev, nil
		}
		closed, why := c.closed || c.failure != nil, c.reason
		c.mu.Unlock()
		switch {
		case closed && why != nil:
			return verbs.AsyncEvent{}, opError(op, verbs.ErrClosed, "%v", why)
		case closed:
			return verbs.AsyncEvent{}, opError(op, verbs.ErrClosed, "the context was closed")
		}
		if !c.doze(wake, deadline) {
			return verbs.AsyncEvent{}, &verbs.OpError{Op: op, Err: verbs.ErrTimeout}
		}
	}
}

// Close destroys what was made through c and returns when it is gone. What Alloc returned must not be touched any more.
// Closing twice is harmless.
func (c *Context) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.mu.Unlock()
	err := c.call(proto.OpClose, proto.None{}, nil)
	if errors.Is(err, verbs.ErrClosed) {
		err = nil // it went with the daemon
	}
	if cerr := c.conn.Close(); !errors.Is(cerr, net.ErrClosed) { // it was given up before
		err = errors.Join(err, cerr)
	}
	if c.wake != nil {
		err = errors.Join(err, c.wake.Close())
	}
	c.tasks.Wait()
	c.wakes.all()
	c.mu.Lock()
	mapped := slices.Collect(maps.Keys(c.mapped))
	clear(c.mapped)
	for m := range c.memories {
		err = errors.Join(err, ring.Unmap(m.bytes))
	}
	clear(c.memories)
	c.mu.Unlock()
	for _, m := range mapped {
		m.unmap()
	}
	return err // the control page goes when nobody can look at it any more
}

// alive reports whether objects of an incarnation of the NIC can be used.
func (c *Context) alive(incarnation uint64) bool {
	return !c.gone.Load() && c.ctl.Incarnation.Load() == incarnation
}

// wakes tells everybody who sleeps that something has changed.
type wakes struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

// next is a channel that is closed by the next all.
func (w *wakes) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ch
}

func (w *wakes) all() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.ch)
	w.ch = make(chan struct{})
}

// listen takes the daemon's wake-ups until the context is closed.
func (c *Context) listen() {
	var b [64]byte
	for {
		n, err := c.wake.Read(b[:])
		if err != nil || n == 0 {
			return
		}
		c.wakes.all()
	}
}

// sleep waits for a wake-up, or for the end of the daemon; false says that the deadline has passed.
func (c *Context) sleep(wake <-chan struct{}, deadline clock.Time) bool {
	if deadline == clock.Never {
		select {
		case <-wake:
		case <-c.dead:
		}
		return true
	}
	left := deadline.Sub(c.runtime.Now())
	if left <= 0 {
		return false
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-wake:
	case <-c.dead:
	case <-timer.C:
		return false
	}
	return true
}

// doze is sleep for who waits for what a peer or the NIC does some day. Before a long wait goes on, the daemon is asked for a sign
// of life, or given up: nothing else would end the wait for one that hangs.
func (c *Context) doze(wake <-chan struct{}, deadline clock.Time) bool {
	now := c.runtime.Now()
	if deadline != clock.Never && deadline.Sub(now) <= 2*c.patience { // the deadline will do
		return c.sleep(wake, deadline)
	}
	if !c.sleep(wake, now.Add(c.patience)) {
		_ = c.call(proto.OpProgress, proto.Progress{}, nil) // only whether there is an answer matters
	}
	return true
}

// ring rings the bell of an object and wakes the daemon if it sleeps.
func (c *Context) ring(bell uint32) {
	if c.ctl.Ring(bell) {
		_, _ = c.wake.Write([]byte{1}) // who does not read has wake-ups to read
	}
}
