package rdmacm

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// CMConfig configures a CM.
type CMConfig struct {
	// Context is a context of the device whose queue pairs are connected; required. The queue pairs
	// may belong to other contexts of this device. Context must have a connection manager, as
	// contexts of package verbsengine do.
	Context verbs.Context
	// Backlog is how many requests of one service may wait for Accept. 0 means 64.
	Backlog int
	// FirstPSN, if not nil, returns for each connection the PSN that this side puts into its REQ or
	// REP: the first PSN that the peer must send. nil means that this PSN is random.
	FirstPSN func(*rand.Rand) wire.PSN
}

// CMStats counts the outcomes of the exchanges by which a CM makes connections or resolves datagram
// services. Rejected counts the refusals that this CM has sent, and those of datagram services that
// it has received. Accepted includes answers to SIDR requests.
type CMStats struct {
	Dialed, Accepted, Rejected, TimedOut uint64
	// Machine has the counters of the NIC's connection manager, which all its users share; zero
	// while the NIC is down.
	Machine cm.Stats
}

// CM makes connections by the datagrams of the connection manager on queue pair 1, as librdmacm and
// the kernel's rdma_cm do. The responder moves its queue pair to RTS and then replies; the
// initiator moves its own to RTS and sends RTU. A connection lasts until Disconnect, or until the
// queue pair of either side is destroyed or reset. Then the other side's queue pair goes to ERROR.
//
// A service whose name is a number is the port with this number in RDMA-CM's TCP port space, where
// programs over librdmacm listen and dial. The private data of ports are padded with zeros, because
// the messages do not contain their length. Services with other names are only for programs of this
// project. Their private data have an exact length, and the connection has the smaller path MTU of
// both sides.
//
// Several threads of an application may call the methods at the same time. They must be threads of
// the Runtime of Context (goroutines on a rack), because the methods wait by it.
type CM struct {
	cfg CMConfig
	nic *verbsengine.ConnManager

	closed atomic.Bool

	mu        sync.Mutex // guards the fields below; a thread that holds it locks nothing else and does not wait
	listeners map[*listening]struct{}
	requests  map[*cmRequest]struct{} // requests that a listener's Accept has returned and that were not answered
	stats     CMStats
}

var _ Manager = (*CM)(nil)

// NewCM returns a manager that uses the connection manager of a NIC.
func NewCM(cfg CMConfig) (*CM, error) {
	if cfg.Context == nil {
		return nil, errors.New("rdmacm: Context is required")
	}
	ctx, ok := cfg.Context.(interface {
		ConnManager() *verbsengine.ConnManager
	})
	if !ok {
		return nil, fmt.Errorf("rdmacm: %w: this device has no connection manager that can be reached; use OOB", verbs.ErrNotSupported)
	}
	cfg.Backlog = cmp.Or(cfg.Backlog, defaultBacklog)
	return &CM{
		cfg: cfg, nic: ctx.ConnManager(), listeners: make(map[*listening]struct{}),
		requests: make(map[*cmRequest]struct{}),
	}, nil
}

func (m *CM) Stats() CMStats {
	m.mu.Lock()
	s := m.stats
	m.mu.Unlock()
	_ = m.nic.Step("stats", func(_ clock.Time, g *engine.GSI, _ *packetio.Batch) error { // fails only if the NIC is down, which then has no counters
		s.Machine = g.Stats()
		return nil
	})
	return s
}

// Close ends listening, refuses requests that have not been answered, and ends every wait of this
// manager. Connections stay. A second Close does nothing.
func (m *CM) Close() error {
	m.closed.Store(true)
	m.mu.Lock()
	listeners, requests := slices.Collect(maps.Keys(m.listeners)), slices.Collect(maps.Keys(m.requests))
	m.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, r := range requests {
		_ = r.Reject("the responder has ended") // fails if the request has just been answered
	}
	_ = m.nic.Step("close", func(_ clock.Time, g *engine.GSI, _ *packetio.Batch) error { // fails only if the NIC is down, which then has no waits
		g.Notify()
		return nil
	})
	return errors.Join(errs...)
}

func (m *CM) count(f func(s *CMStats)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(&m.stats)
}

// endpoint returns the values of qp, the queue pair of this side, that the peer needs for a
// connection.
func (m *CM) endpoint(qp verbs.QP, peer netip.Addr, p Params) (Endpoint, error) {
	e, err := LocalEndpoint(m.cfg.Context, qp, peer, p)
	if err == nil && m.cfg.FirstPSN != nil {
		e.PSN = m.cfg.FirstPSN(m.cfg.Context.Runtime().Rand())
	}
	e.RdAtomic = min(e.RdAtomic, maxDepth)
	return e, err
}
