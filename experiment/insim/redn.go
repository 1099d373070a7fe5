package insim

import (
	"context"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/chains"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// chainSetUp is the time by which all connections have been made.
	chainSetUp = clock.Time(200 * time.Millisecond)
	// Values of chains.Config in the simulator: chainRounds is Rounds, chainRated is Rated,
	// chainSpan is Span.
	chainRounds, chainRated = 100, 600
	chainSpan               = 200 * time.Microsecond
)

// RedN runs programs of work requests and their baselines, between hosts whose switch takes no
// time.
func (p *Sim) RedN(ctx context.Context, l experiment.RedN) (out experiment.RedNResult, err error) {
	if l.Kind == experiment.ChainGets || l.Kind == experiment.ChainCrash {
		return p.table(ctx, l)
	}
	s, err := simrack.PassiveRack(chains.Service, 1, "", "", "")
	if err != nil {
		return out, err
	}
	model := p.Cost
	if l.Cost != "" {
		if model, err = costs.Builtin(l.Cost); err != nil {
			return out, err
		}
	}
	model = model.BackToBack()
	rack, err := simrack.New(s, simrack.Options{Seed: 1, Cost: model, Cancelled: cancelled(ctx)})
	if err != nil {
		return out, err
	}
	defer rack.Close()
	srv, cli := rack.Host("ms0"), rack.Host("cn0")
	r := chains.New(chains.Config{
		Load: l, Server: srv.Addr(), Rounds: chainRounds, Rated: chainRated, Span: chainSpan,
		Doorbell: model.NIC.Doorbell, Completion: model.NIC.Completion,
		Ready: chainsReady, Failed: rack.Stop,
	})
	if r.Alone() {
		srv.Go(chains.Service, false, func(ctx verbs.Context) { rack.Stop(r.RunAlone(machineOf(srv, ctx))) })
		err = run(ctx, rack)
		return r.Result(), err
	}
	srv.Go(chains.Service, true, func(ctx verbs.Context) {
		rack.Stop(r.Serve(machineOf(srv, ctx), func(func() error) {}))
	})
	before, after := uint64(0), uint64(0)
	rack.At(chainSetUp, func() { before = srv.Counters().RingEntries })
	left := r.Load.Clients
	for i := range left {
		cli.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) {
			err := r.Client(machineOf(cli, ctx))
			if left--; left == 0 {
				after = srv.Counters().RingEntries
			}
			rack.Stop(err)
		})
	}
	err = run(ctx, rack)
	out = r.Result()
	out.Entries = float64(after-before) / float64(r.Requests())
	return out, err
}

// chainsReady is chains.Config.Ready: it waits until chainSetUp, when all clients have connected.
func chainsReady(rt verbs.Runtime) error {
	if rt.Now() >= chainSetUp {
		return fmt.Errorf("a client was ready only at %v, later than %v", rt.Now(), chainSetUp)
	}
	rt.Sleep(chainSetUp.Sub(rt.Now()))
	return nil
}

func machineOf(h *simrack.Host, ctx verbs.Context) chains.Machine {
	return chains.Machine{
		Context: ctx, Manager: h.Manager(ctx), Addr: h.Addr(),
		Alloc: func(n int) ([]byte, error) { return make([]byte, n), nil },
	}
}
