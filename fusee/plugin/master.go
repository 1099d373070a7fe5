package plugin

import (
	"cmp"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
)

// MasterConfig asks a host to run the master of a table, or its standby. It is the body of a POST
// request to PathMaster.
type MasterConfig struct {
	// Servers are the names of the memory servers.
	Servers []string `json:"servers"`
	// Lease is how long a memory server may be silent; 0 means 500 ms.
	Lease time.Duration `json:"lease,omitempty"`
	// Standby is true if this host must run the standby of a master that another host runs. Paired
	// is true if the master has a standby. A paired master that is replaced becomes the standby of
	// its successor. If the master runs already, it is paired from this request on.
	Standby bool `json:"standby,omitempty"`
	Paired  bool `json:"paired,omitempty"`
}

// master holds the master or the standby that the host runs. ctx is nil if the host runs none.
type master struct {
	mu  sync.Mutex // guards the fields below
	ctx verbs.Context
	*reign
}

// reign is the state of a master or standby that runs.
type reign struct {
	host  string
	lease time.Duration
	// generation identifies the table (layout.Superblock).
	generation uint64
	// ended is closed when the master or standby has ended.
	ended chan struct{}
	// paired is MasterConfig.Paired, or true if the host began with a standby.
	paired atomic.Bool
	// master is the master that has charge of the table; nil while the host runs a standby.
	master atomic.Pointer[fusee.Master]
}

// over reports whether the master or standby has ended.
func (r *reign) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// confirm returns nil if the host runs what the request `in` asks for: a master, or its standby.
// Another master may have replaced the host's master while the host was hung, and the host's master
// may not have noticed it yet. So confirm waits until the host's master has reached all members, or
// has noticed that it was replaced. ended is true if the master or standby has ended.
func (r *reign) confirm(in MasterConfig) (ended bool, err error) {
	patience := confirmLimit(r.lease)
	m, since := r.now()
	for end := time.Now().Add(patience); !r.over(); time.Sleep(time.Millisecond) {
		now, rounds := r.now()
		switch {
		case now != m: // the standby has become the master, or the master was replaced
			m, since = now, rounds
		case m == nil && in.Standby:
			return false, nil
		case m == nil:
			return false, r.refuse("runs the standby of the master, and takes its place if it is dead: name another host with --master")
		case rounds >= since+2 && !in.Standby:
			if in.Paired {
				r.paired.Store(true)
			}
			return false, nil
		case rounds >= since+2:
			return false, r.refuse("runs the master, not its standby: name another host with --standby")
		case time.Now().After(end):
			return false, control.Errorf(http.StatusBadGateway, "the master on %s has not reached all members of the table within %v: see `rdmalab status` "+
				"for its link and the memory servers, or name another host with --master", r.host, patience)
		}
	}
	return true, nil
}

// confirmLimit is how long confirm waits at most.
func confirmLimit(lease time.Duration) time.Duration { return max(store.Patience, 4*lease) }

// now returns the master that has charge of the table, and its rounds (see fusee.Master.Rounds).
func (r *reign) now() (m *fusee.Master, rounds uint64) {
	if m = r.master.Load(); m != nil {
		rounds = m.Rounds()
	}
	return m, rounds
}

// refuse returns an error for a request that does not fit what this host runs. `what` says what the
// host runs and what the user can do; as an alternative, the error offers to end master and
// standby.
func (r *reign) refuse(what string) error {
	return control.Errorf(http.StatusConflict, "%s %s, or end both with `rdmalab %s stop`, which keeps the table, and start again", r.host, what, Store.Name)
}

// current returns the reign on this host, or nil if the host runs none or it has ended.
func (m *master) current() *reign {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.reign.over() {
		return nil
	}
	return m.reign
}

// Lease is the lease of the master or standby that a host runs; 0 means that it runs none.
type Lease struct {
	Lease time.Duration `json:"leaseNs"`
}

func (n *node) lease() (l Lease) {
	if r := n.master.current(); r != nil {
		l.Lease = r.lease
	}
	return l
}

// rule starts the master or its standby in the host's daemon. If one of them is running already,
// rule returns an error unless it is the one that the request asks for.
func (n *node) rule(in MasterConfig) error {
	for {
		if r := n.master.current(); r != nil {
			if ended, err := r.confirm(in); !ended {
				return err
			}
		}
		if opened, err := n.open(in); opened || err != nil {
			return err
		}
	}
}

