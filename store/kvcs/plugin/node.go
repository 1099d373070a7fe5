package plugin

import (
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"sync"
	"time"

	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

// part is a coordinator or a replica that a host runs, with its process on the host's 1RMA NIC.
type part struct {
	*loop
	proc  *onermahost.Process
	shape kvcs.Shape
}

func (p *part) end() error {
	if p == nil {
		return nil
	}
	p.proc.Close() // ends a REKEY in progress
	return p.loop.close()
}

// discard frees a part that was opened but cannot run. It returns the reason why, joined with the
// error of closing the part.
func (p *part) discard(why error) error {
	p.proc.Close()
	return errors.Join(why, p.conn.Close())
}

// node is the part of the store kvcs in the daemon of a host.
type node struct {
	host  store.Host
	total totals // what closed clients have done

	mu    sync.Mutex // guards the fields below
	coord *kvcs.Coordinator
	// coordinator and replica are nil if the host runs none. server is the machine of the replica.
	coordinator, replica *part
	server               *kvcs.Server
	of                   netip.Addr // the replica's coordinator
	// instances is how many instances (kvcs.Server.Starts) all replicas of the host that have ended
	// had together, since the host's daemon was started.
	instances uint64
	clients   *clients // nil before the first client is opened, and after a crash
}

func newNode(h store.Host) store.Node { return &node{host: h} }

// onerma returns the host's 1RMA NIC, and the method Awake of the host (see store.OneRMAHost).
func (n *node) onerma() (*onermahost.NIC, func(), error) {
	h, ok := n.host.(store.OneRMAHost)
	if !ok {
		return nil, nil, control.Errorf(http.StatusBadRequest, "clients of kvcs run only in the daemons of hosts with a 1RMA NIC, as for `rdmalab kvcs get`, and not in other programs; `rdmalab sim kvcs` runs it in virtual time")
	}
	s, err := h.OneRMA()
	return s, h.Awake, err
}

func (n *node) Routes(m *control.Mux) {
	type none = struct{}
	control.Handle(m, "POST "+Store.Path(store.PathStart), func(_ *http.Request, in request) (info, error) { return n.start(in) })
	control.Handle(m, "POST "+Store.Path(store.PathStop), func(*http.Request, none) (none, error) { return none{}, n.Crash() })
	control.Handle(m, "POST "+Store.Path(pathStat), func(*http.Request, none) (hostStat, error) { return n.stat(), nil })
}

// start starts a coordinator or a replica, unless the host runs it already.
func (n *node) start(in request) (out info, err error) {
	if err := checkShape(in.Shape); err != nil {
		return out, control.Errorf(http.StatusBadRequest, "%v", err)
	}
	s, awake, err := n.onerma()
	if err != nil {
		return out, err
	}
	return out, n.host.Service(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if in.Coordinator != "" {
			return n.startReplica(s, awake, &in)
		}
		if n.coordinator != nil && !in.Fresh {
			out.Shape = n.coordinator.shape
			return nil
		}
		err := n.startCoordinator(s, awake, in.Shape)
		out.Shape, out.Made = in.Shape, true
		return err
	})
}

// startCoordinator starts a coordinator with an empty table. It ends a coordinator that runs, and
// with it that coordinator's store. The caller holds mu.
func (n *node) startCoordinator(s *onermahost.NIC, awake func(), shape kvcs.Shape) error {
	if err := n.endCoordinator(); err != nil {
		return err
	}
	p, err := n.open(s, awake)
	if err != nil {
		return err
	}
	var seed [32]byte
	_, _ = cryptorand.Read(seed[:]) // it never fails
	c, err := kvcs.NewCoordinator(kvcs.CoordinatorConfig{
		Addr: s.Addr(), PID: p.proc.PID(), Shape: shape, Rand: rand.New(rand.NewChaCha8(seed)), RTT: s.Status().RTT,
	})
	if err != nil {
		return p.discard(err)
	}
	p.Machine, p.shape, p.rekeyed = c, shape, c.Rekeyed
	p.rekey = func(k *kvcs.Rekey) nic.Status { return rekey(p.proc, k) }
	p.run()
	n.coord, n.coordinator = c, p
	n.host.Log().Info("the coordinator of kvcs is up", "shape", shape)
	return nil
}

func rekey(p *onermahost.Process, k *kvcs.Rekey) nic.Status {
	to := onermahost.Keyed(k.Target, k.Region, onerma.KeyLen, onerma.Rekey, nic.NewCipher(k.Key))
	s, ok := statusOf(p.Rekey(to, k.NewKey))
	if !ok {
		time.Sleep(maxPause) // the NIC is down, or does not know the target: pause before the next REKEY
	}
	return s
}

