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
	// Lease is how long a memory server may be silent; 0: 500 ms.
	Lease time.Duration `json:"lease,omitempty"`
}

// master is the master of a table, if the host runs one.
type master struct {
	mu  sync.Mutex // guards the fields below
	ctx verbs.Context
	// ended is closed when the master has ended.
	ended chan struct{}
}

// rule starts the master in the host's daemon, unless one runs.
func (n *node) rule(in MasterConfig) error {
	return n.Host.Service(func() error {
		n.master.mu.Lock()
		defer n.master.mu.Unlock()
		if n.master.ctx != nil {
			select {
			case <-n.master.ended:
				_ = n.master.end() // it has failed, and logged why
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
		m, err := fusee.OpenMaster(c, v.Runtime().Now().Add(store.Patience))
		if err != nil {
			return errors.Join(control.Errorf(http.StatusBadGateway, "the master on %s: %v", n.Host.Name(), err), v.Close())
		}
		n.master.ctx, n.master.ended = v, make(chan struct{})
		m.Changed = func(was, now layout.View) {
			n.Host.Log().Warn("the members of the table have changed", "epoch", now.Epoch(), "before", in.names(was), "now", in.names(now))
		}
		m.Recovered = func(owner uint32) {
			n.Host.Log().Warn("a client was silent for its lease, and its blocks are left to others", "client", owner)
		}
		m.Failed = func(err error) {
			n.Host.Log().Warn("silent clients are not recovered yet; the master tries it again", "error", err)
		}
		n.Host.Log().Info("the master of a table is up", "memory", in.Servers, "members", in.names(m.View()))
		go n.serve(m, n.master.ended)
		return nil
	})
}

// names are the names of the members of a view.
func (in *MasterConfig) names(v layout.View) (out []string) {
	for i, name := range in.Servers {
		if v.Has(i) {
			out = append(out, name)
		}
	}
	return out
}

// serve runs the master until it is closed or fails.
func (n *node) serve(m *fusee.Master, ended chan struct{}) {
	defer close(ended)
	if err := m.Run(); err != nil {
		n.Host.Log().Warn("the master of a table has ended", "error", err)
	}
}

// end ends the master, for a caller that holds mu. The members remain as they are.
func (m *master) end() error {
	if m.ctx == nil {
		return nil
	}
	err := m.ctx.Close()
	<-m.ended
	m.ctx = nil
	return err
}

// Crash implements store.Node: the host forgets the table, and its master ends.
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