// open starts the master of a table, or its standby, on this host. It does nothing if the host runs
// one already; one that has failed is replaced. opened is true if open has started one.
func (n *node) open(in MasterConfig) (opened bool, err error) {
	return opened, n.Host.Service(func() error {
		n.master.mu.Lock()
		defer n.master.mu.Unlock()
		if n.master.ctx != nil {
			if !n.master.over() {
				return nil
			}
			_ = n.master.end() // the former master or standby has failed, and has logged why
		}
		v := n.Host.Context()
		cfg, err := n.Config(v, in.Servers)
		if err != nil {
			return errors.Join(err, v.Close())
		}
		c := (&Use{}).config(cfg)
		c.Lease = cmp.Or(in.Lease, fusee.DefaultLease)
		end := v.Runtime().Now().Add(store.Patience)
		var m *fusee.Master
		var b *fusee.Standby
		if in.Standby {
			b, err = fusee.OpenStandby(c, end)
		} else {
			m, err = fusee.OpenMaster(c, end)
		}
		if err != nil {
			return errors.Join(control.Errorf(http.StatusBadGateway, "the %s on %s: %v", in.role(), n.Host.Name(), err), v.Close())
		}
		r := &reign{host: n.Host.Name(), lease: c.Lease, ended: make(chan struct{})}
		if in.Standby {
			n.Host.Log().Info("the standby of a table's master is up", "memory", in.Servers)
			b.Counted = func() { n.Host.Log().Info("the master counts this standby") }
			r.generation = b.Super().Generation
		} else {
			r.generation = m.Super().Generation
		}
		r.paired.Store(in.Paired || in.Standby)
		r.master.Store(m)
		n.master.ctx, n.master.reign = v, r
		go n.serve(r, m, b, c, in)
		opened = true
		return nil
	})
}

// role returns in words what the host runs.
func (in *MasterConfig) role() string {
	if in.Standby {
		return "standby of the master"
	}
	return "master"
}

// watch makes the host log what master m does. It is called when m has taken charge of the store.
func (n *node) watch(m *fusee.Master, in MasterConfig) {
	m.Changed = func(was, now layout.View) {
		n.Host.Log().Warn("the members of the table have changed", "epoch", now.Epoch(), "before", in.names(was), "now", in.names(now))
	}
	m.Recovered = func(owner uint32) {
		n.Host.Log().Warn("a client was silent for its lease, and its blocks are left to others", "client", owner)
	}
	m.Failed = func(err error) {
		n.Host.Log().Warn("silent clients are not recovered, or a server is not filled yet; the master tries it again", "error", err)
	}
	m.Filling = func(server int) {
		n.Host.Log().Warn("a memory server has come back, and the master fills it", "server", in.Servers[server])
	}
	m.Counted = func(standby uint32) {
		if standby == 0 {
			n.Host.Log().Warn("the standby was silent, and the master goes on alone")
		} else {
			n.Host.Log().Info("the master has a standby", "client", standby)
		}
	}
	n.Host.Log().Info("the master of a table is up", "memory", in.Servers, "members", in.names(m.View()))
}

// names returns the names of the members of a view.
func (in *MasterConfig) names(v layout.View) (out []string) {
	for i, name := range in.Servers {
		if v.Has(i) {
			out = append(out, name)
		}
	}
	return out
}

// serve runs the master m or its standby b until it is closed or fails.
func (n *node) serve(r *reign, m *fusee.Master, b *fusee.Standby, cfg fusee.Config, in MasterConfig) {
	defer close(r.ended)
	again := func() bool {
		if r.paired.Load() {
			n.Host.Log().Warn("another master has taken this one's place; this host opens its standby", "memory", in.Servers)
			r.master.Store(nil)
			return true
		}
		return false
	}
	err := fusee.Reign(cfg, m, b, again, func(m *fusee.Master) {
		r.master.Store(m)
		n.watch(m, in)
	})
	if err != nil {
		n.Host.Log().Warn("the master of a table, or its standby, has ended", "error", err)
	}
}

// end ends the master or the standby that the host runs, if any. The caller holds mu. The store
// keeps its members.
func (m *master) end() error {
	if m.ctx == nil {
		return nil
	}
	err := m.ctx.Close()
	<-m.ended
	m.ctx = nil
	return err
}

// leave ends the master or the standby that the host runs, if it belongs to another table than the
// one with this generation.
func (m *master) leave(generation uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx == nil || m.generation == generation {
		return nil
	}
	return m.end()
}

// Crash implements store.Node: the host forgets the table, and the master or standby on it ends.
func (n *node) Crash() error {
	n.master.mu.Lock()
	defer n.master.mu.Unlock()
	return errors.Join(n.master.end(), n.Passive.Crash())
}

// NICGone implements store.Node: the master ends, because it cannot work without connections.
func (n *node) NICGone() error {
	n.master.mu.Lock()
	defer n.master.mu.Unlock()
	return n.master.end()
}
