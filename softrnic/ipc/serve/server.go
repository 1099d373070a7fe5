package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Manager makes connections for an application. Close ends what was begun through it.
type Manager interface {
	rdmacm.Manager
	Close() error
}

// Config describes the service of one NIC.
type Config struct {
	// Path is where the socket is made; required. A file that is there is replaced.
	Path string
	// Open opens the NIC for one application; required. The contexts must be those of package binding, all of one NIC.
	Open func() verbs.Context
	// Manager makes connections for an application with this context; nil: applications make them by other means.
	Manager func(ctx verbs.Context) (Manager, error)
	// Allow says which user may attach; nil: root and the daemon's own.
	Allow  func(uid uint32) bool
	Limits Limits
	// Spin is how long the pump polls after something has happened, and how long applications are told to. 0: 50 µs;
	// negative: not at all.
	Spin time.Duration
	// Seed is for the random numbers of applications.
	Seed uint64
	// Log is where it writes; nil: nowhere.
	Log *slog.Logger
}

const defaultSpin = 50 * time.Microsecond

// Server serves a NIC to other processes.
type Server struct {
	cfg    Config
	log    *slog.Logger
	base   *binding.Context // of shared regions and of the pump
	body   binding.Body
	poller binding.Poller // body, or nil
	driver binding.Driver // likewise
	ln     *net.UnixListener
	wg     sync.WaitGroup // the pump, the accepting goroutine and all clients
	stop   chan struct{}
	close  func() error

	mu      sync.Mutex // guards what follows
	clients map[*client]struct{}
	nextID  uint64
	// refusals are those who are being told that they may not attach.
	refusals int
	shared   map[string]*sharedRegion

	// Guarded by the engine's exclusiveness.
	ports    []*port
	qps      map[wire.QPN]*port
	cqs      map[uint32]*port
	srqs     map[uint32]*port
	table    *mem.Table // of the NIC's incarnation that was seen last
	activity uint64     // of the engine, when completions were last carried
	stirred  bool       // the pump shall look
	ended    bool
	scratch  scratch
}

// Listen begins to serve. The caller must call Close before it closes the device.
func Listen(cfg Config) (*Server, error) {
	if cfg.Path == "" || cfg.Open == nil {
		return nil, errors.New("ipc: Path and Open are required")
	}
	if cfg.Allow == nil {
		own := uint32(os.Geteuid())
		cfg.Allow = func(uid uint32) bool { return uid == 0 || uid == own }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Spin == 0 {
		cfg.Spin = defaultSpin
	}
	cfg.Limits = cfg.Limits.withDefaults()
	base, ok := cfg.Open().(*binding.Context)
	if !ok {
		return nil, fmt.Errorf("ipc: %w: the device is not one of this process", verbs.ErrNotSupported)
	}
	_ = os.Remove(cfg.Path) // of a former life; if it cannot be removed, it cannot be replaced either
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: cfg.Path, Net: "unixpacket"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ipc: %w", err), base.Close())
	}
	s := &Server{
		cfg: cfg, log: cfg.Log, base: base, body: base.Body(), ln: ln, stop: make(chan struct{}),
		clients: make(map[*client]struct{}), shared: make(map[string]*sharedRegion),
		qps: make(map[wire.QPN]*port), cqs: make(map[uint32]*port), srqs: make(map[uint32]*port),
	}
	s.poller, _ = s.body.(binding.Poller)
	s.driver, _ = s.body.(binding.Driver)
	s.with(func(e *engine.Engine) { s.table = e.Mem() })
	s.close = sync.OnceValue(s.shutDown)
	s.wg.Go(s.pump)
	s.wg.Go(s.accept)
	return s, nil
}

// Close ends the service: all applications are cut off, and shared regions go. Closing again returns the same result.
func (s *Server) Close() error { return s.close() }

func (s *Server) shutDown() error {
	close(s.stop)
	err := s.ln.Close()
	s.DetachAll()
	s.with(func(e *engine.Engine) {
		s.ended, s.stirred = true, true
		e.Notify()
	})
	s.wg.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	err = errors.Join(err, s.base.Close())
	for _, r := range s.shared {
		err = errors.Join(err, r.release())
	}
	clear(s.shared)
	return err
}

// DetachAll cuts off all applications, as if they had been killed. Their shared regions stay.
func (s *Server) DetachAll() {
	s.mu.Lock()
	clients := slices.Collect(maps.Keys(s.clients))
	s.mu.Unlock()
	for _, c := range clients {
		c.cut("the daemon ends it")
		<-c.done
	}
}

// acceptPause is how long nobody is accepted after that has failed: mostly because there are no file descriptors left.
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

// attach starts a client, or turns it away.
func (s *Server) attach(conn *net.UnixConn) {
	cred, err := credentials(conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		_ = conn.Close() // the daemon is going, too
		return
	default:
	}
	var refused error
	switch {
	case err != nil:
		refused = fmt.Errorf("the daemon cannot tell whose program this is: %w", err)
	case !s.cfg.Allow(cred.Uid):
		refused = &verbs.OpError{Op: "attach", Err: verbs.ErrAccess, Detail: fmt.Sprintf("user %d may not use this NIC; run the program as root", cred.Uid)}
	case len(s.clients) >= s.cfg.Limits.Clients:
		refused = limitError("attach", "%d programs use this NIC; end one of them, see rdmalab status", len(s.clients))
	}
	if refused != nil {
		s.log.Warn("verbs: turned away", "reason", refused)
		s.turnAway(conn, refused)
		return
	}
	s.nextID++
	c := newClient(s, s.nextID, conn, cred)
	s.clients[c] = struct{}{}
	s.wg.Go(c.run)
}

// refusalWait is how long somebody who is turned away may take to hear why, and maxRefusals how many are told at a time.
const (
	refusalWait = time.Second
	maxRefusals = 16
)

// turnAway answers the hello with an error. The caller holds mu.
func (s *Server) turnAway(conn *net.UnixConn, why error) {
	if s.refusals >= maxRefusals {
		_ = conn.Close() // it hears nothing
		return
	}
	s.refusals++
	s.wg.Go(func() {
		defer func() {
			_ = conn.Close() // everything was said
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refusals--
		}()
		b := make([]byte, proto.MaxMessage)
		if conn.SetDeadline(time.Now().Add(refusalWait)) != nil {
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
			_, _ = conn.Write(b) // who does not listen does not want to know
		}
	})
}

// with gives f exclusive use of the engine.
func (s *Server) with(f func(e *engine.Engine)) {
	_, e, _ := s.body.Enter()
	defer s.body.Leave()
	f(e)
}
