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

// Config says which NIC to open. The zero value means the NIC of the host on which the program
// runs.
type Config struct {
	// Socket is the path of the daemon's socket; "" means the value of the environment variable
	// EnvSocket.
	Socket string
	// Name appears in the daemon's listings; "" means the name of the program.
	Name string
	// Patience is how long the daemon may be silent before the context treats it as ended: then all
	// calls fail with ErrClosed. Time in which the host hangs does not count. Calls that wait for a
	// peer, such as Accept, may take longer: the context asks the daemon whether they are still in
	// progress. 0 means 30 s; the least is 1 s.
	Patience time.Duration
}

// openWait is how long the daemon may take to answer the hello, the first request of a connection.
const openWait = 10 * time.Second

// Open connects to the daemon that owns the NIC. The caller must close the context. The end of the
// program closes it, too.
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
		session: session{conn: conn, calls: make(map[uint64]chan answer), dead: make(chan struct{})},
		maps:    mappings{memories: make(map[*memory]struct{}), objects: make(map[mapping]struct{})},
	}
	c.session.wakes.ch = make(chan struct{})
	c.session.patience = cfg.Patience
	if c.session.patience <= 0 {
		c.session.patience = defaultPatience
	}
	c.session.patience = min(max(c.session.patience, leastPatience), mostPatience)
	if cred, err := ring.Peer(conn); err == nil {
		c.inside = int(cred.Pid) == os.Getpid()
	}
	err = conn.SetReadDeadline(time.Now().Add(openWait))
	c.tasks.Go(c.session.receive)
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

// hello introduces the program to the daemon, and receives the control page and the wake socket.
func (c *Context) hello(name string) error {
	var w proto.Welcome
	fds, err := c.session.callFiles(proto.OpHello, proto.Hello{Version: proto.Version, Name: name}, &w)
	if errors.Is(err, verbs.ErrClosed) {
		return fmt.Errorf("%w; the daemon may be of another version than this program", err)
	}
	defer func() { ring.CloseFiles(fds...) }()
	if err != nil {
		return err
	}
	if len(fds) != 2 {
		return errors.New("the daemon's answer is incomplete")
	}
	if c.page, err = ring.Map(fds[0], ring.ControlLen); err != nil {
		return err
	}
	runtime.AddCleanup(c, func(page []byte) { _ = ring.Unmap(page) }, c.page) // cannot fail: it is mapped
	if err := unix.SetNonblock(fds[1], true); err != nil {
		return err
	}
	c.wake, fds = os.NewFile(uintptr(fds[1]), "verbs-wake"), fds[:1]
	c.ctl = ring.NewControl(c.page)
	c.words = ring.NewQueue(c.ctl.Memory(), ring.Accesses, ring.AccessSlot)
	c.device, c.spin = w.Device, w.Spin
	c.runtime = device.NewRuntime(real.New(), w.Seed)
	return nil
}

// maxFiles is the largest number of file descriptors in one answer.
const maxFiles = 4

// receive handles replies and events until the connection ends.
func (c *session) receive() {
	b, oob := make([]byte, proto.MaxMessage), make([]byte, unix.CmsgSpace(maxFiles*4))
	for {
		n, fds, flags, err := ring.Receive(c.conn, b, oob)
		r := answer{fds: fds}
		if err == nil && (n == 0 || flags&unix.MSG_TRUNC != 0) {
			err = errors.New("the daemon has ended the connection")
		}
		if err == nil {
			err = json.Unmarshal(b[:n], &r.reply)
		}
		if err != nil {
			ring.CloseFiles(r.fds...)
			c.fail(err)
			return
		}
		c.deliver(r)
	}
}
