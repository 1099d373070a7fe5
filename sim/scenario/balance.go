package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// The rack of the scenario balance. cn0 opens connections to a virtual address, that of cn4. The switch
// sends each to one of cn1 to cn3, and keeps its choice in the memory of ms1 and ms2.
const (
	balanceHosts    = 5
	balanceBackends = 3
	balanceVIP      = "cn4"
)

// balancePlan has the choices that the seed makes for a run of balance.
type balancePlan struct {
	wirePlan
	// packets, servers, capacity, cells, cell, cache and depth are keys of the switch's rule.
	packets                   string
	servers, capacity         int
	cells, cell, cache, depth int
	connections               int
	data                      int           // packets of each connection behind its first one
	every                     time.Duration // the longest time between two packets of all connections
	change                    time.Duration // the longest time between two changes of the pool
	udp                       float64       // the share of connections of UDP
	wrap                      bool
	midFault
}

// rule returns the text of the switch's rule with a pool and the hosts that get no new connections.
func (p *balancePlan) rule(pool, drain []string) string {
	rest := ""
	if len(drain) > 0 {
		rest = " drain=" + strings.Join(drain, ",")
	}
	return fmt.Sprintf("id=%s server=cn0 action=lookup table=%s vip=%s vport=%d pool=%s%s capacity=%d cells=%d cell=%d cache=%d depth=%d packets=%s base=%d",
		lookupRule, strings.Join([]string{"ms1", "ms2"}[:p.servers], ","), balanceVIP, balancePort, strings.Join(pool, ","), rest, p.capacity, p.cells, p.cell, p.cache, p.depth,
		p.packets, lookupBase)
}

func (p *balancePlan) String() string {
	return fmt.Sprintf("%s; %d connections of %d packets, one every %v, UDP %.1f, pool changes every %v, wrap=%v; links %s; %v", p.rule([]string{"cn1"}, nil), p.connections, p.data,
		p.every, p.udp, p.change, p.wrap, strings.TrimSpace(p.links), &p.midFault)
}

// run draws a plan and runs it.
func (p *balancePlan) run(e *env) error {
	d := e.draw
	*p = balancePlan{
		packets: one(d, "deposit", "recirculate"), servers: d.between(1, lookupServers), capacity: one(d, 64, 256, 4096), cells: one(d, 2, 8, 128), cell: one(d, 512, 2048),
		cache: one(d, 0, 0, 4, 64), depth: one(d, 1, 2, 8), connections: one(d, 1, 8, 24), data: d.between(2, 40), every: d.span(2*time.Microsecond, 60*time.Microsecond),
		change: one(d, d.span(20*time.Microsecond, 200*time.Microsecond), d.span(200*time.Microsecond, 3*time.Millisecond)), udp: one(d, 0, 0.3, 1),
	}
	p.fault = one(d, stateCalm, stateCalm, stateSwitchCrash, stateSwitchCrash, stateLinkCut, stateNICCrash, stateHang)
	var hosts []string
	if d.chance(0.6) {
		hosts = []string{"ms1", "ms2"}
	}
	p.drawWire(e, hosts, nil, 0)
	e.v6 = false // names of hosts in rules stand for addresses of IPv4
	p.params.Timeout, p.params.RetryCount = 14, 7
	p.rack.Datagrams = true
	p.wrap = d.nearWrap(&p.rack)
	p.drawTimes(d, fmt.Sprintf("ms%d", d.between(1, p.servers)))
	return e.complete(p.begin(e))
}

type balanceRun struct {
	lenders
	plan   *balancePlan
	oracle *balanceOracle
	pool   []string // hosts that get connections now
	over   bool     // the plan's fault is over, or there is none
	checks int
	// changes counts changes of the pool.
	changes int
}

func (p *balancePlan) begin(e *env) (*balanceRun, error) {
	r := &balanceRun{lenders: lenders{env: e, group: "lookup"}, plan: p, over: p.fault == stateCalm}
	e.report.Plan = p.String()
	r.oracle = r.newOracle()
	pool, drain := r.split(e.draw)
	r.pool = pool
	if err := r.build(&p.wirePlan, balanceHosts, 1+lookupServers, lookupBytes, yamlRule(p.rule(pool, drain)), r.oracle.wrap); err != nil {
		return nil, err
	}
	e.rack.At(0, e.rack.Announce)
	r.watch()
	return r, nil
}

