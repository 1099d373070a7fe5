package ipc

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxEvents is the largest number of asynchronous events kept until the program fetches them.
const maxEvents = 256

// Context is a NIC that another process, the daemon, owns. All methods are safe for concurrent use.
type Context struct {
	session session
	wake    *os.File // the socket by which the daemon and this program wake each other
	page    []byte   // the control page, which the daemon and this program share; see ring.Control
	ctl     *ring.Control
	device  verbs.DeviceAttr
	spin    time.Duration
	inside  bool           // the daemon is in this process, as in tests
	crowd   pollpace.Crowd // an estimate of how busy the processors are, which all pacers of the context share
	runtime *device.Runtime
	tasks   sync.WaitGroup

	wordsMu sync.Mutex  // guards words
	words   *ring.Queue // the ring by which Load64 and Store64 pass their accesses to the daemon

	maps mappings
}

var (
	_ verbs.Context   = (*Context)(nil)
	_ verbs.Allocator = (*Context)(nil)
)

// pacer returns a Spinner that paces the polls of one wait. The spinners of all threads share an
// estimate of how busy the processors are.
func (c *Context) pacer() pollpace.Spinner {
	return pollpace.Spinner{Inside: c.inside, Crowd: &c.crowd}
}

// Runtime returns a runtime of real time: it uses the machine's clock, and goroutines as threads.
func (c *Context) Runtime() verbs.Runtime { return c.runtime }

func (c *Context) Device() verbs.DeviceAttr {
	d := c.device
	d.GIDs = append([]verbs.GID(nil), d.GIDs...)
	return d
}

func (c *Context) AllocPD() (verbs.PD, error) {
	var h proto.Handle
	if err := c.session.call(proto.OpAllocPD, proto.None{}, &h); err != nil {
		return nil, err
	}
	return &pd{ctx: c, h: h.H}, nil
}

func (c *Context) NextAsyncEvent(deadline clock.Time) (verbs.AsyncEvent, error) {
	const op = "next async event"
	for {
		wake := c.session.wakes.next()
		c.session.mu.Lock()
		if len(c.session.events) > 0 {
			ev := c.session.events[0]
			c.session.events = append(c.session.events[:0], c.session.events[1:]...)
			c.session.mu.Unlock()
			return ev, nil
		}
		closed, why := c.session.closed, c.session.failure
		c.session.mu.Unlock()
		switch {
		case why != nil:
			return verbs.AsyncEvent{}, verbs.Errorf(op, verbs.ErrClosed, "%v", why)
		case closed:
			return verbs.AsyncEvent{}, verbs.Errorf(op, verbs.ErrClosed, "the context was closed")
		}
		if !c.doze(wake, deadline) {
			return verbs.AsyncEvent{}, &verbs.OpError{Op: op, Err: verbs.ErrTimeout}
		}
	}
}

// Close destroys everything that was made through c, except shared regions, and returns when that
// is done. Afterwards memory of Alloc must not be used. A second Close does nothing.
func (c *Context) Close() error {
	c.session.mu.Lock()
	if c.session.closed {
		c.session.mu.Unlock()
		return nil
	}
	c.session.closed = true
	c.session.mu.Unlock()
	err := verbs.Gone(c.session.call(proto.OpClose, proto.None{}, nil))
	if cerr := c.session.conn.Close(); !errors.Is(cerr, net.ErrClosed) { // ErrClosed: giveUp has closed it already
		err = errors.Join(err, cerr)
	}
	if c.wake != nil {
		err = errors.Join(err, c.wake.Close())
	}
	c.tasks.Wait()
	c.session.wakes.all()
	return errors.Join(err, c.maps.close()) // the control page is unmapped when the garbage collector frees c
}

// alive reports whether objects that were made in the given incarnation of the NIC still exist.
func (c *Context) alive(incarnation uint64) bool {
	return !c.session.gone.Load() && c.ctl.Incarnation.Load() == incarnation
}

// wakes lets the context wake all its sleeping threads at once, when something has changed.
type wakes struct {
	mu sync.Mutex // guards ch
	ch chan struct{}
}

// next returns a channel that the next call of the method all closes.
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

// listen receives the daemon's wake-ups until the context is closed.
func (c *Context) listen() {
	var b [64]byte
	for {
		n, err := c.wake.Read(b[:])
		if err != nil || n == 0 {
			return
		}
		c.session.wakes.all()
	}
}

// sleep waits for a wake-up or the end of the connection. It returns false if the deadline has
// passed.
func (c *Context) sleep(wake <-chan struct{}, deadline clock.Time) bool {
	var late <-chan time.Time
	if deadline != clock.Never {
		left := deadline.Sub(c.runtime.Now())
		if left <= 0 {
			return false
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-wake:
	case <-c.session.dead:
	case <-late:
		return false
	}
	return true
}

// doze waits like sleep, in a thread that waits for a peer or the NIC. Such a wait may have no
// deadline. If the deadline is far away and c.patience passes without a wake-up, doze calls the
// daemon and returns true; the caller then calls doze again. If the daemon does not answer, the
// context abandons it, because nothing else would end the wait.
func (c *Context) doze(wake <-chan struct{}, deadline clock.Time) bool {
	now := c.runtime.Now()
	if deadline != clock.Never && deadline.Sub(now) <= 2*c.session.patience { // the deadline comes before doze could find out that the daemon is silent
		return c.sleep(wake, deadline)
	}
	if !c.sleep(wake, now.Add(c.session.patience)) {
		_ = c.session.call(proto.OpProgress, proto.Progress{}, nil) // the content of the answer does not matter, only whether it comes
	}
	return true
}

// ring rings the bell of an object, which tells the daemon that there are new entries in the
// object's ring, and wakes the daemon if it sleeps.
func (c *Context) ring(bell uint32) {
	if c.ctl.Ring(bell) {
		_, _ = c.wake.Write([]byte{1}) // if the socket is full, the daemon has unread wake-ups in it
	}
}
