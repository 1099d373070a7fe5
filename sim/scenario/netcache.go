package scenario

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/history"
)

// The rack of the scenario netcache. cn0 is a key-value server, and the others are its clients. The switch answers
// GETs of hot keys with values that it keeps in the memory of ms1 and ms2.
const (
	netcacheHosts   = 5
	netcacheServers = 2
	netcacheBytes   = 128 << 10
	netcacheBase    = 64
	// netcacheSteps bounds the search for an order of the operations on a key. Writes that were executed twice make some
	// searches long; a run whose search ends without a result has a note.
	netcacheSteps = 1 << 19
)

// netcacheHop is what happens to a datagram on each hop: loss and twice are probabilities, late is how long it takes at most.
type netcacheHop struct {
	loss, twice float64
	late        time.Duration
}

// netcacheUpset is how often the key-value server crashes, which then has no items, for how long it is away, and how often
// an operator empties the cache.
type netcacheUpset struct {
	crashes int
	outage  time.Duration
	clears  int
}

// netcacheAsk is how clients ask. numbers is how many numbers the requests of a client have, 0 if each has one of its own.
// If tags is true, frames of some clients are in VLANs. After the time moves other keys are hot; 0 means never.
type netcacheAsk struct {
	numbers int
	tags    bool
	moves   time.Duration
}

// netcachePlan has the choices that the seed makes for a run of netcache.
type netcachePlan struct {
	wirePlan
	// servers, items, size, hot, age and depth are keys of the switch's rule.
	servers, items, size, hot, depth int
	age                              time.Duration
	keys, ops                        int // ops is how many operations each client does
	theta                            float64
	writes                           float64 // the share of writes
	longest                          int     // the length of the longest value
	think                            time.Duration
	hop                              netcacheHop
	upset                            netcacheUpset
	wrap                             bool
	fragments                        float64 // the probability that a datagram leaves in two fragments
	ask                              netcacheAsk
	faults                           []midFault // one begins after the end of the one before it
}

func (p *netcachePlan) rule() string {
	return fmt.Sprintf("id=kv server=cn0 action=cache store=%s at=%d items=%d size=%d hot=%d age=%v depth=%d",
		strings.Join([]string{"ms1", "ms2"}[:p.servers], ","), netcacheBase, p.items, p.size, p.hot, p.age, p.depth)
}

func (p *netcachePlan) String() string {
	return fmt.Sprintf("%s; %d operations of each client on %d keys by Zipf %.2f, %.2f of them writes of up to %d bytes, one every %v; a hop takes up to %v, loses %.3f, doubles %.3f; "+
		"%.2f in fragments; %d numbers, tags=%v, other hot keys after %v; the server crashes %d times for %v, clears=%d, wrap=%v; links %s; %v", p.rule(), p.ops, p.keys, p.theta, p.writes, p.longest, p.think, p.hop.late, p.hop.loss, p.hop.twice, p.fragments, p.ask.numbers, p.ask.tags, p.ask.moves,
		p.upset.crashes, p.upset.outage, p.upset.clears, p.wrap, strings.TrimSpace(p.links), p.disturbances())
}

// run draws a plan and runs it.
func (p *netcachePlan) run(e *env) error {
	d := e.draw
	*p = netcachePlan{
		servers: d.between(1, netcacheServers), items: one(d, 1, 8, 64), size: one(d, 64, 128, 256), hot: one(d, 1, 1, 2, 8), depth: one(d, 1, 4, 16),
		age: one(d, 20*time.Microsecond, time.Millisecond, time.Second), keys: one(d, 1, 2, 5, 24), ops: d.between(20, 80), theta: one(d, 0, 0.99, 1.3),
		writes: one(d, 0.02, 0.1, 0.3), longest: one(d, 0, 20, 100, 300), think: d.span(time.Microsecond, 40*time.Microsecond),
		hop:       netcacheHop{loss: one(d, 0, 0, 0.02, 0.2), twice: one(d, 0, 0, 0.02, 0.1), late: d.span(100*time.Nanosecond, one(d, time.Microsecond, 20*time.Microsecond, 200*time.Microsecond))},
		upset:     netcacheUpset{crashes: one(d, 0, 0, 0, 2), outage: one(d, 0, d.span(0, 2*time.Millisecond)), clears: one(d, 0, 0, 1, 20)},
		fragments: one(d, 0, 0, 0.02, 0.2),
		ask:       netcacheAsk{numbers: one(d, 0, 0, 1, 3, 8), tags: d.chance(0.25), moves: one(d, 0, 0, d.span(500*time.Microsecond, 5*time.Millisecond))},
	}
	var hosts []string
	if d.chance(0.6) {
		hosts = []string{"ms1", "ms2"}
	}
	p.drawWire(e, hosts, nil, 0)
	p.params.Timeout, p.params.RetryCount = 14, 7
	p.rack.Datagrams = true
	p.wrap = d.nearWrap(&p.rack)
	if d.chance(0.4) {
		p.focus(d)
	}
	for range one(d, 0, 1, 1, 3) {
		f := midFault{fault: one(d, stateSwitchCrash, stateLinkCut, stateNICCrash, stateHang)}
		f.drawTimes(d, fmt.Sprintf("ms%d", d.between(1, p.servers)))
		p.faults = append(p.faults, f)
	}
	return e.complete(p.begin(e))
}

