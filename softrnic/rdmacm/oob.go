package rdmacm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// DefaultPort is the TCP port of the out-of-band exchange. It is not 18515, which belongs to
// ibv_rc_pingpong and perftest.
const DefaultPort = 18514

const (
	defaultHandshakes       = 64
	defaultBacklog          = 64
	defaultHandshakeTimeout = 5 * time.Second
	// rejectTimeout is how long the sending of a reject message may take, because the peer may not
	// read it.
	rejectTimeout = time.Second
)

// OOBConfig configures an OOB.
type OOBConfig struct {
	// Context is a context of the device whose queue pairs are connected; required.
	Context verbs.Context
	// Listen is the address on which all services of this manager listen. With the zero value the
	// manager only dials. Port 0 means a free port, which Addr returns.
	Listen netip.AddrPort
	// Port is the port on which peers listen. 0 means DefaultPort.
	Port uint16
	// Inside runs a function that opens a connection, for example in another network namespace. nil
	// means that the function is called.
	Inside func(open func() error) error
	// Handshakes is how many TCP connections may wait for the request of their peer at the same time;
	// more are refused. 0 means 64.
	Handshakes int
	// Backlog is how many requests of one service may wait for Accept. 0 means 64.
	Backlog int
	// HandshakeTimeout is how long a peer may take for its part of the exchange. 0 means 5 s.
	HandshakeTimeout time.Duration
}

// OOBStats counts the outcomes of the exchanges by which an OOB makes connections.
type OOBStats struct {
	Dialed, Accepted, Rejected uint64
	// Malformed counts peers with malformed messages. TimedOut counts those that stopped during the
	// exchange. Busy counts those that were refused because of the limits Handshakes and Backlog.
	Malformed, TimedOut, Busy uint64
}

// OOB makes connections over the hosts' own TCP. The initiator sends a request. The responder moves
// its queue pair to RTS and then replies; the initiator moves its own to RTS and sends ready. So
// neither side can send before the other can receive. The methods are safe for concurrent use.
type OOB struct {
	cfg      OOBConfig
	listener *net.TCPListener
	busy     chan struct{}  // has an element for each handshake in progress
	wg       sync.WaitGroup // the accept loop, and one goroutine for each handshake
	// ctx is cancelled by Close, which ends every dial that has no TCP connection yet.
	ctx    context.Context
	cancel context.CancelFunc

	mu       sync.Mutex // guards the fields below
	closed   bool
	services map[string]*listener
	conns    map[net.Conn]struct{} // all open connections, for Close
	stats    OOBStats
}

var _ Manager = (*OOB)(nil)

// NewOOB returns a manager. It listens if cfg has a listen address.
func NewOOB(cfg OOBConfig) (*OOB, error) {
	if cfg.Context == nil {
		return nil, errors.New("rdmacm: Context is required")
	}
	cfg.Port = cmp.Or(cfg.Port, DefaultPort)
	cfg.Handshakes = cmp.Or(cfg.Handshakes, defaultHandshakes)
	cfg.Backlog = cmp.Or(cfg.Backlog, defaultBacklog)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, defaultHandshakeTimeout)
	o := &OOB{cfg: cfg, services: make(map[string]*listener), conns: make(map[net.Conn]struct{}), busy: make(chan struct{}, max(cfg.Handshakes, 0))}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	if !cfg.Listen.IsValid() {
		return o, nil
	}
	l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(cfg.Listen))
	if err != nil {
		o.cancel()
		return nil, fmt.Errorf("rdmacm: %w", err)
	}
	o.listener = l
	o.wg.Go(o.acceptLoop)
	return o, nil
}

// Addr returns the address that peers dial; invalid if this manager does not listen.
func (o *OOB) Addr() netip.AddrPort {
	if o.listener == nil {
		return netip.AddrPort{}
	}
	return o.listener.Addr().(*net.TCPAddr).AddrPort()
}

func (o *OOB) Stats() OOBStats {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.stats
}

// Close ends listening, closes every TCP connection of the exchange, and waits for the goroutines.
// Queue pairs stay. A second Close does nothing.
func (o *OOB) Close() error {
	o.mu.Lock()
	first := !o.closed
	o.closed = true
	services := o.services
	o.services = nil
	o.mu.Unlock()
	o.cancel()
	var err error
	if first && o.listener != nil {
		err = o.listener.Close()
	}
	for _, l := range services {
		l.shut()
	}
	o.mu.Lock()
	for c := range o.conns {
		_ = c.Close() // the goroutine that uses the connection gets the error
	}
	o.mu.Unlock()
	o.wg.Wait()
	return err
}

// track registers an open TCP connection. It returns false if the manager is closed.
func (o *OOB) track(c net.Conn) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		_ = c.Close() // no other goroutine uses it yet
		return false
	}
	o.conns[c] = struct{}{}
	return true
}

// drop closes a TCP connection. The exchange is over, so an error of Close has no effect.
func (o *OOB) drop(c net.Conn) {
	o.mu.Lock()
	delete(o.conns, c)
	o.mu.Unlock()
	_ = c.Close()
}

func (o *OOB) count(f func(s *OOBStats)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(&o.stats)
}

// wall converts a deadline to a time for sockets, at most `limit` after the present time.
func (o *OOB) wall(deadline clock.Time, limit time.Duration) time.Time {
	left := limit
	if deadline != clock.Never {
		left = min(limit, deadline.Sub(o.cfg.Context.Runtime().Now()))
	}
	return time.Now().Add(left)
}

func send(c net.Conn, m message) error {
	_, err := c.Write(m.appendTo(nil))
	return err
}

// reject sends the reason of a refusal. Errors are ignored: the peer may have closed the
// connection.
func (o *OOB) reject(c net.Conn, reason string) { o.answer(c, reason, nil) }

// answer sends a reject message with private data of the service.
func (o *OOB) answer(c net.Conn, reason string, private []byte) {
	o.count(func(s *OOBStats) { s.Rejected++ })
	_ = c.SetDeadline(time.Now().Add(rejectTimeout)) // both calls fail if the peer has closed the connection
	_ = send(c, message{kind: kindReject, text: reason, private: private})
}

// explain converts an error of the socket to an error of this package, and counts it.
func (o *OOB) explain(op string, peer net.Addr, err error) error {
	o.mu.Lock()
	closed := o.closed
	o.mu.Unlock()
	var local *verbs.OpError
	switch {
	case err == nil || errors.Is(err, ErrRejected) || errors.As(err, &local):
		return err
	case closed:
		return verbs.Errorf(op, verbs.ErrClosed, "the manager was closed")
	case errors.Is(err, ErrProtocol):
		o.count(func(s *OOBStats) { s.Malformed++ })
		return fmt.Errorf("%s: %v: %w", op, peer, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		o.count(func(s *OOBStats) { s.TimedOut++ })
		return verbs.Errorf(op, verbs.ErrTimeout, "%v did not answer", peer)
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the peer closed the connection in the middle of the exchange")
	}
	return verbs.Errorf(op, verbs.ErrUnreachable, "%v: %v", peer, err)
}
