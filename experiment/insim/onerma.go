package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// The network of the paper's testbed (soloRTT, soloRate, soloDelay), and sizes of the NICs and
// loads. A portal is a process's access to a 1RMA NIC; each of its command slots holds an operation
// until it ends. soloSlots is the number of slots of an executor's portal, soloDemandSlots that of a
// soloDemander's.
const (
	soloRTT                    = experiment.OneRMARTT
	soloRate                   = experiment.OneRMARate
	soloDelay                  = experiment.OneRMALinkDelay
	soloSlots, soloDemandSlots = 256, 512
	// soloFrame is the length of a frame with the data of an operation.
	soloFrame = onerma.MaxOp + onerma.Overhead + 18
	// soloChunk is the largest size of an operation in bytes, and the size of the transfers of an
	// endless flow.
	soloChunk  = onerma.MaxOp
	soloMemory = 1 << 20
	soloSmall  = 64
	// soloSmallRate is how many small READs (of soloSmall bytes) begin in a second.
	soloSmallRate = 10_000
	// soloEvents is the largest number of events in a simulation; one that needs more fails.
	soloEvents = 400_000_000
)

// soloRack is hosts with 1RMA NICs behind a switch.
type soloRack struct {
	net   *simnet.Net
	hosts []*soloHost
	rand  *rand.Rand
	err   error // the first error, which has ended the simulation
}

// soloHost is a host with its NIC, an executor and flows, which have the measured numbers.
type soloHost struct {
	soloNIC
	rack  *soloRack
	addr  netip.Addr
	node  simnet.NodeID
	keys  map[soloKey]*nic.Cipher // keys for regions of other hosts
	flows []*soloFlow
}

// soloNIC is a 1RMA NIC with a region, and one executor of transfers.
type soloNIC struct {
	nic    *nic.NIC
	m      *executor.Machine
	exec   *executor.Executor
	portal *nic.Portal
	region *nic.Region
}

// newSoloNIC makes the 1RMA NIC of host i. Its random numbers also choose the region's addresses.
func newSoloNIC(i int, cfg nic.Config, transfers executor.Config) (x soloNIC, err error) {
	if x.nic, err = nic.New(cfg); err != nil {
		return x, err
	}
	table := mem.New(cfg.Rand, 0)
	pd, err := table.AllocPD()
	if err != nil {
		return x, err
	}
	mr, err := table.Reg(pd, make([]byte, soloMemory), verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	if err != nil {
		return x, err
	}
	if x.region, err = x.nic.Register(mr); err != nil {
		return x, err
	}
	if x.portal, err = x.nic.Open(nic.PID(1+i), soloSlots); err != nil {
		return x, err
	}
	if x.exec, err = executor.New(transfers, x.portal); err != nil {
		return x, err
	}
	x.m = executor.NewMachine(x.nic)
	x.m.Add(x.exec)
	return x, nil
}

// results gives the results of transfers that have ended to f.
func (x *soloNIC) results(f func(r *executor.Result)) {
	var out [16]executor.Result
	for k := len(out); k == len(out); {
		k = x.exec.Results(out[:])
		for i := range out[:k] {
			f(&out[i])
		}
	}
}

// soloKey identifies a key of a host's 1RMA NIC by its use: the number of the target host, and the
// operation.
type soloKey struct {
	to int
	op onerma.Op
}

// soloFlow is a series of transfers that one host begins. The tag of a transfer is the number of
// its flow.
type soloFlow struct {
	host   *soloHost
	number int
	to     int // number of the target; -1: another host at random for each transfer
	bytes  int
	again  bool // true: when a transfer has ended, the next one begins
	// from is when measuring begins. Of the transfers that have ended since then, moved counts the
	// bytes, took has the times, and retries counts how often their operations were tried again.
	from    clock.Time
	moved   int
	retries int
	took    []time.Duration
	// op is the operation of the transfers; 0 means READ. done, if not nil, is called with each
	// result.
	op    onerma.Op
	until clock.Time // moved counts only before this time; 0 means that it always counts
	done  func(r *executor.Result)
}

func soloAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(1 + i)}) }

func soloMAC(a netip.Addr) (wire.MAC, bool) {
	b := a.As4()
	return wire.MAC{2, 0, 0, 0, b[2], b[3]}, true
}

