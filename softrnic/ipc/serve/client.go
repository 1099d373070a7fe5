package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// maxName is the largest length of an application's name in bytes.
const maxName = 64

// client is an attached application: its socket, its verbs context and its objects.
type client struct {
	link
	s     *Server
	id    uint64
	cred  *unix.Ucred
	since time.Time
	name  string               // printable; guarded by link.mu
	ctx   *verbsengine.Context // nil until the application has sent its hello
	port  *port                // nil until the application has sent its hello
	wake  *os.File             // the daemon's end of the socket by which daemon and application wake each other
	prog  *program             // set if the client is an unmodified program over libibverbs; else nil
	child bool                 // it is a child of fork and uses the device of its parent; guarded by Server.mu
	as    *caller              // whose commands over libibverbs come on this connection; nil if none do
	cmgr  *programManager      // set if the client is the librdmacm of an unmodified program; else nil
	// token is Hello.Token of an unmodified program, a random number that all connections of a
	// process have in common; see uverbs.Hello.
	token [uverbs.TokenLen]byte

	bounds  *bounds // the limits when the application attached
	objects objects
	conns   connections
	execute executors

	done  chan struct{}  // closed when all objects of the client are gone
	tasks sync.WaitGroup // the goroutines that write, listen for wake-ups, and execute waiting calls
}

// executors execute the calls of an application over package ipc. handlers has the handler of each kind of request that
// the application may send after its hello.
type executors struct {
	memories memories
	queues   queues
	handlers map[proto.Op]handler
	calls    calls // those that wait
}

func (s *Server) newClient(id uint64, conn *net.UnixConn, cred *unix.Ucred) *client {
	b := s.bounds.Load()
	c := &client{
		bounds: b,
		link:   newLink(conn), s: s, id: id, cred: cred, since: time.Now(), done: make(chan struct{}),
		objects: objects{limits: &b.belled, pool: &s.pool, byHandle: make(map[uint32]any)},
		execute: executors{calls: calls{limit: b.all.Waits, working: make(map[uint64]struct{})}},
	}
	c.conns.c, c.objects.refused = c, c.refused
	x := &c.execute
	x.memories, x.queues = memories{c, &c.objects, s.pump}, queues{c, &c.objects, s.pump}
	x.handlers = handlersOf(x.memories, x.queues, &c.conns, c)
	return c
}

// run serves an application until its connection ends, and then removes its objects.
func (c *client) run() {
	defer close(c.done)
	c.tasks.Go(c.write)
	err := c.serve()
	var asked closeRequest
	if !errors.As(err, &asked) {
		c.cut(err.Error())
		_ = c.detach() // detach has logged the error
		return
	}
	c.because("the application has closed its context")
	c.lastAnswer(uint64(asked), c.detach())
	c.cut("")
}

// closeRequest is the ID of the request by which an application closes its context. The daemon
// answers it when all objects of the application are gone and their quotas are free.
type closeRequest uint64

func (closeRequest) Error() string { return "close" }

// serve reads the application's requests and executes them one after the other. A request that may
// wait is executed in its own goroutine.
func (c *client) serve() error {
	buf := make([]byte, proto.MaxMessage+1)
	if err := c.conn.SetReadDeadline(time.Now().Add(c.s.cfg.HelloWait)); err != nil {
		return err
	}
	for first := true; ; first = false {
		n, fds, err := 0, []int(nil), error(nil)
		if first {
			n, fds, err = c.receive(buf)
		} else {
			n, err = c.conn.Read(buf) // the kernel drops file descriptors that the application sends
		}
		if err != nil {
			return noMessage(err)
		}
		if h, ok := uverbs.ParseHello(buf[:n]); ok && first {
			return c.serveUnmodified(h, fds, buf)
		}
		_ = closeAll(fds) // applications over package ipc send no descriptors
		req, err := parse(buf[:n])
		if err != nil {
			return err
		}
		if first {
			if err := c.hello(req); err != nil {
				return err
			}
			continue
		}
		c.s.pump.catchUp(c.port)
		if req.Op == proto.OpClose {
			return closeRequest(req.ID)
		}
		if err := c.dispatch(req); err != nil {
			return err
		}
	}
}

// noMessage returns why an application's message did not arrive; err is the error of the read.
func noMessage(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the application has ended")
	}
	return err
}

