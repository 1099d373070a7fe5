package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bounds of a connection.
const (
	// helloWait is how long an application may take to say who it is.
	helloWait = 5 * time.Second
	// writeWait is how long an application may leave an answer unread before it is cut off.
	writeWait = 2 * time.Second
	// maxOutgoing bounds the answers and events that wait to be sent; events beyond it are lost.
	maxOutgoing = 256
	// maxName bounds the name that an application gives itself, in bytes.
	maxName = 64
)

// client is an attached application.
type client struct {
	s       *Server
	id      uint64
	conn    *net.UnixConn
	cred    *unix.Ucred
	since   time.Time
	ctx     *binding.Context // nil before its hello
	manager Manager          // nil if there is none
	port    *port            // nil before its hello
	wake    *os.File         // the daemon's end of the wake socket

	// left is why closing ctx at the application's request did not end everything. The goroutine that reads has it.
	left error

	out   chan outgoing
	gone  chan struct{} // closed when it is being detached
	done  chan struct{} // closed when nothing of it is left
	tasks sync.WaitGroup

	mu      sync.Mutex // guards what follows
	name    string
	reason  string // why it was cut off
	objects map[uint32]any
	next    uint32
	counts  [kinds]int
	waits   int
	working map[uint64]struct{} // requests with goroutines of their own, until their answers have been given to write
	bytes   int64               // of memory
	queued  int64               // bytes of queues that the NIC keeps
}

// outgoing is a message with its file descriptors, which are closed when it was sent.
type outgoing struct {
	data []byte
	fds  []int
}

func newClient(s *Server, id uint64, conn *net.UnixConn, cred *unix.Ucred) *client {
	return &client{
		s: s, id: id, conn: conn, cred: cred, since: time.Now(),
		out: make(chan outgoing, maxOutgoing), gone: make(chan struct{}), done: make(chan struct{}),
		objects: make(map[uint32]any), working: make(map[uint64]struct{}),
	}
}

// credentials of the process at the other end.
func credentials(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, cerr)
}

// run serves an application until it is gone.
func (c *client) run() {
	defer close(c.done)
	c.tasks.Go(c.write)
	err := c.serve()
	c.cut(fmt.Sprint(err))
	c.detach()
}

// cut ends the connection. The first reason counts.
func (c *client) cut(reason string) {
	c.mu.Lock()
	if c.reason == "" {
		c.reason = reason
	}
	c.mu.Unlock()
	_ = c.conn.Close() // twice is harmless
}

// serve answers requests, one after the other; those that wait do so in goroutines of their own.
func (c *client) serve() error {
	buf := make([]byte, proto.MaxMessage+1)
	if err := c.conn.SetReadDeadline(time.Now().Add(helloWait)); err != nil {
		return err
	}
	for first := true; ; first = false {
		n, err := c.conn.Read(buf) // file descriptors that came along are dropped by the kernel
		if err != nil {
			return err
		}
		if n == 0 {
			return errors.New("it has ended")
		}
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
		if err := c.dispatch(req); err != nil {
			return err
		}
	}
}

// parse checks a message.
func parse(b []byte) (req proto.Request, err error) {
	if len(b) > proto.MaxMessage {
		return req, errors.New("a message is too long")
	}
	if err := strict(b, &req); err != nil {
		return req, fmt.Errorf("malformed message: %w", err)
	}
	if req.ID == 0 {
		return req, errors.New("malformed message: ID 0")
	}
	return req, nil
}

// hello opens the NIC for the application.
func (c *client) hello(req proto.Request) error {
	var in proto.Hello
	if req.Op != proto.OpHello || strict(req.Args, &in) != nil {
		return errors.New("no hello")
	}
	if in.Version != proto.Version {
		c.refuse(req.ID, fmt.Errorf("%w: version %d of the protocol; this daemon speaks %d", verbs.ErrNotSupported, in.Version, proto.Version))
		return errors.New("another version")
	}
	fds, err := c.open(in)
	if err != nil {
		c.refuse(req.ID, err)
		return err
	}
	if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	c.s.log.Info("verbs: attached", "pid", c.cred.Pid, "uid", c.cred.Uid, "name", c.name)
	return c.answer(req.ID, proto.Welcome{
		Device: c.ctx.Device(), Spin: c.s.cfg.Spin, Seed: c.s.cfg.Seed + c.id, Manager: c.manager != nil,
	}, fds, nil)
}

// refuse answers the hello with an error, at once: the connection ends next, and what waits to be sent with it.
func (c *client) refuse(id uint64, why error) {
	if b, err := json.Marshal(proto.Reply{ID: id, Error: proto.ErrorOf(why)}); err == nil {
		_ = c.send(outgoing{data: b}) // who does not listen does not want to know
	}
}