// newSoloRack makes a rack of n hosts for a load.
func newSoloRack(ctx context.Context, n int, l *experiment.OneRMA) (*soloRack, error) {
	r := &soloRack{net: simnet.New(simnet.Config{MaxEvents: soloEvents, Cancelled: cancelled(ctx)}), rand: rand.New(rand.NewPCG(1, 15))}
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
		verdict := func(d fault.Dir) simnet.Verdict { return fault.NewInjector(1, h.addr.String(), d, rules).Frame }
		r.net.Connect(simnet.LinkConfig{
			A: simnet.End{Node: h.node}, B: simnet.End{Node: box, Port: i}, Delay: soloDelay, Rate: soloRate, Up: verdict(fault.Up), Down: verdict(fault.Down),
		})
		r.hosts = append(r.hosts, h)
	}
	return r, nil
}

func (r *soloRack) host(i int, l *experiment.OneRMA) (h *soloHost, err error) {
	h = &soloHost{rack: r, addr: soloAddr(i), keys: make(map[soloKey]*nic.Cipher)}
	mac, _ := soloMAC(h.addr)
	h.soloNIC, err = newSoloNIC(i, nic.Config{
		MAC: mac, Addr: h.addr, Rand: rand.New(rand.NewPCG(uint64(i), 1)), Resolve: soloMAC, RTT: soloRTT, Rate: soloRate, Slots: soloSlots + soloDemandSlots, Window: l.Window, Threshold: l.Threshold,
	}, executor.Config{RTT: soloRTT, First: l.First, TotalDelay: l.TotalDelay})
	if err != nil {
		return nil, err
	}
	h.m.Failed = r.fail
	h.m.Ended = h.collect
	h.node = r.net.Add(h.addr.String(), h.m)
	return h, nil
}

func (r *soloRack) fail(err error) {
	if r.err == nil && err != nil {
		r.err = err
		r.net.Stop(err)
	}
}

// flow adds a flow to a host. Transfers that end at the time `from` or later are measured.
func (h *soloHost) flow(to, bytes int, again bool, from clock.Time) *soloFlow {
	f := &soloFlow{host: h, number: len(h.flows), to: to, bytes: bytes, again: again, from: from}
	h.flows = append(h.flows, f)
	return f
}

// collect takes the results of a host's transfers, and begins the next ones of flows that go on.
func (h *soloHost) collect() {
	h.results(func(r *executor.Result) { h.flows[r.Tag].ended(r) })
}

func (f *soloFlow) ended(x *executor.Result) {
	now := f.host.rack.net.Now()
	if now >= f.from {
		if f.until == 0 || now < f.until {
			f.moved += x.Moved
		}
		f.retries += x.Retries
		f.took = append(f.took, x.Delay)
	}
	if f.done != nil {
		f.done(x)
	}
	if f.again {
		f.begin(now)
	}
}

// begin starts the flow's next transfer. It is called from a step of the host's node in the
// simulation.
func (f *soloFlow) begin(now clock.Time) {
	h, r := f.host, f.host.rack
	to := f.to
	for to < 0 || r.hosts[to] == h {
		to = r.rand.IntN(len(r.hosts))
	}
	target, op := r.hosts[to], cmp.Or(f.op, onerma.Read)
	id := soloKey{to, op}
	if h.keys[id] == nil {
		h.keys[id] = nic.NewCipher(target.region.Grant(h.addr, h.portal.PID(), op))
	}
	r.fail(h.exec.Start(now, executor.Transfer{
		Op: op, Target: target.addr, Remote: target.region.ID(), Length: f.bytes, Local: h.region, Key: h.keys[id], Deadline: clock.Never, Tag: uint64(f.number),
	}))
}

// start starts the flow's next transfer. Unlike begin, it is called outside of the host's steps.
func (f *soloFlow) start() {
	now, _ := f.host.rack.net.Begin(f.host.node)
	f.begin(now)
	f.host.rack.net.End(f.host.node)
}

// endless starts a flow of READs that never ends, with 64 transfers at a time: more than a link can
// carry in a round trip.
func (h *soloHost) endless(to int) *soloFlow {
	f := h.flow(to, soloChunk, true, 0)
	for range 64 {
		f.start()
	}
	return f
}

// timeline is the virtual time of a rack of 1RMA NICs (simnet.Net) or of RoCEv2 NICs (roceRack).
type timeline interface {
	Now() clock.Time
	At(at clock.Time, f func())
}

