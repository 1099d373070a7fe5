package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/unixsocket"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// Manager makes connections for an application. Close ends all connections, listeners and requests
// that the application has made with it.
type Manager interface {
	rdmacm.Manager
	Close() error
}

// Config describes the service of one NIC.
type Config struct {
	// Path is the path of the socket; required. A socket there that no process serves is replaced; any
	// other file there is an error.
	Path string
	// Open opens the NIC for one application; required. The contexts must be of package
	// verbsengine, all of one NIC.
	Open func() verbs.Context
	// Manager returns a connection manager for an application with this context. nil means that
	// applications exchange the attributes of connections by other means.
	Manager func(ctx verbs.Context) (Manager, error)
	// Allow reports whether a user may attach. nil allows root and the daemon's own user; if Group is
	// set, nil allows every user that can connect to the socket.
	Allow func(uid uint32) bool
	// Group is the number of a group whose users may connect to the socket, in addition to its
	// owner. It must be the group of the socket's folder, or the daemon must be allowed to change
	// the group. 0 means none.
	Group  int
	Limits Limits
	// Beside has the servers of the host's further NICs, in their order, for the service of the first one:
	// programs over librdmacm use all of them by it. They must be closed after it. NICWith returns the
	// number of the NIC with an address, and -1 if none has it; NICTowards that of the NIC by which the
	// host reaches a peer. Both are required with Beside.
	Beside              []*Server
	NICWith, NICTowards func(a netip.Addr) int
	// Lenient makes the NIC take commands of unmodified programs that kernels refuse, where it can
	// execute them: modify commands of queue pairs that lack attributes, or name others in addition.
	Lenient bool
	// HelloWait is how long an application, also a refused one, may take to send its hello. 0 means
	// 5 s.
	HelloWait time.Duration
	// Spin is how long the pump polls after the last event, and how long applications poll. 0 means
	// 50 µs; negative: no polling.
	Spin time.Duration
	// Poller looks at the rings of programs, instead of a thread of this server. The NIC's port must be a
	// packetio.Carrier. nil means that the server has its own.
	Poller *Poller
	// Seed seeds the random numbers of applications.
	Seed uint64
	// Slow is by how much the clock of the NIC is slower than real time, in which applications give
	// their timeouts; 0 means 1.
	Slow int
	// Log receives attachments, refusals and errors; nil means that nothing is logged.
	Log *slog.Logger
}

const (
	defaultSpin      = 50 * time.Microsecond
	defaultHelloWait = 5 * time.Second // long, because a program on a busy machine may get no processor for seconds
)

// Server serves a NIC to other processes.
type Server struct {
	cfg       Config
	bounds    atomic.Pointer[bounds] // the limits of applications that attach now
	log       *slog.Logger
	pump      *pump
	pool      pool
	refusals  refusals
	groups    groupShares
	shared    sharedRegions
	ports     *ucma.Ports // ports of programs over librdmacm; guarded by exclusive use of the engine
	stuck     *stuck
	processes processes
	programs  programs
	ln        *unixsocket.Listener
	wg        sync.WaitGroup // the pump, the accepting goroutine and all clients
	stop      chan struct{}  // closed when the server is being closed
	close     func() error   // calls shutDown, once

	mu      sync.Mutex // guards the fields below
	clients map[*client]struct{}
	nextID  uint64
	// refused has the connections of refused applications to which the reason is still being sent.
	refused map[*net.UnixConn]struct{}
}

// Listen starts the server. The caller must call Close before it closes the device.
func Listen(cfg Config) (*Server, error) {
	if cfg.Path == "" || cfg.Open == nil {
		return nil, errors.New("ipc: Path and Open are required")
	}
	if cfg.Allow == nil {
		own := uint32(os.Geteuid())
		cfg.Allow = func(uid uint32) bool { return uid == 0 || uid == own || cfg.Group != 0 }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Spin = cmp.Or(cfg.Spin, defaultSpin)
	cfg.HelloWait = cmp.Or(cfg.HelloWait, defaultHelloWait)
	base, ok := cfg.Open().(*verbsengine.Context)
	if !ok {
		return nil, fmt.Errorf("ipc: %w: the device is not one of this process", verbs.ErrNotSupported)
	}
	ln, err := unixsocket.Listen("unixpacket", cfg.Path, cfg.Group)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ipc: %w", err), base.Close())
	}
	if _, ok := base.Shell().(Trier); !ok && cfg.Poller != nil {
		return nil, errors.Join(fmt.Errorf("ipc: %w: a Poller needs a device of this process", verbs.ErrNotSupported), ln.Close(), base.Close())
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, refusals: refusals{log: cfg.Log}, pump: newPump(base.Shell(), cfg.Spin), ln: ln, stop: make(chan struct{}),
		clients: make(map[*client]struct{}), refused: make(map[*net.UnixConn]struct{}), ports: ucma.NewPorts(), stuck: newStuck(),
	}
	s.bounds.Store(newBounds(cfg.Limits))
	s.shared.base, s.shared.limits, s.shared.byName = base, func() *Limits { return &s.bounds.Load().all }, make(map[string]*sharedRegion)
	s.programs.xrc.open(base, s.pump)
	s.close = sync.OnceValue(s.shutDown)
	s.pump.with(func(e *engine.Engine) {
		s.pool.open(e.Config().Limits, s.bounds.Load().all)
		s.groups.most = e.Config().Limits.GroupQPs
	})
	serve := s.pump.run
	if cfg.Poller != nil {
		serve = s.pump.attend
	}
	s.wg.Go(func() { serve(s.stop) })
	s.wg.Go(s.accept)
	return s, nil
}

