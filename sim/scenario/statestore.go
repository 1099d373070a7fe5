package scenario

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The rack of the scenario state-store: clients send requests to ms0, and the switch counts them in
// the memory of ms1 and ms2, the stores.
const (
	stateServed = 64 << 10 // bytes of memory of ms0
	stateBytes  = 64 << 10 // memory of each store
	stateHosts  = 4
)

// statePlan has the choices that the seed makes for a run of state-store.
type statePlan struct {
	wirePlan
	// The fields from mode to unit are keys of the switch's rule of action count; stores is how
	// many servers the rule has.
	mode                  string
	stores, shards, depth int
	slots, rows, at       int
	per, add, unit        string
	clients, rounds       int
	wrap                  bool
	midFault
}

// rule returns the text of the plan's switch rule, in the form of a rack file.
func (p *statePlan) rule() string {
	per := ""
	if p.mode == modeHardened { // a published rule has one counter
		per = fmt.Sprintf(", per: %s", p.per)
	}
	return fmt.Sprintf("{id: count, server: ms0, action: count, store: %q, mode: %s, slots: %d, rows: %d, at: %d%s, add: %s, unit: %s, depth: %d, shards: %d}",
		strings.Join([]string{"ms1", "ms2"}[:p.stores], ","), p.mode, p.slots, p.rows, p.at, per, p.add, p.unit, p.depth, p.shards)
}

func (p *statePlan) String() string {
	return fmt.Sprintf("%s; %d clients, %d rounds, wrap=%v; links %s; %v", p.rule(), p.clients, p.rounds, p.wrap, strings.TrimSpace(p.links), &p.midFault)
}

func (p *statePlan) draw(e *env) *statePlan {
	d := e.draw
	*p = statePlan{
		mode: modeHardened, stores: d.between(1, 2), shards: one(d, 1, 1, 2, 3), depth: one(d, 1, 4, 16), slots: one(d, 1, 2, 16, 1000), at: 8 * d.IntN(8),
		per: one(d, "flow", "address"), add: one(d, "requests", "requests", "bytes"), unit: one(d, "word", "line", "page"),
		clients: d.between(1, 8), rounds: d.between(10, 80),
	}
	p.fault = one(d, stateCalm, stateCalm, stateCalm, stateSwitchCrash, stateSwitchCrash, stateLinkCut, stateNICCrash, stateHang)
	hosts := []string{"ms1", "ms2"}
	if d.chance(0.5) {
		hosts = append(hosts, "ms0", "cn0", "cn1", "cn2", "cn3")
	}
	p.drawWire(e, hosts, nil, 0)
	e.v6 = d.chance(0.3)
	p.params.Timeout, p.params.RetryCount = uint8(d.between(7, 9)), 7
	p.rack.Datagrams = true
	if d.chance(0.15) {
		p.belated(d, []string{"ms1", "ms2"})
		p.params.RetryCount = 7
	}
	p.wrap = d.nearWrap(&p.rack)
	p.drawTimes(d, one(d, "ms1", hosts[p.stores-1]))
	p.rows = one(d, 1, 1, 2, 4)
	return p
}

func (p *statePlan) counters() int { return p.slots * p.rows }

type stateRun struct {
	lenders
	plan   *statePlan
	oracle *stateOracle
	ended  int    // clients that have returned
	before uint64 // amount that earlier incarnations of the switch have counted and not dropped
	gone   uint64 // amount that earlier incarnations of the switch have dropped
	broken int    // clients whose connection has failed
	checks int
}

func (p *statePlan) run(e *env) error { return e.complete(p.draw(e).begin(e)) }

// begin builds the rack, starts servers and clients, and schedules the fault and the checks.
func (p *statePlan) begin(e *env) (*stateRun, error) {
	r := &stateRun{lenders: lenders{env: e, group: "count"}, plan: p}
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	r.oracle = &stateOracle{
		run: r, want: make([]uint64, p.counters()), keys: make(map[stateCounted]*stateSum), seen: make(map[stateKey]bool), adds: make(map[stateKey]wire.AtomicETH),
	}
	if err := r.build(&p.wirePlan, stateHosts, 3, max(stateServed, stateBytes), p.rule(), r.oracle.wrap); err != nil {
		return nil, err
	}
	for i := range p.clients {
		r.start(i)
	}
	r.watch()
	if p.fault != stateCalm {
		e.rack.At(clock.Time(p.when), r.fail)
	}
	return r, nil
}

// start starts client number id, which sends requests to ms0 and waits for their completions.
func (r *stateRun) start(id int) {
	host := fmt.Sprintf("cn%d", id%stateHosts)
	d := newDraw(r.env.draw.Uint64())
	r.env.client(host, fmt.Sprintf("client-%d", id), func(ctx verbs.Context) error {
		defer func() { r.ended++ }()
		rt := ctx.Runtime()
		rt.Sleep(d.span(0, time.Millisecond))
		const depth = 8
		end, err := newEnds(ctx, 4096, depth, verbs.LocalWrite)
		if err != nil {
			return err
		}
		mem, err := memservice.Dial(r.env.rack.Host(host).Manager(ctx), end.qp, r.env.addrOf("ms0"), r.plan.params, rt.Now().Add(dialPatience))
		if err != nil {
			return err
		}
		var wcs [depth]verbs.WC
		for n := 0; n < r.plan.rounds; {
			some := min(d.between(1, depth), r.plan.rounds-n)
			n += some
			for range some {
				if err := end.qp.PostSend(r.request(d, end, mem)); err != nil {
					return err
				}
			}
			for got := 0; got < some; {
				k, err := end.await(wcs[:some-got], mixPatience)
				if err != nil {
					return err
				}
				for _, wc := range wcs[:k] {
					if wc.Status != verbs.Success {
						r.broken++
						return nil // the switch may have counted requests that were never executed
					}
				}
				got += k
			}
			rt.Sleep(d.span(0, 100*time.Microsecond))
		}
		return nil
	})
}