// split draws which hosts get new connections.
func (r *balanceRun) split(d *draw) (pool, drain []string) {
	for i := range balanceBackends {
		name := fmt.Sprintf("cn%d", 1+i)
		if d.chance(0.5) {
			pool = append(pool, name)
		} else {
			drain = append(drain, name)
		}
	}
	if len(pool) == 0 {
		pool, drain = drain, nil
	}
	return pool, drain
}

// operate changes the pool again and again until all connections have ended.
func (r *balanceRun) operate(d *draw) {
	r.env.rack.At(r.env.rack.Now().Add(d.span(10*time.Microsecond, r.plan.change)), func() {
		if r.oracle.ended() {
			return
		}
		if !r.down {
			pool, drain := r.split(d)
			rule, err := r.env.rack.Rule(r.plan.rule(pool, drain))
			if err == nil {
				err = r.env.rack.SetRules([]rules.Rule{rule}...)
			}
			if err != nil {
				r.env.fail("change %d of the pool: %w", r.changes, err)
				return
			}
			r.env.rack.StepSwitch(r.env.rack.Program().Tick)
			r.changes++
			r.pool = pool
			r.oracle.allow(pool)
		}
		r.operate(d)
	})
}

// send sends the next packet of a random connection, until all have ended.
func (r *balanceRun) send(d *draw) {
	if b := r.oracle.next(d); b != nil {
		r.env.rack.Host("cn0").Inject(fault.Up, b, nil)
	}
	if !r.oracle.ended() {
		r.env.rack.At(r.env.rack.Now().Add(d.span(0, r.plan.every)), func() { r.send(d) })
	}
}

func (r *balanceRun) begin() {
	sender, operator := newDraw(r.env.draw.Uint64()), newDraw(r.env.draw.Uint64())
	r.env.rack.At(r.env.rack.Now(), func() { r.send(sender) })
	r.operate(operator)
	r.disturb(&r.plan.midFault, &r.over)
}

// watch starts an application that starts the sender when the switch has its connections, and checks the
// counters at intervals until all connections have ended and no frame is in flight.
func (r *balanceRun) watch() {
	r.watchTraffic(&traffic{
		begin: r.begin, check: r.check, ended: func() bool { return r.oracle.ended() && r.over }, empty: func() bool { return r.count("in_flight") == 0 },
		so: r.oracle, last: "packet",
	})
}

// check compares the switch's counters with each other, and reports what the oracle has seen.
func (r *balanceRun) check() error {
	r.checks++
	if r.oracle.err != nil {
		return r.oracle.err
	}
	c := r.counts()
	sum := uint64(0)
	for _, name := range []string{"cached", "hits", "misses", "in_flight", "torn", "unfit", "lost", "full", "blocked", "long"} {
		sum += c[name]
	}
	switch {
	case sum != c["frames"]:
		return fmt.Errorf("the switch took %d frames, and its counters account for %d: %v", c["frames"], sum, c)
	case c["misses"]+c["torn"]+c["unfit"] != 0:
		return fmt.Errorf("packets of connections with an entry have found none: %v", c)
	}
	return nil
}

func (r *balanceRun) judge() error {
	c, o := r.counts(), r.oracle
	r.env.note("%s; %d changes of the pool; %d learnt, %d hits, %d cached, %d lost, %d full, %d blocked, %d answers; %d checks", o, r.changes, c["learnt"], c["hits"], c["cached"],
		c["lost"], c["full"], c["blocked"], c["returned"], r.checks)
	if err := r.check(); err != nil {
		return err
	}
	if r.plan.fault == stateSwitchCrash { // the restarted switch has counted from 0 again
		return nil
	}
	switch {
	case c["learnt"] != uint64(r.plan.connections):
		return fmt.Errorf("%d connections, and the switch has chosen %d times: %v", r.plan.connections, c["learnt"], c)
	case c["cached"]+c["hits"] != o.arrived:
		return fmt.Errorf("%d packets have arrived, and the switch counts others: %v", o.arrived, c)
	case slices.Max(r.memory[1][lookupBase:]) == 0 && slices.Max(r.memory[2][lookupBase:]) == 0:
		return fmt.Errorf("the memory of the servers has no entry")
	}
	return nil
}
