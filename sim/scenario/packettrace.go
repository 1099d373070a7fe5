package scenario

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/tracestore"
)

// The rack of the scenario packet-trace: cn0 to cn3 send packets of several protocols to each other,
// and the switch writes their headers, all or of a sample, to rings in the memory of ms1 and ms2.
const (
	traceHosts = mixedHosts
	traceBytes = 128 << 10 // memory of each store
)

// tracePlan has the choices that the seed makes for a run of packet-trace.
type tracePlan struct {
	wirePlan
	// traced is how many of the hosts have a rule. If apart is true, each rule has a ring of its own;
	// otherwise all write to one.
	traced int
	apart  bool
	// The fields from stores to sample are keys of the rules; stores is how many servers a rule has.
	stores, depth, records, batch, at int
	combine                           time.Duration
	cap                               string
	sample                            teleSample
	sends                             mixedPlan
	wrap                              bool
	midFault
}

// offset returns the offset of the ring of a host in the memory of each store.
func (p *tracePlan) offset(host int) int {
	if !p.apart {
		return p.at
	}
	return p.at + host*packettrace.Size*((p.records+p.stores-1)/p.stores)
}

// rule returns the text of the switch's rules, in the form of a rack file.
func (p *tracePlan) rule() string {
	var list []string
	for i := range p.traced {
		list = append(list, fmt.Sprintf("{id: trace%d, server: cn%d, action: trace, store: %q, at: %d, records: %d, batch: %d, combine: %v, depth: %d%s%s}",
			i, i, strings.Join([]string{"ms1", "ms2"}[:p.stores], ","), p.offset(i), p.records, p.batch, p.combine, p.depth, p.cap, p.sample.keys(i)))
	}
	return strings.Join(list, "\n    - ")
}

func (p *tracePlan) String() string {
	return fmt.Sprintf("%s; %v, wrap=%v; links %s; %v", strings.ReplaceAll(p.rule(), "\n    - ", " "), &p.sends, p.wrap, strings.TrimSpace(p.links), &p.midFault)
}

// run draws a plan and runs it.
func (p *tracePlan) run(e *env) error {
	p.draw(e)
	return e.complete(p.begin(e))
}

func (p *tracePlan) draw(e *env) {
	d := e.draw
	*p = tracePlan{
		traced: d.between(1, traceHosts), apart: d.chance(0.4), stores: d.between(1, 2), depth: one(d, 1, 4, 16), records: one(d, 1, 7, 64, 200), batch: one(d, 1, 3, 8, 32),
		at: 8 * d.IntN(8), combine: one(d, 0, 20*time.Microsecond, 100*time.Microsecond, 2*time.Millisecond),
		sample: teleSample{one(d, 1, 1, 2, 7), d.chance(0.5), d.IntN(1000)}, sends: d.mixed(),
	}
	p.cap = one(d, "", "", ", cap: 1Gbit", ", cap: 20Mbit, dscp: 46")
	p.fault = one(d, stateCalm, stateCalm, stateCalm, stateSwitchCrash, stateLinkCut, stateNICCrash, stateHang)
	p.drawWire(e, []string{"ms1", "ms2"}, nil, 0)
	e.v6 = d.chance(0.3)
	p.params.Timeout, p.params.RetryCount = uint8(d.between(7, 9)), 7
	p.rack.Datagrams = true
	p.wrap = d.nearWrap(&p.rack)
	p.drawTimes(d, fmt.Sprintf("ms%d", d.between(1, p.stores)))
}

type traceRun struct {
	lenders
	mixed  mixed
	plan   *tracePlan
	oracle *traceOracle
}

// begin builds the rack, and starts servers, senders and the checks.
func (p *tracePlan) begin(e *env) (*traceRun, error) {
	r := &traceRun{lenders: lenders{env: e, group: "trace"}, plan: p}
	r.mixed = r.lenders.mixed(&p.sends, &p.midFault)
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	r.oracle = r.newOracle()
	if err := r.build(&p.wirePlan, traceHosts, 3, traceBytes, p.rule(), r.oracle.wrap); err != nil {
		return nil, err
	}
	r.mixed.start(r.check, "waiting", r.oracle.forget)
	return r, nil
}

// rings returns the rings of the switch, as an operator sees them.
func (r *traceRun) rings() []tracestore.Ring {
	p, ok := r.env.rack.Program().(*swordbox.Program)
	if !ok {
		return nil
	}
	for _, h := range p.Report(r.env.rack.Now()).Handlers {
		if list, ok := h.Lists[tracestore.Help.Name].([]tracestore.Ring); ok {
			return list
		}
	}
	return nil
}

// cells returns a copy of the cells of the ring of a host, store by store.
func (r *traceRun) cells(host int) (b []byte) {
	p := r.plan
	for i := range p.stores {
		n := (p.records - i + p.stores - 1) / p.stores
		b = append(b, r.memory[1+i][p.offset(host):][:n*packettrace.Size]...)
	}
	return b
}

// check compares the switch's counters with each other, and the records in memory with the frames.
func (r *traceRun) check() error {
	r.mixed.checks++
	c := r.counts()
	if sum := c["stored"] + c["waiting"] + c["in_flight"] + c["uncertain"] + c["dropped"]; sum != c["records"] {
		return fmt.Errorf("the switch has made %d records, and its counters account for %d: stored %d, waiting %d, in flight %d, uncertain %d, dropped %d",
			c["records"], sum, c["stored"], c["waiting"], c["in_flight"], c["uncertain"], c["dropped"])
	}
	rings := r.rings()
	if len(rings) != len(r.oracle.expected) {
		return fmt.Errorf("the switch has %d rings; its rules ask for %d", len(rings), len(r.oracle.expected))
	}
	for i, g := range rings {
		if err := r.oracle.compare(i, &g, c["waiting"]+c["in_flight"]+c["uncertain"]+c["dropped"]); err != nil {
			return err
		}
	}
	return nil
}

// judge checks the counters and the memory after the run.
func (r *traceRun) judge() error {
	c, o := r.counts(), r.oracle
	r.env.note("%d frames, %d of traced hosts, %d records, %d stored by %d WRITEs, %d retransmissions; %d uncertain, %d dropped; %d checks",
		r.mixed.sent, o.passed, c["records"], c["stored"], c["writes"], c["requester_resent"], c["uncertain"], c["dropped"], r.mixed.checks)
	if err := r.check(); err != nil {
		return err
	}
	if c["packets"] != o.passed || c["sampled"] != o.sampled || c["records"] != o.sampled {
		return fmt.Errorf("traced hosts have sent %d frames, of which %d belong to the sample; the switch has seen %d, sampled %d and recorded %d",
			o.passed, o.sampled, c["packets"], c["sampled"], c["records"])
	}
	return nil
}