// statusOf returns the status with which an operation has ended. ok is false if the NIC has not
// executed it: the status is nic.Timeout then.
func statusOf(err error) (s nic.Status, ok bool) {
	var failed *onermahost.StatusError
	switch {
	case err == nil:
		return nic.OK, true
	case errors.As(err, &failed):
		return failed.Status, true
	}
	return nic.Timeout, false
}

// startReplica starts a replica, unless the host runs one with this coordinator and this shape. The
// caller holds mu.
func (n *node) startReplica(s *onermahost.NIC, awake func(), in *request) error {
	to, err := n.host.Address(in.Coordinator)
	switch {
	case err != nil:
		return err
	case n.replica != nil && n.of == to && n.replica.shape == in.Shape:
		return nil
	case to == s.Addr():
		return control.Errorf(http.StatusConflict, "%s runs the coordinator: a replica needs another host", n.host.Name())
	}
	if err := n.endReplica(); err != nil {
		return err
	}
	p, err := n.open(s, awake)
	if err != nil {
		return err
	}
	r, err := p.proc.Register(make([]byte, in.Shape.Bytes()), verbs.LocalWrite|verbs.RemoteRead)
	if err != nil {
		return p.discard(err)
	}
	server, err := kvcs.NewServer(kvcs.ServerConfig{
		Coordinator: netip.AddrPortFrom(to, kvcs.UDPPort), Shape: in.Shape, Memory: memory{r}, RTT: s.Status().RTT,
		First: uint64(s.Status().Incarnation)<<32 + n.instances + 1,
		Lend: func() (id nic.RegionID, k nic.Key, err error) {
			_, _ = cryptorand.Read(k[:]) // it never fails
			return r.ID(), k, r.SetKey(k)
		},
	})
	if err != nil {
		return p.discard(err)
	}
	p.Machine, p.shape = server, in.Shape
	p.run()
	n.server, n.replica, n.of = server, p, to
	n.host.Log().Info("a replica of kvcs is up", "coordinator", to)
	return nil
}

// open makes a part (what a coordinator and a replica have in common): a UDP socket, and a process
// on the NIC s. The caller holds mu.
func (n *node) open(s *onermahost.NIC, awake func()) (*part, error) {
	conn, err := listen(s.Addr())
	if err != nil {
		return nil, fmt.Errorf("kvcs: %w", err)
	}
	p, err := s.Open(onermahost.ProcessConfig{Slots: 1, Gate: awake})
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &part{loop: &loop{conn: conn, now: s.Now, awake: awake}, proc: p}, nil
}

type memory struct{ *onermahost.Region }

func (m memory) Load(b []byte, at int) { _ = m.ReadAt(b, at) } // the table is within the region

func (m memory) Store(b []byte, at int) { _ = m.WriteAt(b, at) } // the table is within the region

// endCoordinator ends the coordinator. The caller holds mu.
func (n *node) endCoordinator() error {
	err := n.coordinator.end()
	n.coord, n.coordinator = nil, nil
	return err
}

// endReplica ends the replica. The caller holds mu.
func (n *node) endReplica() error {
	err := n.replica.end()
	if n.replica != nil {
		n.instances += n.server.Starts()
	}
	n.server, n.replica = nil, nil
	return err
}

// Crash implements store.Node: the table of a coordinator is lost.
func (n *node) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	errs := []error{n.endCoordinator(), n.endReplica()}
	if n.clients != nil {
		errs = append(errs, n.clients.close())
		n.clients = nil
	}
	return errors.Join(errs...)
}

// NICGone implements store.Node. It calls Crash, because the keys and regions of the NIC's ended
// incarnation are not valid any more.
func (n *node) NICGone() error { return n.Crash() }

func (n *node) Status() store.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return store.Status{Up: n.coordinator != nil || n.replica != nil, Service: Store.Name}
}

func (n *node) Clients(o store.ClientOptions) (func(verbs.Context) store.Clients, error) {
	addr, err := n.host.Address(o.Server)
	if err != nil {
		return nil, err
	}
	s, awake, err := n.onerma()
	if err != nil {
		return nil, err
	}
	return func(verbs.Context) store.Clients {
		return store.Opener(func(deadline clock.Time) (kv.Store, error) {
			c, err := n.process(s, awake)
			if err != nil {
				return nil, err
			}
			return store.Opened(c.open(addr, s.Status().RTT, rand.Uint64(), deadline))
		})
	}, nil
}

// process returns the process of the host's clients. It opens the process if there is none.
func (n *node) process(s *onermahost.NIC, awake func()) (c *clients, err error) {
	return c, n.host.Service(func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.clients == nil {
			if n.clients, err = newClients(s, awake, &n.total); err != nil {
				n.clients = nil
				return err
			}
		}
		c = n.clients
		return nil
	})
}