// open makes what every application has: a context, a control page, a wake socket.
func (c *client) open(in proto.Hello) (fds []int, err error) {
	page, bytes, err := newMemory("verbs-control", ring.ControlLen)
	if err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(limitError("attach", "wake socket: %v", err), unix.Close(page), ring.Unmap(bytes))
	}
	c.wake = os.NewFile(uintptr(pair[0]), "verbs-wake")
	fds = []int{page, pair[1]}
	c.ctx = c.s.cfg.Open().(*binding.Context) // as the first one was
	if c.s.cfg.Manager != nil {
		if c.manager, err = c.s.cfg.Manager(c.ctx); err != nil {
			c.manager = nil
			return nil, errors.Join(err, c.ctx.Close(), closeAll(fds), c.wake.Close(), ring.Unmap(bytes))
		}
	}
	c.mu.Lock()
	c.name = printable(in.Name[:min(len(in.Name), maxName)])
	c.mu.Unlock()
	p := newPort(c, bytes)
	c.s.with(func(e *engine.Engine) {
		c.port = p
		c.s.ports = append(c.s.ports, p)
		c.s.stirred = true
		e.Notify()
	})
	c.tasks.Go(c.listenWake)
	return fds, nil
}

// detach takes everything away. The memory goes last, when no region is left that the NIC could reach it by.
func (c *client) detach() {
	close(c.gone)
	if c.port != nil {
		c.s.with(func(*engine.Engine) { c.s.remove(c.port) })
		_ = c.wake.Close() // ends listenWake
	}
	var errs []error
	if c.manager != nil {
		errs = append(errs, c.closeListeners(), c.manager.Close())
	}
	left := c.left
	if c.ctx != nil {
		left = errors.Join(left, c.ctx.Close())
	}
	c.tasks.Wait()
	for drained := false; !drained; {
		select {
		case m := <-c.out:
			errs = append(errs, closeAll(m.fds))
		default:
			drained = true
		}
	}
	c.s.closeShared(c)
	if left == nil { // else the NIC may still reach it
		errs = append(errs, c.unmapAll())
	}
	c.s.mu.Lock()
	delete(c.s.clients, c)
	c.s.mu.Unlock()
	if err := errors.Join(append(errs, left)...); err != nil {
		c.s.log.Error("verbs: end of application", "pid", c.cred.Pid, "error", err)
	}
	c.s.log.Info("verbs: detached", "pid", c.cred.Pid, "reason", c.reason)
}

// write sends what is in c.out.
func (c *client) write() {
	for {
		select {
		case <-c.gone:
			return
		case m := <-c.out:
			err := c.send(m)
			_ = closeAll(m.fds) // the other end has its own now
			if err != nil {
				c.cut("answers are not read: " + err.Error())
			}
		}
	}
}

// send sends a message within writeWait. It looks twice: a host that hangs stops both sides, and a time limit that is over when it
// goes on says nothing about the application.
func (c *client) send(m outgoing) (err error) {
	var oob []byte
	if len(m.fds) > 0 {
		oob = unix.UnixRights(m.fds...)
	}
	for range 2 {
		if err = c.conn.SetWriteDeadline(time.Now().Add(writeWait / 2)); err == nil {
			_, _, err = c.conn.WriteMsgUnix(m.data, oob, nil)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
	}
	return err
}

// answer sends a reply. It owns the file descriptors. An application that cannot be given it is cut off: it would wait for
// ever.
func (c *client) answer(id uint64, result any, fds []int, err error) error {
	err = c.reply(id, result, fds, err)
	if err != nil {
		c.cut(err.Error())
	}
	return err
}

func (c *client) reply(id uint64, result any, fds []int, err error) error {
	r := proto.Reply{ID: id, Error: proto.ErrorOf(err)}
	if err == nil && result != nil {
		b, merr := json.Marshal(result)
		if merr != nil {
			return errors.Join(merr, closeAll(fds))
		}
		r.Result = b
	}
	data, err := json.Marshal(r)
	if err != nil {
		return errors.Join(err, closeAll(fds))
	}
	select {
	case c.out <- outgoing{data, fds}:
		return nil
	case <-c.gone:
	case <-time.After(writeWait):
	}
	return errors.Join(errors.New("answers are not read"), closeAll(fds))
}

// listenWake serves the application's doorbells when the pump sleeps, and wakes it.
func (c *client) listenWake() {
	var b [64]byte
	for {
		n, err := c.wake.Read(b[:])
		if err != nil || n == 0 {
			return
		}
		c.s.woken(c.port)
	}
}

// printable is text of an application that can be shown on a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
}

func closeAll(fds []int) (err error) {
	for _, fd := range fds {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}