// request draws a WRITE, READ or FETCH_ADD to the memory of ms0.
func (r *stateRun) request(d *draw, end *ends, mem memservice.Region) verbs.SendWR {
	n := one(d, 0, 8, d.between(1, 600), d.between(1, 3000))
	wr := verbs.SendWR{Op: one(d, verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd), RKey: mem.RKey, Flags: verbs.Signalled, CompareAdd: 1}
	wr.RemoteAddr = mem.Addr + uint64(d.IntN(stateServed-4096))
	if wr.Op == verbs.OpFetchAdd {
		n = 8
		wr.RemoteAddr &^= 7
	}
	wr.SGL = []verbs.SGE{end.mr.SGE(0, n)}
	return wr
}

// fail injects the fault of the plan and schedules its end.
func (r *stateRun) fail() {
	if r.plan.fault == stateSwitchCrash {
		r.before += r.count("amount") - r.count("dropped")
		r.gone += r.count("dropped")
	}
	r.env.goOnUntil(r.inject(&r.plan.midFault, nil))
}

// remote returns the sum of all counters in the stores' memory.
func (r *stateRun) remote() (sum uint64) {
	for i := range r.plan.counters() {
		sum += r.slot(i)
	}
	return sum
}

// slot returns the value of counter i in the stores' memory: it is word i/stores of store number i
// modulo stores.
func (r *stateRun) slot(i int) uint64 {
	return binary.LittleEndian.Uint64(r.memory[1+i%r.plan.stores][r.plan.at+i/r.plan.stores*8:])
}

// Bounds of the watcher, in virtual time.
const (
	stateEvery = 300 * time.Microsecond
	// stateQuiet is how long after the last request and the end of the fault the switch may take to
	// bring all counts to the stores.
	stateQuiet = 5 * time.Second
)

// watch starts an application that calls check at intervals, until the last client has returned and
// no count waits in the switch.
func (r *stateRun) watch() {
	r.env.client(survivor, "watcher", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		quiet := clock.Time(0)
		for {
			rt.Sleep(stateEvery)
			if r.down {
				continue
			}
			if err := r.check(); err != nil {
				return err
			}
			switch {
			case r.ended < r.plan.clients || rt.Now() <= clock.Time(r.plan.when+r.plan.down):
			case quiet == 0:
				quiet = rt.Now()
			case r.count("pending") == 0 && r.count("in_flight") == 0, r.plan.mode == modePublished && rt.Now().Sub(quiet) > stateQuiet/10:
				return nil
			case rt.Now().Sub(quiet) > stateQuiet:
				return fmt.Errorf("counts of %d wait in the switch and counts of %d are in flight %v after the last request", r.count("pending"), r.count("in_flight"), stateQuiet)
			}
		}
	})
}

// check compares, during the run and after it, the switch's counters with each other and with the
// sum in the stores' memory.
func (r *stateRun) check() error {
	r.checks++
	if r.plan.mode == modePublished {
		return nil
	}
	return r.accounted(r.before, r.remote())
}

// judge compares, after the run, each counter with the sum that the requests have added to it. It
// does so only if no count can have been lost.
func (r *stateRun) judge() error {
	if err := r.oracle.err; err != nil {
		return err
	}
	uncertain, dropped, former := r.count("uncertain"), r.count("dropped"), r.count("former")
	r.env.note("%d requests, %d counted, %d in the stores; %d FETCH_ADDs, %d retransmissions; at most %d lost in crashes, %d uncertain, %d dropped; %d checks",
		r.oracle.requests, r.before+r.gone+r.count("amount"), r.remote(), r.count("fetch_adds"), r.count("requester_resent"), former, uncertain, dropped, r.checks)
	if r.plan.mode == modePublished {
		return nil
	}
	if err := r.check(); err != nil {
		return err
	}
	if uncertain+dropped+former+r.gone > 0 || r.before > 0 || r.broken > 0 {
		return nil
	}
	for i := range r.plan.counters() {
		if got, want := r.slot(i), r.oracle.want[i]; got != want {
			return fmt.Errorf("counter %d is %d; requests have added %d", i, got, want)
		}
	}
	return r.sketch()
}

// sketch checks a rule with several rows (a count-min sketch). The estimate for a flow or address
// is the least of its counters in all rows. It must not be below the expected count, and the
// counters of each row must have the total count as their sum.
func (r *stateRun) sketch() error {
	o := r.oracle
	total := uint64(0)
	for _, k := range o.keys {
		estimate := uint64(math.MaxUint64)
		for row := range r.plan.rows {
			estimate = min(estimate, r.slot(o.slotOf(&k.target, row)))
		}
		if estimate < k.amount {
			return fmt.Errorf("the sketch estimates %d for %+v, which has %d", estimate, k.target, k.amount)
		}
		total += k.amount
	}
	for row := range r.plan.rows {
		sum := uint64(0)
		for i := range r.plan.slots {
			sum += r.slot(row*r.plan.slots + i)
		}
		if sum != total {
			return fmt.Errorf("row %d has counted %d of %d", row, sum, total)
		}
	}
	return nil
}