// hello opens the NIC for the application and answers its first request.
func (c *client) hello(req proto.Request) error {
	var in proto.Hello
	if req.Op != proto.OpHello || strict(req.Args, &in) != nil {
		return errors.New("the first message is not a valid hello")
	}
	if in.Version != proto.Version {
		c.lastAnswer(req.ID, fmt.Errorf("%w: version %d of the protocol; this daemon speaks %d", verbs.ErrNotSupported, in.Version, proto.Version))
		return errors.New("the application has another version of the protocol")
	}
	fds, err := c.open(in)
	if err != nil {
		c.lastAnswer(req.ID, err)
		return err
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c.s.log.Info("verbs: attached", "pid", c.cred.Pid, "uid", c.cred.Uid, "name", c.name)
	return c.answer(req.ID, proto.Welcome{
		Device: c.s.pool.bound(c.ctx.Device(), &c.bounds.belled), Spin: c.s.cfg.Spin, Seed: c.s.cfg.Seed + c.id, Manager: c.conns.manager != nil,
	}, fds, nil)
}

// lastAnswer answers a request with err, or without an error if err is nil. It does not queue the
// answer, because the connection ends next and queued answers are lost with it.
func (c *client) lastAnswer(id uint64, err error) {
	if b, merr := json.Marshal(proto.Reply{ID: id, Error: proto.ErrorOf(err)}); merr == nil {
		_ = c.send(outgoing{data: b}) // the application may not read it, or may have ended
	}
}

// open makes the application's verbs context, its control page (shared memory with its bells) and
// the socket by which daemon and application wake each other.
func (c *client) open(in proto.Hello) (fds []int, err error) {
	page, bytes, err := newMemory("verbs-control", ring.ControlLen)
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(limitError("attach", "wake socket: %v", err), unix.Close(page), ring.Unmap(bytes))
	}
	c.openWake(pair[0])
	fds = []int{page, pair[1]}
	c.ctx = c.s.cfg.Open().(*verbsengine.Context) // Listen has checked that it is a *verbsengine.Context
	if c.s.cfg.Manager != nil {
		if c.conns.manager, err = c.s.cfg.Manager(c.ctx); err != nil {
			c.conns.manager = nil
			return nil, errors.Join(err, c.ctx.Close(), closeAll(fds), c.wake.Close(), ring.Unmap(bytes))
		}
	}
	c.start(in.Name[:min(len(in.Name), maxName)], bytes, nil)
	return fds, nil
}

// openWake makes c.wake of a socket. A Poller waits for it by itself: then Go's runtime must not.
func (c *client) openWake(fd int) {
	if c.s.cfg.Poller != nil {
		_ = unix.SetNonblock(fd, false) // fails for no open socket
	}
	c.wake = os.NewFile(uintptr(fd), "verbs-wake")
}

// start makes the pump serve the application, whose control page is at the beginning of page. p is
// set for an unmodified program over libibverbs; else it is nil.
func (c *client) start(name string, page []byte, p *program) {
	c.rename(name)
	c.ctx.SetOwner(c.owner())
	port := c.newPort(page)
	c.s.pump.with(func(e *engine.Engine) {
		c.port, c.prog = port, p
		c.s.pump.add(port, e)
	})
	if c.s.cfg.Poller == nil {
		c.tasks.Go(c.listenWake)
	} else if err := c.s.cfg.Poller.add(port); err != nil {
		c.s.log.Error("verbs: the rings of a program are not looked at", "pid", c.cred.Pid, "error", err)
	}
}

func (c *client) rename(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.name = printable(name)
}

// owner is the process to which objects of the client belong.
func (c *client) owner() *engine.Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &engine.Owner{PID: c.cred.Pid, Name: c.name}
}

// detach removes all objects of the application. Memory is unmapped last, when the NIC can no
// longer reach it through a region.
func (c *client) detach() error {
	close(c.gone)
	if c.as != nil {
		c.as.leave()
	}
	if c.port != nil {
		if c.s.cfg.Poller != nil {
			c.s.cfg.Poller.remove(c.port)
		}
		c.s.pump.with(func(*engine.Engine) { c.s.pump.remove(c.port) })
		_ = c.wake.Close() // ends listenWake
	}
	var errs []error
	if c.conns.manager != nil {
		errs = append(errs, c.conns.closeListeners(), c.conns.manager.Close())
	}
	if c.cmgr != nil {
		c.cmgr.close()
	}
	var left error
	if c.ctx != nil {
		left = c.ctx.Close()
	}
	c.tasks.Wait()
	errs = append(errs, c.discard())
	if c.prog != nil {
		errs = append(errs, c.prog.xrc().leave())
	}
	c.closeShared()
	if left == nil { // otherwise the NIC may still access the memory
		errs = append(errs, c.unmapAll())
		if c.prog != nil {
			errs = append(errs, c.prog.close())
		}
		c.objects.releaseAll()
		c.s.groups.forget(c)
	}
	c.s.mu.Lock()
	delete(c.s.clients, c)
	c.s.mu.Unlock()
	err := errors.Join(append(errs, left)...)
	if err != nil {
		c.s.log.Error("verbs: end of application", "pid", c.cred.Pid, "error", err)
	}
	c.s.log.Info("verbs: detached", "pid", c.cred.Pid, "reason", c.reason)
	return err
}

// unmapAll unmaps all memory of a client that ends. All its regions must be gone.
func (c *client) unmapAll() error {
	var errs []error
	t := &c.objects
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range t.byHandle {
		switch o := o.(type) {
		case *memory:
			errs = append(errs, ring.Unmap(o.bytes))
			o.bytes = nil
		case *mrObject:
			if o.memory != nil {
				errs = append(errs, ring.Unmap(o.memory.bytes))
				o.memory.bytes = nil
			}
		case *queueObject:
			errs = append(errs, ring.Unmap(o.bytes))
		}
	}
	clear(t.byHandle)
	if c.port != nil {
		errs = append(errs, ring.Unmap(c.port.page))
	}
	return errors.Join(errs...)
}

// listenWake runs while the client is attached. The application wakes the daemon if the pump, the
// goroutine that serves the rings of all applications, sleeps. listenWake then serves the bells
// that the application has rung, and wakes the pump if necessary (see pump.woken).
func (c *client) listenWake() {
	var b [64]byte
	for {
		n, err := c.wake.Read(b[:])
		if err != nil || n == 0 {
			return
		}
		c.s.pump.woken(c.port)
	}
}

// printable replaces all characters except printable ASCII by question marks, because a terminal
// might interpret them.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}