// poisson calls f at random times before the time `until`, on average `rate` times a second.
func poisson(t timeline, random *rand.Rand, rate float64, until clock.Time, f func()) {
	var next func()
	next = func() {
		at := t.Now().Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		if at < until {
			t.At(at, func() { f(); next() })
		}
	}
	next()
}

// soloGoodput returns the rate at which bytes have moved during span, as a share of the line rate.
func soloGoodput(bytes int, span time.Duration) float64 {
	return float64(bytes) * 8 / span.Seconds() / soloRate
}

func (r *soloRack) run(d time.Duration) error {
	err := r.net.RunUntil(r.net.Now().Add(d))
	return errors.Join(err, r.err)
}

// share runs the simulation for the time d. It returns the rate at which each of the given hosts
// has received frames, as a share of the line rate.
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

// soloLoads has the functions that measure loads of 1RMA NICs, by kind of load. roceLoads has those
// for RoCEv2 NICs on the same links.
var (
	soloLoads = map[string]soloLoad{
		experiment.SoloRamp: onSolo(3, (*soloRack).ramp), experiment.SoloBeside: onSolo(2, (*soloRack).beside), experiment.SoloDemand: onSolo(1, (*soloRack).demand),
		experiment.SoloRandom: onSolo(0, (*soloRack).random), experiment.SoloFailover: soloFailover, experiment.SoloGets: soloGets,
		experiment.SoloMixed: onSolo(0, (*soloRack).random), experiment.SoloSlots: onSolo(2, (*soloRack).inFlight), experiment.SoloRekey: soloRekey,
		experiment.SoloLocal: onSolo(3, (*soloRack).local), experiment.SoloClasses: soloClasses,
	}
	roceLoads = map[string]soloLoad{
		experiment.SoloBeside: onRoce(2, roceBeside), experiment.SoloRandom: onRoce(0, roceRandom), experiment.SoloGets: onRoce(failoverServers, roceGets),
		experiment.SoloMixed: onRoce(0, roceRandom), experiment.SoloSlots: onRoce(2, roceInFlight), experiment.SoloRekey: roceRekey, experiment.SoloClasses: soloClasses,
	}
)

type soloLoad func(context.Context, *experiment.OneRMA, *experiment.OneRMAResult) error

// onSolo returns the soloLoad that makes a soloRack and calls measure. The rack has `more` hosts in
// addition to those that the load names.
func onSolo(more int, measure func(*soloRack, *experiment.OneRMA, *experiment.OneRMAResult) error) soloLoad {
	return func(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
		r, err := newSoloRack(ctx, l.Hosts+more, l)
		if err != nil {
			return err
		}
		return measure(r, l, out)
	}
}

// onRoce does what onSolo does, with a roceRack.
func onRoce(more int, measure func(*roceRack, *experiment.OneRMA, *experiment.OneRMAResult) error) soloLoad {
	return func(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
		r, err := newRoceRack(ctx, l.Hosts+more, l.Way == experiment.WayPFC)
		if err != nil {
			return err
		}
		defer r.Close()
		if err = measure(r, l, out); err == nil && r.Queues(0) != nil {
			out.Pauses = float64(pausesOf(r.Rack))
		}
		return err
	}
}

// OneRMA runs a load of 1RMA NICs, or of RoCEv2 NICs on the same links.
func (p *Sim) OneRMA(ctx context.Context, l experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	list := soloLoads
	if l.Way == experiment.WayRoCE || l.Way == experiment.WayPFC {
		list = roceLoads
	}
	measure := list[l.Kind]
	if measure == nil || l.Way == experiment.WayPFC && (l.Kind == experiment.SoloRekey || l.Kind == experiment.SoloClasses) {
		return out, fmt.Errorf("1RMA: load %q by %q is not known", l.Kind, l.Way)
	}
	err = measure(ctx, &l, &out)
	if errors.Is(err, simnet.ErrCancelled) {
		err = ctx.Err()
	}
	return out, err
}

