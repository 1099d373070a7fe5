package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Sim is the platform in the simulator: an experiment.Platform.
type Sim struct {
	// Cost is the cost model: what NICs, links, switch and clients take, in virtual time.
	Cost *cost.Model
}

var _ experiment.Platform = (*Sim)(nil)

func (*Sim) On() string { return experiment.OnSim }

// Describe lists the numbers of the cost model that matter for experiments.
func (p *Sim) Describe() string {
	m := p.Cost
	if m == nil {
		return "no cost model: links and queues take time, NICs, switch and programs take none"
	}
	var b strings.Builder
	a, w := &m.NIC.Atomic, &m.NIC.Write
	fmt.Fprintf(&b, "model %s: atomics on one word %v/s in host memory, %v/s in device memory; of one queue pair %v/s and %v/s\n",
		m.Name, a.Word.Host, a.Word.Device, a.QP.Host, a.QP.Device)
	fmt.Fprintf(&b, "  WRITEs of one queue pair %v/s in host memory, %v/s in device memory; doorbell %v, completion %v, atomic %v, WRITE %v\n",
		w.QP.Host, w.QP.Device, m.NIC.Doorbell, m.NIC.Completion, a.Latency.Host, w.Latency.Host)
	fmt.Fprintf(&b, "  switch: %d cores, each rewrites %v/s and forwards %v/s, delay %v; links %v each way",
		m.Switch.Cores, m.Switch.Rewrite, m.Switch.Forward, m.Switch.Delay, m.Link.Delay)
	return b.String()
}

// model returns the cost model for a load: with a switch at line rate or without delay if the load
// requires that.
func (p *Sim) model(s *experiment.Switch) *cost.Model {
	m := p.Cost
	if s.LineRate {
		m = m.AtLineRate()
	}
	if s.Direct {
		direct := *m
		direct.Switch.Delay = 0
		m = &direct
	}
	return m
}

// mode returns the mode of the switch's rules; "" means that the switch only forwards.
func mode(s *experiment.Switch) string {
	if s.Action == "" || s.Action == experiment.Forward || s.Action == experiment.AsIs {
		return ""
	}
	return s.Mode0()
}

// cancelled returns the hook that ends a simulation when ctx ends.
func cancelled(ctx context.Context) func() bool { return func() bool { return ctx.Err() != nil } }

// newRack makes the rack of a rack file. Its simulation ends when ctx ends. A seed of 0 means 1.
func newRack(ctx context.Context, file string, opt simrack.Options) (*simrack.Rack, error) {
	return newRackWith(ctx, file, opt, experiment.Bulk{})
}

// newRackWith makes the rack of a rack file whose links congest as b says.
func newRackWith(ctx context.Context, file string, opt simrack.Options, b experiment.Bulk) (*simrack.Rack, error) {
	s, err := rackfile.Parse([]byte(file + bulkSwitch(b)))
	if err != nil {
		return nil, err
	}
	congest(s, &opt, b)
	opt.Seed, opt.Cancelled = cmp.Or(opt.Seed, 1), cancelled(ctx)
	return simrack.New(s, opt)
}

// start starts an application on a host. If f returns an error, the simulation ends.
func start(r *simrack.Rack, host, name string, f func(h *simrack.Host, ctx verbs.Context) error) {
	h := r.Host(host)
	h.Go(name, false, func(ctx verbs.Context) { r.Stop(f(h, ctx)) })
}

// startClients starts n applications, one for each client, on the hosts cn0 to cn(hosts-1) in turn.
func startClients(r *simrack.Rack, n, hosts int, f func(h *simrack.Host, ctx verbs.Context, id int) error) {
	for i := range n {
		start(r, fmt.Sprintf("cn%d", i%hosts), fmt.Sprintf("client%d", i), func(h *simrack.Host, ctx verbs.Context) error { return f(h, ctx, i) })
	}
}

// run runs a rack until the simulation or ctx ends.
func run(ctx context.Context, r *simrack.Rack) error {
	err := r.Run()
	if errors.Is(err, simnet.ErrCancelled) {
		return ctx.Err()
	}
	return err
}

// switchBytes returns how many bytes the switch has received from all hosts.
func switchBytes(r *simrack.Rack) (n uint64) {
	for _, h := range r.Hosts() {
		n += h.Ingress().RxBytes
	}
	return n
}
