package hostd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/guests"
)

// Machine is a host with all of its NICs. Each NIC is a Host of its own, with its own services, sockets
// and counters: a failure of one is none of the others. They live and end together.
type Machine struct {
	first   *Host
	further []*Host
}

// Run runs a host with its NICs until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	m, err := OpenMachine(cfg)
	if err != nil {
		return err
	}
	h := m.first
	h.log.Info("host is up", "name", h.self.Name, "role", h.self.Role, "port", fmt.Sprintf("%+v", h.port.Info()))
	<-ctx.Done()
	h.log.Info("host ends", "name", h.self.Name)
	return m.Close()
}

// OpenMachine starts a host with its NICs. It returns as soon as their control sockets answer; that of
// the host answers last.
func OpenMachine(cfg Config) (*Machine, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(guests.LogHandler(rackfile.Paths{Dir: cfg.Dir}, os.Stderr))
	}
	names, err := furtherNICs(cfg)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", cfg.Name, err)
	}
	m := &Machine{}
	for _, name := range names {
		c := cfg
		c.Name, c.Log = name, cfg.Log.With("nic", name)
		h, err := Open(c)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.further = append(m.further, h)
	}
	cfg.beside = m.further
	if m.first, err = Open(cfg); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// furtherNICs lists the NICs of a host behind its first one.
func furtherNICs(cfg Config) (names []string, err error) {
	rack, err := cfg.Reader.Load(rackfile.Paths{Dir: cfg.Dir})
	if err != nil {
		return nil, fmt.Errorf("rack description: %w", err)
	}
	for _, h := range rack.NICs(cfg.Name) {
		if h.IsNIC() {
			names = append(names, h.Name)
		}
	}
	return names, nil
}

// NICs returns the names of the host and of its further NICs.
func (m *Machine) NICs() []string {
	names := []string{m.first.self.Name}
	for _, h := range m.further {
		names = append(names, h.self.Name)
	}
	return names
}

// Exclusive runs f while all NICs of the host do nothing, and every thread that uses them waits.
func (m *Machine) Exclusive(f func()) {
	for _, h := range m.further {
		next := f
		f = func() { h.Exclusive(next) }
	}
	m.first.Exclusive(f)
}

// Close ends the host. The first NIC ends first, because its server uses the others for programs over
// librdmacm.
func (m *Machine) Close() error {
	var errs []error
	if m.first != nil {
		errs = append(errs, m.first.Close())
	}
	for _, h := range slices.Backward(m.further) {
		errs = append(errs, h.Close())
	}
	return errors.Join(errs...)
}

// nicWith returns the number of the further NIC that has an address, and 0 if none of them has it.
func (c *Config) nicWith(a netip.Addr) int {
	g := verbs.GIDOf(a)
	for i, h := range c.beside {
		if slices.Contains(h.base.Device().GIDs, g) {
			return i + 1
		}
	}
	return 0
}

// nicTowards returns the number of the NIC by which a host reaches a peer: the one in whose subnets the
// peer is, and else the first.
func nicTowards(r *rackfile.Rack, host *rackfile.Host, peer netip.Addr) int {
	for i, h := range r.NICs(host.Machine()) {
		v4, v6 := r.SubnetOf(h.NIC.Nth)
		if v4.Contains(peer) || v6.Contains(peer) {
			return i
		}
	}
	return 0
}
