package hostd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/nldev"
	"github.com/rdmalab/rdmalab/softrnic/unixsocket"
)

// netlinkMagic begins the first message of a connection to the netlink socket; the address of the
// program's socket follows, 4 bytes. Each further message is a datagram of netlink.
const netlinkMagic = "rxenldv1"

const (
	// maxNetlinks is the largest number of connections at the same time.
	maxNetlinks = 64
	// netlinkPatience is how long a program may take to say hello, or to read answers.
	netlinkPatience = 5 * time.Second
)

// netlink answers what programs on the host ask NETLINK_RDMA of the kernel.
type netlink struct {
	log    *slog.Logger
	source func(seesPIDs, seesKeys bool) nldev.Source
	ln     *unixsocket.Listener
	wg     sync.WaitGroup

	mu    sync.Mutex // guards conns and ended
	conns map[*net.UnixConn]struct{}
	ended bool
}

// serveNetlink opens the socket. Group is as in serve.Config.
func serveNetlink(path string, group int, log *slog.Logger, source func(seesPIDs, seesKeys bool) nldev.Source) (*netlink, error) {
	ln, err := unixsocket.Listen("unixpacket", path, group)
	if err != nil {
		return nil, fmt.Errorf("socket for NETLINK_RDMA: %w", err)
	}
	n := &netlink{log: log, source: source, ln: ln, conns: make(map[*net.UnixConn]struct{})}
	n.wg.Go(n.accept)
	return n, nil
}

func (n *netlink) accept() {
	for {
		conn, err := n.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			n.log.Warn("netlink: accept", "error", err)
			time.Sleep(linkPoll) // mostly no file descriptors are left
			continue
		}
		n.mu.Lock()
		if n.ended || len(n.conns) >= maxNetlinks {
			n.mu.Unlock()
			_ = conn.Close() // the program finds no device by netlink, and looks into /sys
			continue
		}
		n.conns[conn] = struct{}{}
		n.mu.Unlock()
		n.wg.Go(func() {
			defer n.forget(conn)
			if err := n.serve(conn); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				n.log.Debug("netlink", "error", err)
			}
		})
	}
}

func (n *netlink) forget(conn *net.UnixConn) {
	_ = conn.Close() // all answers were sent, or cannot be
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, conn)
}

// serve answers a program until it closes its socket.
func (n *netlink) serve(conn *net.UnixConn) error {
	cred, err := ring.Peer(conn)
	if err != nil {
		return err
	}
	b := make([]byte, nldev.MaxDatagram)
	if err := conn.SetReadDeadline(time.Now().Add(netlinkPatience)); err != nil {
		return err
	}
	got, err := conn.Read(b)
	if err != nil {
		return err
	}
	if got != len(netlinkMagic)+4 || string(b[:len(netlinkMagic)]) != netlinkMagic {
		return errors.New("no hello of the preloaded library")
	}
	port := binary.NativeEndian.Uint32(b[len(netlinkMagic):])
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	source := n.source(sameProcesses(cred.Pid), cred.Uid == 0)
	for {
		if got, err = conn.Read(b); err != nil {
			return err
		}
		if got == 0 {
			return io.EOF
		}
		if err := conn.SetWriteDeadline(time.Now().Add(netlinkPatience)); err != nil {
			return err
		}
		var failed error
		nldev.Answer(b[:got], port, &source, func(datagram []byte) {
			if failed == nil {
				_, failed = conn.Write(datagram)
			}
		})
		if failed != nil {
			return failed
		}
	}
}

// sameProcesses reports whether a process is in the PID namespace of this one. pid is 0 if it is in none
// that this process sees.
func sameProcesses(pid int32) bool {
	own, err1 := os.Readlink("/proc/self/ns/pid")
	its, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return errors.Join(err1, err2) == nil && own == its
}

// Close ends the service. nil may be closed.
func (n *netlink) Close() error {
	if n == nil {
		return nil
	}
	err := n.ln.Close()
	n.mu.Lock()
	n.ended = true
	for conn := range n.conns {
		_ = conn.Close() // ends the goroutine that serves it
	}
	n.mu.Unlock()
	n.wg.Wait()
	return err
}
