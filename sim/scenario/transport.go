package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The server and the rack of the transport scenario. Other scenarios use them, too.
const server = "ms0"

var transportRack = clientRack(2, 1)

// transportPlan has the choices that the seed makes for a run of the scenario transport.
type transportPlan struct {
	faults string // name of the faultMix
	rules  []fault.Rule
	rack   simrack.Options
	wrap   bool // first PSNs are so large that PSNs wrap around
	mtu    verbs.MTU
	late   bool // servers post receives late
	params rdmacm.Params
	kinds  []string // kinds of the clients, one entry for each client
}

// Kinds of clients: random operations with predicted results (see mix), the test of `rdmalab perf
// soak`, and atomics on words that several clients use (see contention).
const (
	clientMix     = "mix"
	clientSoak    = "soak"
	clientContend = "contend"
)

func (p *transportPlan) draw(e *env) *transportPlan {
	d := e.draw
	m := d.faultMix()
	p.faults = m.name
	links := one(d, []string{"cn0", "cn1"}, []string{server})
	for _, link := range links {
		for _, r := range m.rules(d) {
			r.Link = link
			p.rules = append(p.rules, r)
		}
	}
	if d.chance(0.3) {
		p.rules = append(p.rules, fault.Rule{Link: server, Kind: fault.Tear, Probability: 0.5})
	}
	p.rack = simrack.Options{Delay: d.span(200*time.Nanosecond, 10*time.Microsecond), Window: one(d, 4, 16, 64, 128)}
	if m.slow {
		p.rack.Rate, p.rack.Queue = int64(d.between(5, 40))*1e9, d.between(16, 64)
		p.rack.Window = one(d, 4, 16)
	}
	p.rack.Recovery.Acks = []int{0, 0, 0, 1, 4, 64}[e.seed%6]
	p.wrap = d.nearWrap(&p.rack)
	e.v6 = d.chance(0.3)
	p.mtu = one(d, verbs.MTU256, verbs.MTU512, verbs.MTU1024, verbs.MTU2048, verbs.MTU4096)
	p.late = m.name != "none" && d.chance(0.3)
	p.params = rdmacm.Params{
		PathMTU: p.mtu, Timeout: uint8(d.between(8, 11)), RdAtomic: one(d, 1, 2, 4, 16), MinRNRTimer: uint8(d.between(1, 12)),
	}
	if m.slow {
		p.params.Timeout = 12 // there is no congestion control: a shorter timer would make the congestion worse
	}
	e.congested.patient(&p.params)
	p.kinds = []string{clientMix, one(d, clientMix, clientSoak), clientContend, clientContend}
	if d.chance(0.5) {
		p.kinds = append(p.kinds, one(d, clientMix, clientSoak))
	}
	return p
}

func (p *transportPlan) String() string {
	return fmt.Sprintf("faults=%s mtu=%d window=%d delay=%v timeout=%d rdatomic=%d wrap=%v late=%v clients=%s",
		p.faults, p.mtu, p.rack.Window, p.rack.Delay, p.params.Timeout, p.params.RdAtomic, p.wrap, p.late, strings.Join(p.kinds, "+"))
}

func (p *transportPlan) run(e *env) error { return p.draw(e).play(e) }

// play runs a plan, which a test may have changed.
func (p *transportPlan) play(e *env) error {
	if e.opt.rules != nil {
		p.rules = e.opt.rules
	}
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	if err := e.build(transportRack, p.rack); err != nil {
		return err
	}
	for _, h := range e.rack.Hosts() {
		h.SetFaults(p.rules)
	}
	clients := p.startClients(e)
	if err := e.run(); err != nil {
		return err
	}
	return p.check(e, clients)
}

type clients struct {
	mixes  []*mix
	soaks  []*perf.Result
	shared *contention
}

func (p *transportPlan) startClients(e *env) *clients {
	c := &clients{shared: &contention{env: e, clients: 2, rounds: e.draw.between(50, 300), params: p.params}} // two entries of p.kinds are clientContend
	e.serve(contendService, c.shared.serve)
	if slices.Contains(p.kinds, clientSoak) {
		e.servePerf()
	}
	for i, kind := range p.kinds {
		from := fmt.Sprintf("cn%d", i%2)
		name := fmt.Sprintf("%s-%d", kind, i)
		switch kind {
		case clientMix:
			m := p.newMix(e, from, name)
			c.mixes = append(c.mixes, m)
			e.serve(name, m.serve)
			e.client(from, name, m.client)
		case clientSoak:
			res := new(perf.Result)
			c.soaks = append(c.soaks, res)
			e.client(from, name, e.soakClient(from, p.soakConfig(e.draw), res))
		case clientContend:
			depth := e.draw.between(1, 8)
			e.client(from, name, func(ctx verbs.Context) error { return c.shared.client(ctx, from, depth) })
		}
	}
	return c
}