// Close ends the server: all applications are disconnected, and shared regions are freed. A second
// Close returns the same result.
func (s *Server) Close() error { return s.close() }

func (s *Server) shutDown() error {
	close(s.stop)
	err := s.ln.Close()
	s.DetachAll()
	s.mu.Lock()
	for conn := range s.refused {
		_ = conn.Close() // ends connections that wait for a hello
	}
	s.mu.Unlock()
	s.pump.end()
	s.wg.Wait()
	return errors.Join(err, s.shared.close())
}

// DetachAll disconnects all applications, as if they had been killed. Their shared regions stay.
func (s *Server) DetachAll() {
	s.mu.Lock()
	clients := slices.Collect(maps.Keys(s.clients))
	s.mu.Unlock()
	for _, c := range clients {
		c.cut("the daemon detaches all applications")
		<-c.done
	}
}

// acceptPause is the pause after a failed accept, which mostly means that no file descriptors are
// left.
const acceptPause = 20 * time.Millisecond

func (s *Server) accept() {
	for {
		conn, err := s.ln.AcceptUnix()
		if err != nil {
			select {
			case <-s.stop:
				return
			case <-time.After(acceptPause):
				s.log.Warn("verbs: accept", "error", err)
				continue
			}
		}
		s.attach(conn)
	}
}

// attach makes a client of an application that has connected, or refuses the application.
func (s *Server) attach(conn *net.UnixConn) {
	cred, err := ring.Peer(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		_ = conn.Close() // the daemon is ending
		return
	default:
	}
	var refused error
	switch {
	case err != nil:
		refused = fmt.Errorf("the daemon cannot read the user of this program: %w", err)
	case !s.cfg.Allow(cred.Uid):
		refused = &verbs.OpError{Op: "attach", Err: verbs.ErrAccess, Detail: fmt.Sprintf("user %d may not use this NIC; run the program as root", cred.Uid)}
	case s.programsAttached() >= s.bounds.Load().all.Clients:
		refused = limitError("attach", "%d programs use this NIC; end one of them, see `rdmalab status`", s.programsAttached())
		s.refusals.add(kindProgram, RefusalStatus{PID: cred.Pid, UID: cred.Uid}, refused)
		s.turnAway(conn, refused)
		return
	}
	if refused != nil {
		s.log.Warn("verbs: refused", "reason", refused)
		s.turnAway(conn, refused)
		return
	}
	s.nextID++
	c := s.newClient(s.nextID, conn, cred)
	s.clients[c] = struct{}{}
	s.wg.Go(c.run)
}

// maxRefusals is how many refused applications may be waiting for the reason of the refusal at the
// same time.
const maxRefusals = 16

// turnAway refuses an application: it reads the hello and answers it with an error. An unmodified
// program gets no answer: its connection is closed. The caller holds mu.
func (s *Server) turnAway(conn *net.UnixConn, why error) {
	if len(s.refused) >= maxRefusals {
		_ = conn.Close() // refused without a reason
		return
	}
	s.refused[conn] = struct{}{}
	s.wg.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.refused, conn)
			s.mu.Unlock()
			_ = conn.Close() // an application that finds the connection closed may try again, and then finds room
		}()
		b := make([]byte, proto.MaxMessage)
		if conn.SetDeadline(time.Now().Add(s.cfg.HelloWait)) != nil {
			return
		}
		n, err := conn.Read(b)
		if err != nil {
			return
		}
		req, err := parse(b[:n])
		if err != nil {
			return
		}
		if b, err = json.Marshal(proto.Reply{ID: req.ID, Error: proto.ErrorOf(why)}); err == nil {
			_, _ = conn.Write(b) // the application may not read it
		}
	})
}
