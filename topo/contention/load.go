package contention

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// Load is one experiment: so many clients, each with one queue pair and one CAS under way, on one word of one server.
type Load struct {
	Clients int
	// Device puts the word into the memory of the server's NIC.
	Device bool
	// Mode is that of the rule under which the switch replaces the CAS, hard or paper; "": it forwards them.
	Mode string
	// Seed of the rack.
	Seed uint64
}

// Result is what came out.
type Result struct {
	// CAS completed a second, and those of them that changed the word.
	CAS, Succeeded float64
	// Replaced is the share of CAS that the server saw as something else.
	Replaced float64
	// Latency is the mean from the post to the poll that found the answer.
	Latency time.Duration
}

const (
	// warmUp is virtual time that is not counted, runTime what is.
	warmUp  = 200 * time.Microsecond
	runTime = 500 * time.Microsecond
	// setUp is when every connection has been made, those of the switch included.
	setUp = clock.Time(200 * time.Millisecond)
	// clientHosts is how many machines the clients share.
	clientHosts = 8
	patience    = time.Second

	service       = "contention"
	switchService = "memory"
	wordBytes     = 64
)

// run is an experiment in progress.
type run struct {
	Load
	rack *simrack.Rack

	done, won int
	waited    time.Duration
	counting  bool
	stop      clock.Time
}

// Run measures with model m.
func (l Load) Run(m *cost.Model) (Result, error) {
	s, err := simrack.PassiveRack("contention", clientHosts, l.Mode, switchService, "")
	if err != nil {
		return Result{}, err
	}
	r := &run{Load: l}
	r.stop = setUp.Add(warmUp + runTime)
	r.rack, err = simrack.New(s, simrack.Options{Seed: l.Seed, Cost: m, Datagrams: true})
	if err != nil {
		return Result{}, err
	}
	defer r.rack.Close()
	srv := r.rack.Host("ms0")
	lent := simrack.Passive{Bytes: wordBytes, Device: l.Device, Service: service}
	if l.Mode != "" {
		lent.Switch = switchService
	}
	srv.Go(service, true, func(ctx verbs.Context) { r.rack.Stop(srv.Lend(ctx, lent)) })
	for i := range l.Clients {
		h := r.rack.Host(fmt.Sprintf("cn%d", i%clientHosts))
		h.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) { r.rack.Stop(r.client(h, ctx, uint64(i+1))) })
	}
	var before uint64
	r.rack.At(setUp.Add(warmUp), func() { r.counting, before = true, srv.Counters().RxAtomicRequests })
	var atomics uint64
	r.rack.At(r.stop, func() { atomics = srv.Counters().RxAtomicRequests - before })
	if err := r.rack.Run(); err != nil {
		return Result{}, err
	}
	out := Result{CAS: float64(r.done) / runTime.Seconds(), Succeeded: float64(r.won) / runTime.Seconds()}
	if r.done > 0 {
		out.Latency = r.waited / time.Duration(r.done)
		out.Replaced = max(0, 1-float64(atomics)/float64(r.done))
	}
	return out, nil
}

// client swaps as fast as it is answered: it expects what it saw last, and puts a number of its own.
func (r *run) client(h *simrack.Host, ctx verbs.Context, id uint64) error {
	rt := ctx.Runtime()
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(4)
	if err != nil {
		return err
	}
	buf := make([]byte, 8)
	mr, err := pd.RegMR(buf, len(buf), verbs.LocalWrite)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return err
	}
	private, err := h.Manager(ctx).Dial(qp, r.rack.Host("ms0").Addr(), service, rdmacm.Params{}, nil, rt.Now().Add(patience))
	if err != nil {
		return err
	}
	wr := verbs.SendWR{Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, 8)}}
	if wr.RemoteAddr, wr.RKey, err = simrack.ParseMemory(private); err != nil {
		return err
	}
	rt.Sleep(setUp.Sub(rt.Now()))
	for n := uint64(1); rt.Now() < r.stop; n++ {
		wr.Swap = id<<32 | n
		if err := r.one(rt, cq, qp, &wr); err != nil {
			return err
		}
		prior := binary.NativeEndian.Uint64(buf)
		if prior == wr.CompareAdd {
			prior = wr.Swap
			if r.counting && rt.Now() < r.stop {
				r.won++
			}
		}
		wr.CompareAdd = prior
	}
	return nil
}

// one posts a CAS and spins until it is complete.
func (r *run) one(rt verbs.Runtime, cq verbs.CQ, qp verbs.QP, wr *verbs.SendWR) error {
	posted := rt.Now()
	if err := qp.PostSend(*wr); err != nil {
		return err
	}
	var wc [1]verbs.WC
	for {
		n, err := cq.Poll(wc[:])
		switch {
		case err != nil:
			return err
		case n == 0 && rt.Now() > posted.Add(patience):
			return fmt.Errorf("a CAS has no answer after %v", patience)
		case n == 0:
			continue
		case wc[0].Status != verbs.Success:
			return fmt.Errorf("a CAS failed: %v", wc[0].Status)
		}
		if now := rt.Now(); r.counting && now < r.stop {
			r.done++
			r.waited += now.Sub(posted)
		}
		return nil
	}
}