// serve runs an application on the server. It listens for the service before any client dials.
func (e *env) serve(service string, f func(ctx verbs.Context, l rdmacm.Listener) error) {
	h := e.rack.Host(server)
	h.Go(service, true, func(ctx verbs.Context) {
		l, err := h.Manager(ctx).Listen(service)
		if err == nil {
			err = f(ctx, l)
		}
		if err != nil {
			e.fail("server %s: %w", service, err)
		}
	})
}

// client runs an application on a host. The run goes on until all such applications have returned.
func (e *env) client(from, name string, f func(ctx verbs.Context) error) {
	e.rack.Host(from).Go(name, false, func(ctx verbs.Context) {
		if err := f(ctx); err != nil {
			e.fail("client %s/%s: %w", from, name, err)
		}
	})
}

func (p *transportPlan) newMix(e *env, from, name string) *mix {
	d := e.draw
	m := &mix{
		env: e, name: name, host: e.rack.Host(from),
		mixPlan: mixPlan{
			params: p.params, mtu: int(p.mtu),
			ops: d.between(300, 1500), depth: d.between(1, 32), late: p.late, lossy: len(p.rules) > 0 || p.rack.Rate > 0,
			maxLen: d.between(1, 6*int(p.mtu)), recvs: d.between(1, 24), epilog: one(d, endPlain, endBadKey, endInvalidate),
		},
		draw: newDraw(d.Uint64()),
		fill: perf.Pattern{Seed: d.Uint64()}, msgs: perf.Pattern{Seed: d.Uint64()},
	}
	m.region = (m.maxLen + d.between(8, 8192)) &^ 7
	m.maxLen = min(m.maxLen, m.region)
	return m
}

func (p *transportPlan) soakConfig(d *draw) perf.Config {
	c := perf.Config{
		Test: perf.Soak, Iters: d.between(20, 80), Size: 1 + d.size(int(p.mtu), 64<<10), Atomics: d.between(100, 600),
		Depth: d.between(1, 16), Path: perf.Path{MTU: int(p.mtu), Timeout: p.params.Timeout, RdAtomic: p.params.RdAtomic, MinRNRTimer: p.params.MinRNRTimer}, Seed: d.Uint64() | 1, Patience: mixPatience, To: server,
	}
	if p.late {
		c.RecvSlack = 1
	}
	return c
}

func (e *env) servePerf() {
	h := e.rack.Host(server)
	h.Go(perf.PerfService, true, func(ctx verbs.Context) {
		s, err := perf.NewServer(ctx, h.Manager(ctx), memservice.Config{})
		if err == nil {
			err = s.Serve()
		}
		if err != nil {
			e.fail("server %s: %w", perf.PerfService, err)
		}
	})
}

func (e *env) soakClient(from string, cfg perf.Config, res *perf.Result) func(ctx verbs.Context) error {
	return func(ctx verbs.Context) (err error) {
		h := e.rack.Host(from)
		*res, err = perf.Run(ctx, h.Manager(ctx), e.addrOf(server), cfg, nil)
		return limit(err, from, wire.QPN(res.QPN), wire.QPN(res.PeerQPN), verbs.MTU(res.MTU))
	}
}

// check makes the checks that are possible only when all clients have returned.
func (p *transportPlan) check(e *env, c *clients) error {
	atomics := 0
	for _, m := range c.mixes {
		atomics += m.atomics
		if m.received != m.sent {
			return fmt.Errorf("%s sent %d messages, its server received %d", m.name, m.sent, m.received)
		}
	}
	for _, r := range c.soaks {
		atomics += r.Soak.FetchAdds + r.Soak.CmpSwaps
	}
	if err := c.shared.check(); err != nil {
		return err
	}
	if err := e.checkAtomics(server, atomics+c.shared.atomics); err != nil {
		return err
	}
	if err := e.checkConservation(); err != nil {
		return err
	}
	if len(p.rules) == 0 && !p.late && e.keepsPackets(p.rack.Rate) && !e.congested.outwaits(e.rack, e.recovery) && !slices.Contains(p.kinds, clientSoak) {
		return e.checkQuiet()
	}
	return nil
}
