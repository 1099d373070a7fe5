package scenario

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// The rack of the scenario telemetry: cn0 to cn3 send packets of several protocols to each other,
// and the switch counts them, all or a sample, in sketches in the memory of ms1 and ms2.
const (
	teleHosts = mixedHosts
	teleBytes = 64 << 10 // memory of each store
)

// telePlan has the choices that the seed makes for a run of telemetry.
type telePlan struct {
	wirePlan
	// measured is how many of the hosts are measured. If apart is true, the rule of each host has a
	// sketch of its own; otherwise all count in one.
	measured int
	apart    bool
	// The fields from stores to sample are keys of the rules of action measure; stores is how many
	// servers a rule has.
	stores, shards, depth, slots, rows, at int
	by, add                                string
	sample                                 teleSample
	sends                                  mixedPlan
	combine                                time.Duration
	wrap                                   bool
	midFault
}

func (p *telePlan) counters() int { return p.slots * p.rows }

// offset returns the offset of the sketch of a host in the memory of each store.
func (p *telePlan) offset(host int) int {
	if !p.apart {
		return p.at
	}
	return p.at + host*8*((p.counters()+p.stores-1)/p.stores)
}

// rule returns the text of the switch's rules, in the form of a rack file.
func (p *telePlan) rule() string {
	var list []string
	for i := range p.measured {
		list = append(list, fmt.Sprintf("{id: tele%d, server: cn%d, action: measure, store: %q, slots: %d, rows: %d, at: %d, by: %s, add: %s, depth: %d, shards: %d, combine: %v%s}",
			i, i, strings.Join([]string{"ms1", "ms2"}[:p.stores], ","), p.slots, p.rows, p.offset(i), p.by, p.add, p.depth, p.shards, p.combine, p.sample.keys(i)))
	}
	return strings.Join(list, "\n    - ")
}

func (p *telePlan) String() string {
	return fmt.Sprintf("%s; %v, wrap=%v; links %s; %v", strings.ReplaceAll(p.rule(), "\n    - ", " "), &p.sends, p.wrap, strings.TrimSpace(p.links), &p.midFault)
}

// run draws a plan and runs it.
func (p *telePlan) run(e *env) error {
	p.draw(e)
	return e.complete(p.begin(e))
}

func (p *telePlan) draw(e *env) {
	d := e.draw
	*p = telePlan{
		measured: d.between(1, teleHosts), apart: d.chance(0.4), stores: d.between(1, 2), shards: one(d, 1, 1, 3), depth: one(d, 1, 4, 16),
		slots: one(d, 2, 16, 100), rows: one(d, 1, 2, 5, 8), at: 8 * d.IntN(8), by: one(d, telemetry.Names...), add: one(d, "packets", "packets", "bytes"),
		sample: teleSample{one(d, 1, 1, 2, 7), d.chance(0.5), d.IntN(1000)}, sends: d.mixed(),
	}
	p.combine = one(d, 0, 0, 20*time.Microsecond, time.Millisecond)
	p.fault = one(d, stateCalm, stateCalm, stateCalm, stateSwitchCrash, stateLinkCut, stateNICCrash, stateHang)
	p.drawWire(e, []string{"ms1", "ms2"}, nil, 0)
	e.v6 = d.chance(0.3)
	p.params.Timeout, p.params.RetryCount = uint8(d.between(7, 9)), 7
	p.rack.Datagrams = true
	p.wrap = d.nearWrap(&p.rack)
	p.drawTimes(d, fmt.Sprintf("ms%d", d.between(1, p.stores)))
}

type teleRun struct {
	lenders
	mixed  mixed
	plan   *telePlan
	oracle *teleOracle
	before uint64 // amount that earlier incarnations of the switch have counted and not dropped
	gone   uint64 // amount that earlier incarnations of the switch have dropped
}

// begin builds the rack, and starts servers, senders and the checks.
func (p *telePlan) begin(e *env) (*teleRun, error) {
	r := &teleRun{lenders: lenders{env: e, group: "count"}, plan: p}
	r.mixed = r.lenders.mixed(&p.sends, &p.midFault)
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	r.oracle = r.newOracle()
	if err := r.build(&p.wirePlan, teleHosts, 3, teleBytes, p.rule(), r.oracle.wrap); err != nil {
		return nil, err
	}
	r.mixed.start(r.check, "pending", func() {
		r.before += r.count("amount") - r.count("dropped")
		r.gone += r.count("dropped")
	})
	return r, nil
}

// slot returns the value of counter i of the sketch of a host: it is word i/stores of the sketch in
// store number i modulo stores.
func (r *teleRun) slot(host, i int) uint64 {
	return binary.LittleEndian.Uint64(r.memory[1+i%r.plan.stores][r.plan.offset(host)+i/r.plan.stores*8:])
}

// sketches returns the hosts whose sketches are different from those of the hosts before them.
func (r *teleRun) sketches() int {
	if r.plan.apart {
		return r.plan.measured
	}
	return 1
}

// remote returns the sum of all counters in the stores' memory.
func (r *teleRun) remote() (sum uint64) {
	for host := range r.sketches() {
		for i := range r.plan.counters() {
			sum += r.slot(host, i)
		}
	}
	return sum
}

func (r *teleRun) check() error {
	r.mixed.checks++
	return r.accounted(r.before, r.remote())
}

// judge compares, after the run, each counter with what the oracle says. It does so only if no count
// can have been lost.
func (r *teleRun) judge() error {
	o := r.oracle
	uncertain, dropped, former := r.count("uncertain"), r.count("dropped"), r.count("former")
	r.env.note("%d frames, %d of measured hosts, %d counted, %d in the stores; %d FETCH_ADDs, %d retransmissions; at most %d lost in crashes, %d uncertain, %d dropped; %d checks",
		r.mixed.sent, o.passed, r.before+r.gone+r.count("amount"), r.remote(), r.count("fetch_adds"), r.count("requester_resent"), former, uncertain, dropped, r.mixed.checks)
	if err := r.check(); err != nil {
		return err
	}
	if r.plan.fault == stateSwitchCrash {
		return nil
	}
	if n := r.count("packets"); n != o.passed {
		return fmt.Errorf("measured hosts have sent %d frames; the switch has seen %d", o.passed, n)
	}
	if n := r.count("sampled"); n != o.sampled {
		return fmt.Errorf("%d frames belong to the sample; the switch has counted %d", o.sampled, n)
	}
	if uncertain+dropped+former > 0 {
		return nil
	}
	for host := range r.sketches() {
		if err := o.compare(host); err != nil {
			return err
		}
	}
	return nil
}
