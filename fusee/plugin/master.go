package plugin

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
)

// MasterConfig asks a host to run the master of a table. It is the body of PathMaster.
type MasterConfig struct {
	// Servers are the names of the memory servers.
	Servers []string `json:"servers"`
	// Lease is how long a memory server may be silent; 0 means 500 ms.
	Lease time.Duration `json:"lease,omitempty"`
	// Standby is true if this host must run the standby of a master that another host runs. Paired
	// is true if the master has a standby. A paired master that is replaced becomes the standby of
	// its successor.
	Standby bool `json:"standby,omitempty"`
	Paired  bool `json:"paired,omitempty"`
}

// master holds the master or the standby that the host runs. ctx is nil if the host runs none.
type master struct {
	mu  sync.Mutex // guards the fields below
	ctx verbs.Context
	// ended is closed when the master or standby has ended.
	ended chan struct{}
}

// rule starts the master or its standby in the host's daemon. It does nothing if one of them is
// running.
func (n *node) rule(in MasterConfig) error {
	return n.Host.Service(func() error {
		n.master.mu.Lock()
		defer n.master.mu.Unlock()
		if n.master.ctx != nil {
			select {
			case <-n.master.ended:
				_ = n.master.end() // the former master or standby has failed, and has logged why
			default:
				return nil
			}
		}
		v := n.Host.Context()
		cfg, err := n.Config(v, in.Servers)
		if err != nil {
			return errors.Join(err, v.Close())
		}
		c := (&Use{}).config(cfg)
		c.Lease = in.Lease
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
		if in.Standby {
			n.Host.Log().Info("the standby of a table's master is up", "memory", in.Servers)
			b.Counted = func() { n.Host.Log().Info("the master counts this standby") }
		}
		n.master.ctx, n.master.ended = v, make(chan struct{})
		go n.serve(m, b, c, in, n.master.ended)
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

// serve runs the master or its standby until it is closed or fails.
func (n *node) serve(m *fusee.Master, b *fusee.Standby, cfg fusee.Config, in MasterConfig, ended chan struct{}) {
	defer close(ended)
	err := fusee.Reign(m, b, cfg, in.Standby || in.Paired, func(m *fusee.Master) { n.watch(m, in) })
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
