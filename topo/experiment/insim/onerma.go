package insim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	onerma "github.com/rdmalab/rdmalab/onerma/wire"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// The paper's testbed: links of 100 Gbit/s and a round trip of 5 µs, of which each link has a quarter
// without the time of its bytes.
const (
	soloRTT                    = 5 * time.Microsecond
	soloRate                   = 100_000_000_000
	soloDelay                  = soloRTT/4 - 250*time.Nanosecond
	soloSlots, soloDemandSlots = 256, 512
	// soloFrame is the length of a frame with the data of an operation.
	soloFrame = onerma.MaxOp + onerma.Overhead + 18
	// soloChunk is the size of an operation, and of the transfers of a flow that never ends.
	soloChunk  = onerma.MaxOp
	soloMemory = 1 << 20
	soloSmall  = 64
	// soloEvents bounds a simulation.
	soloEvents = 400_000_000
)

// soloRack is hosts with 1RMA NICs behind a switch.
type soloRack struct {
	net   *sim.Net
	hosts []*soloHost
	rand  *rand.Rand
	err   error
}

// soloHost is a host: its NIC, an executor, and what its flows have measured.
type soloHost struct {
	rack   *soloRack
	addr   netip.Addr
	nic    *nic.NIC
	m      *executor.Machine
	exec   *executor.Executor
	portal *nic.Portal
	region *nic.Region
	node   sim.NodeID
	keys   map[int]*nic.Cipher // of READs, by the number of the target
	flows  []*soloFlow
}

// soloFlow is transfers of one host; the tag of a transfer is the number of its flow.
type soloFlow struct {
	host   *soloHost
	number int
	to     int // -1: another host at random for each transfer
	bytes  int
	again  bool // a transfer that has ended is followed by the next
	// from is when measuring begins. moved counts bytes, took has the times, retries counts operations
	// that were tried again, since then.
	from    clock.Time
	moved   int
	retries int
	ended   int
	took    []time.Duration
}

func soloAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(1 + i)}) }

func soloMAC(a netip.Addr) (wire.MAC, bool) {
	b := a.As4()
	return wire.MAC{2, 0, 0, 0, b[2], b[3]}, true
}

// newSoloRack makes a rack of n hosts for a load.
func newSoloRack(ctx context.Context, n int, l *experiment.OneRMA) (*soloRack, error) {
	r := &soloRack{net: sim.New(sim.Config{MaxEvents: soloEvents, Cancelled: cancelled(ctx)}), rand: rand.New(rand.NewPCG(1, 15))}
	sw, err := pipeline.New(pipeline.Config{Ports: n, Program: forward.Program{}})
	if err != nil {
		return nil, err
	}
	box := r.net.Add("switch", sw)
	for i := range n {
		h, err := r.host(i, l)
		if err != nil {
			return nil, err
		}
		var rules []fault.Rule
		if l.Jitter > 0 {
			rules = []fault.Rule{{Link: h.addr.String(), Kind: fault.Delay, Delay: l.Jitter / 2, Jitter: l.Jitter / 2}}
		}
		up := fault.NewInjector(1, h.addr.String(), fault.Up, rules)
		down := fault.NewInjector(1, h.addr.String(), fault.Down, rules)
		r.net.Connect(sim.LinkConfig{
			A: sim.End{Node: h.node}, B: sim.End{Node: box, Port: i}, Delay: soloDelay, Rate: soloRate, Up: up.Frame, Down: down.Frame,
		})
		r.hosts = append(r.hosts, h)
	}
	return r, nil
}

