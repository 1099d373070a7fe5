package ipc

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// EnvSocket is the environment variable that names the daemon's socket.
const EnvSocket = proto.EnvSocket

// Config says which NIC to open. Its zero value is that of the host on which the program runs.
type Config struct {
	// Socket is the path of the daemon's socket; "": what the environment says.
	Socket string
	// Name is shown in the daemon's listings; "": the program's.
	Name string
}

// openWait bounds how long the daemon may take to answer at first.
const openWait = 10 * time.Second

// Open attaches to the daemon that owns the NIC. The caller must Close the context; the end of the program does it, too.
func Open(cfg Config) (*Context, error) {
	if cfg.Socket == "" {
		if cfg.Socket = os.Getenv(EnvSocket); cfg.Socket == "" {
			return nil, fmt.Errorf("ipc: no NIC here: %s is not set; run the program with `rdmalab exec HOST -- ...`", EnvSocket)
		}
	}
	if cfg.Name == "" {
		cfg.Name = filepath.Base(os.Args[0])
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: cfg.Socket, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("ipc: %w", err)
	}
	c := &Context{
		conn: conn, calls: make(map[uint64]chan answer), dead: make(chan struct{}), memories: make(map[*memory]struct{}), mapped: make(map[mapping]struct{}),
	}
	c.wakes.ch = make(chan struct{})
	c.inside = servedBy(conn) == os.Getpid()
	err = conn.SetReadDeadline(time.Now().Add(openWait))
	c.tasks.Go(c.receive)
	if err == nil {
		err = c.hello(cfg.Name)
	}
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ipc: %s: %w", cfg.Socket, err), c.Close())
	}
	c.tasks.Go(c.listen)
	return c, nil
}

// hello says who the program is and takes over what the daemon gives every one.
func (c *Context) hello(name string) error {
	var w proto.Welcome
	fds, err := c.callFiles(proto.OpHello, proto.Hello{Version: proto.Version, Name: name}, &w)
	if err != nil {
		return err
	}
	if len(fds) != 2 {
		closeFiles(fds)
		return errors.New("the daemon's answer is incomplete")
	}
	c.page, err = ring.Map(fds[0], ring.ControlLen)
	closeFiles(fds[:1])
	if err != nil {
		closeFiles(fds[1:])
		return err
	}
	runtime.AddCleanup(c, func(page []byte) { _ = ring.Unmap(page) }, c.page) // a mapping can be ended
	if err := unix.SetNonblock(fds[1], true); err != nil {
		closeFiles(fds[1:])
		return err
	}
	c.wake = os.NewFile(uintptr(fds[1]), "verbs-wake")
	c.ctl = ring.NewControl(c.page)
	c.words = ring.NewQueue(c.ctl.Memory(), ring.Accesses, ring.AccessSlot)
	c.device, c.spin, c.managed = w.Device, w.Spin, w.Manager
	c.runtime = device.NewRuntime(real.New(), w.Seed)
	return nil
}

// servedBy is the process at the other end of a connection; 0 if that cannot be known.
func servedBy(conn *net.UnixConn) (pid int) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // which fails only when it was closed
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// answer is a reply with its file descriptors.
type answer struct {
	reply proto.Reply
	fds   []int
	err   error
}

// call makes a request and waits for the answer; out may be nil.
func (c *Context) call(op proto.Op, args, out any) error {
	fds, err := c.callFiles(op, args, out)
	closeFiles(fds) // there are none
	return err
}

// callFiles is call for answers that carry file descriptors, which are the caller's.
func (c *Context) callFiles(op proto.Op, args, out any) ([]int, error) {
	a, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	ch := make(chan answer, 1)
	c.mu.Lock()
	if c.failure != nil {
		defer c.mu.Unlock()
		return nil, c.lost(string(op))
	}
	c.nextCall++
	req := proto.Request{ID: c.nextCall, Op: op, Args: a}
	c.calls[req.ID] = ch
	c.mu.Unlock()
	b, err := json.Marshal(req)
	switch {
	case err != nil:
	case len(b) > proto.MaxMessage:
		err = opError(string(op), verbs.ErrInvalid, "%d bytes are too much for one request", len(b))
	default:
		_, err = c.conn.Write(b)
	}
	if err != nil {
		c.mu.Lock()
		delete(c.calls, req.ID)
		c.mu.Unlock()
		if errors.Is(err, net.ErrClosed) || errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
			err = opError(string(op), verbs.ErrClosed, "the daemon is gone")
		}
		return nil, err
	}
	r := <-ch
	if r.err != nil {
		return nil, opError(string(op), verbs.ErrClosed, "%v", r.err)
	}
	if err := r.reply.Error.Err(); err != nil {
		return r.fds, err
	}
	if out != nil {
		err = json.Unmarshal(r.reply.Result, out)
	}
	return r.fds, err
}

// lost is the error of a call to a daemon that is gone. The caller holds mu.
func (c *Context) lost(op string) error {
	return opError(op, verbs.ErrClosed, "%v", c.failure)
}

// maxFiles bounds the file descriptors of one answer.
const maxFiles = 4

// receive takes replies and events until the connection ends.
func (c *Context) receive() {
	b, oob := make([]byte, proto.MaxMessage), make([]byte, unix.CmsgSpace(maxFiles*4))
	for {
		n, oobn, flags, _, err := c.conn.ReadMsgUnix(b, oob)
		var r answer
		if oobn > 0 {
			r.fds = files(oob[:oobn])
		}
		if err == nil && (n == 0 || flags&unix.MSG_TRUNC != 0) {
			err = errors.New("the daemon has ended the connection")
		}
		if err == nil {
			err = json.Unmarshal(b[:n], &r.reply)
		}
		if err != nil {
			closeFiles(r.fds)
			c.fail(err)
			return
		}
		c.deliver(r)
	}
}

func (c *Context) deliver(r answer) {
	c.mu.Lock()
	ch := c.calls[r.reply.ID]
	delete(c.calls, r.reply.ID)
	if r.reply.ID == 0 && r.reply.Event != nil && len(c.events) < maxEvents {
		c.events = append(c.events, *r.reply.Event)
	}
	c.mu.Unlock()
	if ch == nil {
		closeFiles(r.fds)
		c.wakes.all()
		return
	}
	ch <- r
}

// fail is the end of the connection.
func (c *Context) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failure = err
	close(c.dead)
	c.gone.Store(true)
	for id, ch := range c.calls {
		ch <- answer{err: err}
		delete(c.calls, id)
	}
	c.wakes.all()
}

// files are the file descriptors of a message.
func files(oob []byte) (fds []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds
}

func closeFiles(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd) // of memory, where nothing can go wrong
	}
}

func opError(op string, sentinel error, format string, args ...any) error {
	return &verbs.OpError{Op: op, Err: sentinel, Detail: fmt.Sprintf(format, args...)}
}