// focus makes the plan one in which the switch answers many GETs of few keys, while requests that it cannot read, and
// numbers that come again, could make it miss a write.
func (p *netcachePlan) focus(d *draw) {
	p.items, p.size, p.hot, p.age, p.depth, p.longest = 64, 256, 1, time.Second, 16, 20
	p.keys, p.ops, p.writes, p.theta = 2, 80, one(d, 0.1, 0.3), 0
	p.ask.numbers, p.fragments, p.hop.loss, p.hop.twice = one(d, 0, 1, 3), one(d, 0, 0.2, 0.4), 0, one(d, 0, 0.1)
	p.upset.crashes, p.upset.clears, p.hop.late = 0, 0, d.span(time.Microsecond, 100*time.Microsecond)
}

func (p *netcachePlan) disturbances() string {
	list := []string{string(stateCalm)}
	for i := range p.faults {
		list = append(list[:i], p.faults[i].String())
	}
	return strings.Join(list, ", then ")
}

type netcacheRun struct {
	lenders
	plan   *netcachePlan
	oracle *netcacheOracle
	over   bool // the plan's faults are over
	checks int
}

func (p *netcachePlan) begin(e *env) (*netcacheRun, error) {
	r := &netcacheRun{lenders: lenders{env: e, group: "cache"}, plan: p}
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	r.oracle = r.newOracle()
	if err := r.build(&p.wirePlan, netcacheHosts, 1+netcacheServers, netcacheBytes, yamlRule(p.rule()), r.oracle.wrap); err != nil {
		return nil, err
	}
	e.rack.At(0, e.rack.Announce)
	r.watch()
	return r, nil
}

func (r *netcacheRun) begin() {
	r.oracle.begin()
	r.disturbFrom(0)
	d := newDraw(r.env.draw.Uint64())
	for range r.plan.upset.crashes {
		r.env.rack.At(r.env.rack.Now().Add(d.span(0, 5*time.Millisecond)), func() { r.oracle.crash(r.plan.upset.outage) })
	}
	for range r.plan.upset.clears {
		r.env.rack.At(r.env.rack.Now().Add(d.span(0, 5*time.Millisecond)), func() {
			if k, ok := r.env.rack.Program().(interface{ ClearTable(string) (int, bool) }); ok && !r.down {
				k.ClearTable("cached values")
			}
		})
	}
}

// disturbFrom schedules the faults of the plan from number i on.
func (r *netcacheRun) disturbFrom(i int) {
	if i == len(r.plan.faults) {
		r.over = true
		return
	}
	f := &r.plan.faults[i]
	r.env.rack.At(r.env.rack.Now().Add(f.when), func() {
		r.inject(f, func() {
			if f.fault == stateSwitchCrash {
				r.env.rack.Announce()
			}
			r.disturbFrom(i + 1)
		})
	})
}

// watch starts an application that starts the clients, and checks the counters at intervals until all operations have
// ended and no GET waits in the switch.
func (r *netcacheRun) watch() {
	r.watchTraffic(&traffic{
		begin: r.begin, check: r.check, ended: func() bool { return r.oracle.ended() && r.over }, empty: func() bool { return r.count("waiting") == 0 },
		so: r.oracle, last: "operation",
	})
}

// check compares the switch's counters with each other, and reports what the oracle has seen.
func (r *netcacheRun) check() error {
	r.checks++
	if r.oracle.err != nil {
		return r.oracle.err
	}
	c := r.counts()
	if c["gets"] != c["answered"]+c["forwarded"]+c["dropped"]+c["waiting"] {
		return fmt.Errorf("the switch took %d GETs, and its counters account for others: %v", c["gets"], c)
	}
	return nil
}

func (r *netcacheRun) judge() error {
	c, o := r.counts(), r.oracle
	share := 0.0
	if c["gets"] > 0 {
		share = float64(c["answered"]) / float64(c["gets"])
	}
	r.env.note("%s; %d gets, %.0f %% of them answered by the switch; %d probes, %d filled, %d stale, %d lost, %d busy, %d slow, %d unread, %d forgotten; %d checks", o, c["gets"], 100*share, c["probes"],
		c["filled"], c["stale"], c["lost"], c["busy"], c["slow"], c["unread"], c["forgotten"], r.checks)
	if err := r.check(); err != nil {
		return err
	}
	err := o.log.Check(func(w int) (uint64, bool) { return o.items[w], true }, netcacheSteps)
	var undecided *history.UndecidedError
	if errors.As(err, &undecided) {
		r.env.note("%v", err)
		err = nil
	}
	if err == nil && r.plan.quiet() && c["answered"] == 0 {
		return fmt.Errorf("nothing was disturbed, and the switch has answered no GET: %v", c)
	}
	return err
}

// quiet reports whether the switch must have answered some GETs: no fault, hardly any writes, a hot key that fits.
func (p *netcachePlan) quiet() bool {
	return len(p.faults) == 0 && p.upset.clears == 0 && !p.ask.tags && p.links == "" && p.hop.loss == 0 && p.upset.crashes == 0 && p.keys == 1 && p.writes < 0.1 && p.hot <= 2 && p.longest <= 20 && p.size > 64 && p.ops >= 60 && p.age >= time.Millisecond &&
		p.hop.late < time.Microsecond
}