// host makes host i.
func (r *soloRack) host(i int, l *experiment.OneRMA) (h *soloHost, err error) {
	h = &soloHost{rack: r, addr: soloAddr(i), keys: make(map[int]*nic.Cipher)}
	random := rand.New(rand.NewPCG(uint64(i), 1))
	mac, _ := soloMAC(h.addr)
	h.nic, err = nic.New(nic.Config{
		MAC: mac, Addr: h.addr, Rand: random, Resolve: soloMAC, RTT: soloRTT, Rate: soloRate, Slots: soloSlots + soloDemandSlots, Window: l.Window, Threshold: l.Threshold,
	})
	if err != nil {
		return nil, err
	}
	table := mem.New(random, 0)
	pd, err := table.AllocPD()
	if err != nil {
		return nil, err
	}
	mr, err := table.Reg(pd, make([]byte, soloMemory), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	if err != nil {
		return nil, err
	}
	if h.region, err = h.nic.Register(mr); err != nil {
		return nil, err
	}
	if h.portal, err = h.nic.Open(nic.PID(1+i), soloSlots); err != nil {
		return nil, err
	}
	if h.exec, err = executor.New(executor.Config{RTT: soloRTT, First: l.First, TotalDelay: l.TotalDelay}, h.portal); err != nil {
		return nil, err
	}
	h.m = executor.NewMachine(h.nic)
	h.m.Add(h.exec)
	h.m.Failed = r.fail
	h.m.Ended = h.collect
	h.node = r.net.Add(h.addr.String(), h.m)
	return h, nil
}

// fail ends the simulation with an error.
func (r *soloRack) fail(err error) {
	if r.err == nil && err != nil {
		r.err = err
		r.net.Stop(err)
	}
}

// flow adds a flow to a host, which is measured from a time on.
func (h *soloHost) flow(to, bytes int, again bool, from clock.Time) *soloFlow {
	f := &soloFlow{host: h, number: len(h.flows), to: to, bytes: bytes, again: again, from: from}
	h.flows = append(h.flows, f)
	return f
}

// collect takes the results of a host's transfers, and begins the next ones of flows that go on.
func (h *soloHost) collect() {
	var out [16]executor.Result
	for {
		k := h.exec.Results(out[:])
		for i := range out[:k] {
			f := h.flows[out[i].Tag]
			if h.rack.net.Now() >= f.from {
				f.moved += out[i].Moved
				f.retries += out[i].Retries
				f.ended++
				f.took = append(f.took, out[i].Delay)
			}
			if f.again {
				f.begin(h.rack.net.Now())
			}
		}
		if k < len(out) {
			return
		}
	}
}

// begin starts a transfer. The caller has exclusive use of the host.
func (f *soloFlow) begin(now clock.Time) {
	h, r := f.host, f.host.rack
	to := f.to
	for to < 0 || r.hosts[to] == h {
		to = r.rand.IntN(len(r.hosts))
	}
	target := r.hosts[to]
	if h.keys[to] == nil {
		h.keys[to] = nic.NewCipher(target.region.Grant(h.addr, h.portal.PID(), onerma.Read))
	}
	r.fail(h.exec.Start(now, executor.Transfer{
		Op: onerma.Read, Target: target.addr, Remote: target.region.ID(), Length: f.bytes, Local: h.region, Key: h.keys[to], Deadline: clock.Never, Tag: uint64(f.number),
	}))
}

// start starts a transfer from outside of the host's steps.
func (f *soloFlow) start() {
	now, _ := f.host.rack.net.Begin(f.host.node)
	f.begin(now)
	f.host.rack.net.End(f.host.node)
}

// endless starts a flow of READs whose demand is larger than a link.
func (r *soloRack) endless(from, to int, since clock.Time) *soloFlow {
	f := r.hosts[from].flow(to, soloChunk, true, since)
	for range 64 {
		f.start()
	}
	return f
}

// poisson calls f at random times, so often a second on average, until a time.
func (r *soloRack) poisson(rate float64, until clock.Time, f func()) {
	var next func()
	next = func() {
		at := r.net.Now().Add(time.Duration(r.rand.ExpFloat64() / rate * float64(time.Second)))
		if at < until {
			r.net.At(at, func() { f(); next() })
		}
	}
	next()
}

func (r *soloRack) run(d time.Duration) error {
	err := r.net.RunUntil(r.net.Now().Add(d))
	return errors.Join(err, r.err)
}

// share returns the part of the line rate at which frames reach hosts during d.
func (r *soloRack) share(d time.Duration, hosts ...int) ([]float64, error) {
	before := make([]uint64, len(hosts))
	for i, h := range hosts {
		before[i] = r.hosts[h].nic.Stats().ReceivedBytes
	}
	err := r.run(d)
	out := make([]float64, len(hosts))
	for i, h := range hosts {
		out[i] = float64(r.hosts[h].nic.Stats().ReceivedBytes-before[i]) * 8 / d.Seconds() / soloRate
	}
	return out, err
}

// OneRMA runs a load of 1RMA NICs.
func (p *Sim) OneRMA(ctx context.Context, l experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	switch l.Kind {
	case experiment.SoloRamp:
		out, err = soloRamp(ctx, &l)
	case experiment.SoloBeside:
		out, err = soloBeside(ctx, &l)
	case experiment.SoloDemand:
		out, err = soloDemand(ctx, &l)
	case experiment.SoloRandom:
		out, err = soloRandom(ctx, &l)
	case experiment.SoloFailover:
		out, err = soloFailover(ctx, &l)
	default:
		return out, fmt.Errorf("1RMA: load %q is not known", l.Kind)
	}
	if errors.Is(err, sim.ErrCancelled) {
		err = ctx.Err()
	}
	return out, err
}

// soloRamp measures how soon a flow has the line rate, and how soon a second client of the same
// server has its share.
func soloRamp(ctx context.Context, l *experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	r, err := newSoloRack(ctx, 3, l)
	if err != nil {
		return out, err
	}
	const line, fair, longest = 0.9, 0.8, 2000 // longest: of round trips
	r.endless(0, 2, 0)
	for n := 2; n <= longest && out.Ramp == 0; n += 2 {
		got, err := r.share(2*soloRTT, 0)
		if err != nil {
			return out, err
		}
		if got[0] >= line {
			out.Ramp = float64(n)
		}
	}
	if err := r.run(80 * soloRTT); err != nil {
		return out, err
	}
	r.endless(1, 2, 0)
	for n := 5; n <= longest && out.Fair == 0; n += 5 {
		got, err := r.share(5*soloRTT, 0, 1)
		if err != nil {
			return out, err
		}
		if min(got[0], got[1]) >= fair*max(got[0], got[1]) {
			out.Fair = float64(n)
		}
	}
	return out, nil
}

// soloBeside measures READs of 64 bytes, 10,000 a second, beside one large transfer between the same
// hosts.
func soloBeside(ctx context.Context, l *experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	r, err := newSoloRack(ctx, 2, l)
	if err != nil {
		return out, err
	}
	if l.Large > 0 {
		r.hosts[0].flow(1, l.Large, true, 0).start()
	}
	warm := 200 * soloRTT
	if err := r.run(warm); err != nil {
		return out, err
	}
	span := l.Span
	small := r.hosts[0].flow(1, soloSmall, false, r.net.Now())
	r.poisson(10_000, r.net.Now().Add(span), small.start)
	err = r.run(span + 100*soloRTT)
	out.Times(small.took)
	return out, err
}

// soloDemand measures what a server's clients get that each demand a share of the line rate, without
// congestion control, as in the simulations of the paper. What fails is shed, and not tried again.
func soloDemand(ctx context.Context, l *experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	r, err := newSoloRack(ctx, l.Hosts+1, l)
	if err != nil {
		return out, err
	}
	warm := 300 * soloRTT
	until := clock.Time(0).Add(warm + l.Span)
	list := make([]*soloDemander, l.Hosts)
	for i := range list {
		if list[i], err = r.hosts[i].demand(r.hosts[l.Hosts], clock.Time(0).Add(warm), until); err != nil {
			return out, err
		}
		r.poisson(l.Load*soloRate/8/soloFrame, until, list[i].issue)
	}
	if err := r.run(warm + l.Span + 100*soloRTT); err != nil {
		return out, err
	}
	var took []time.Duration
	var ended [nic.DispatchTimeout + 1]int
	for _, d := range list {
		took = append(took, d.took...)
		for i, n := range d.ended {
			ended[i] += n
		}
	}
	all := 0
	for _, n := range ended {
		all += n
	}
	share := func(n int) float64 { return float64(n) / float64(max(1, all)) }
	out.Goodput = float64(ended[nic.OK]) * soloChunk * 8 / l.Span.Seconds() / soloRate
	out.Retried, out.Dispatch = share(all-ended[nic.OK]), share(ended[nic.DispatchTimeout])
	out.Times(took)
	return out, nil
}

// soloDemander issues READs at a portal of its own.
type soloDemander struct {
	host        *soloHost
	portal      *nic.Portal
	target      *soloHost
	key         *nic.Cipher
	from, until clock.Time // when commands must end that are counted
	ended       [nic.DispatchTimeout + 1]int
	took        []time.Duration // of those that are OK
}

func (h *soloHost) demand(target *soloHost, from, until clock.Time) (d *soloDemander, err error) {
	d = &soloDemander{host: h, target: target, from: from, until: until}
	if d.portal, err = h.nic.Open(nic.PID(1000), soloDemandSlots); err != nil {
		return nil, err
	}
	d.key = nic.NewCipher(target.region.Grant(h.addr, d.portal.PID(), onerma.Read))
	h.m.Ended = d.collect
	return d, nil
}

// issue issues a READ. Without a free slot, the READ is shed as if it had waited too long.
func (d *soloDemander) issue() {
	net := d.host.rack.net
	now, _ := net.Begin(d.host.node)
	if d.portal.Free() > 0 {
		d.host.rack.fail(d.portal.Issue(now, &nic.Command{
			Op: onerma.Read, Length: soloChunk, Target: d.target.addr, Remote: d.target.region.ID(), Key: d.key, Local: d.host.region,
		}))
	} else {
		d.count(now, nic.DispatchTimeout)
	}
	net.End(d.host.node)
}

func (d *soloDemander) count(now clock.Time, s nic.Status) bool {
	if now < d.from || now >= d.until {
		return false
	}
	d.ended[s]++
	return true
}

// collect takes the completions.
func (d *soloDemander) collect() {
	var out [16]nic.Completion
	for {
		k := d.portal.Poll(out[:])
		for i := range out[:k] {
			if d.count(d.host.rack.net.Now(), out[i].Status) && out[i].Status == nic.OK {
				d.took = append(d.took, out[i].TotalDelay)
			}
		}
		if k < len(out) {
			return
		}
	}
}

// soloRandom measures READs of 4 KB of all hosts from random others at a share of the line rate.
func soloRandom(ctx context.Context, l *experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	r, err := newSoloRack(ctx, l.Hosts, l)
	if err != nil {
		return out, err
	}
	warm := 200 * soloRTT
	until := clock.Time(0).Add(warm + l.Span)
	rate := l.Load * soloRate / 8 / soloFrame
	for _, h := range r.hosts {
		r.poisson(rate, until, h.flow(-1, soloChunk, false, clock.Time(0).Add(warm)).start)
	}
	if err := r.run(warm + l.Span + 200*soloRTT); err != nil {
		return out, err
	}
	var took []time.Duration
	retries := 0
	for _, h := range r.hosts {
		took = append(took, h.flows[0].took...)
		retries += h.flows[0].retries
	}
	out.Retried = float64(retries) / float64(max(1, len(took)+retries))
	out.Times(took)
	return out, nil
}