// ramp measures after how many round trips a flow has the line rate, and after how many a
// second client of the same server has its share.
func (r *soloRack) ramp(l *experiment.OneRMA, out *experiment.OneRMAResult) (err error) {
	r.hosts[0].endless(2)
	for n := experiment.OneRMALineStep; n <= soloLongest && out.Ramp == 0; n += experiment.OneRMALineStep {
		got, err := r.share(experiment.OneRMALineStep*soloRTT, 0)
		if err != nil {
			return err
		}
		if got[0] >= experiment.OneRMALine {
			out.Ramp = float64(n)
		}
	}
	if err := r.run(experiment.OneRMASecond * soloRTT); err != nil {
		return err
	}
	r.hosts[1].endless(2)
	out.Fair, err = soloFair(func() (float64, float64, error) {
		got, err := r.share(experiment.OneRMAFairStep*soloRTT, 0, 1)
		return got[0], got[1], err
	})
	return err
}

// beside measures READs of 64 bytes, 10,000 a second. Beside them there are large transfers
// between the same hosts, one after the other. Without l.Large there are only the small READs.
func (r *soloRack) beside(l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	if l.Large > 0 {
		r.hosts[0].flow(1, l.Large, true, 0).start()
	}
	warm := 200 * soloRTT
	if err := r.run(warm); err != nil {
		return err
	}
	span := l.Span
	small := r.hosts[0].flow(1, soloSmall, false, r.net.Now())
	poisson(r.net, r.rand, soloSmallRate, r.net.Now().Add(span), small.start)
	err := r.run(span + 100*soloRTT)
	out.Times(small.took)
	return err
}

// demand measures the goodput of l.Hosts clients of one server, without congestion control, as
// in the simulations of the paper. Each client begins READs at random times, whose rate is the
// share l.Load of the line rate. A READ that fails is shed: it is not tried again.
func (r *soloRack) demand(l *experiment.OneRMA, out *experiment.OneRMAResult) (err error) {
	warm := 300 * soloRTT
	until := clock.Time(0).Add(warm + l.Span)
	list := make([]*soloDemander, l.Hosts)
	for i := range list {
		if list[i], err = r.hosts[i].demand(r.hosts[l.Hosts], clock.Time(0).Add(warm), until); err != nil {
			return err
		}
		poisson(r.net, r.rand, l.Load*soloRate/8/soloFrame, until, list[i].issue)
	}
	if err := r.run(warm + l.Span + 100*soloRTT); err != nil {
		return err
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
	out.Goodput = soloGoodput(ended[nic.OK]*soloChunk, l.Span)
	out.Retried, out.Dispatch = share(all-ended[nic.OK]), share(ended[nic.DispatchTimeout])
	out.Times(took)
	return nil
}

// soloDemander is a client that issues READs at a portal of its own, without an executor.
type soloDemander struct {
	host        *soloHost
	portal      *nic.Portal
	target      *soloHost
	key         *nic.Cipher
	again       bool       // true: when a command has ended, the next one is issued
	from, until clock.Time // commands that end between these times are counted
	ended       [nic.DispatchTimeout + 1]int
	took        []time.Duration // times of the counted commands that ended as OK
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

// issue issues a READ at a time when the simulator has not called the host. (Within such a call,
// command is used.) If no command slot is free, the READ is shed: it is counted as DispatchTimeout,
// as if it had waited too long.
func (d *soloDemander) issue() {
	net := d.host.rack.net
	now, _ := net.Begin(d.host.node)
	if d.portal.Free() > 0 {
		d.command(now)
	} else {
		d.count(now, nic.DispatchTimeout)
	}
	net.End(d.host.node)
}

// command issues a READ. It is called while the simulator handles an event of the host: between
// Begin and End of the host's node, or within a call of the node.
func (d *soloDemander) command(now clock.Time) {
	d.host.rack.fail(d.portal.Issue(now, &nic.Command{
		Op: onerma.Read, Length: soloChunk, Target: d.target.addr, Remote: d.target.region.ID(), Key: d.key, Local: d.host.region,
	}))
}

func (d *soloDemander) count(now clock.Time, s nic.Status) bool {
	if now < d.from || now >= d.until {
		return false
	}
	d.ended[s]++
	return true
}

// collect takes the completions of commands, and counts them.
func (d *soloDemander) collect() {
	var out [16]nic.Completion
	for k := len(out); k == len(out); {
		k = d.portal.Poll(out[:])
		for i := range out[:k] {
			if d.count(d.host.rack.net.Now(), out[i].Status) && out[i].Status == nic.OK {
				d.took = append(d.took, out[i].TotalDelay)
			}
			if d.again {
				d.command(d.host.rack.net.Now())
			}
		}
	}
}
