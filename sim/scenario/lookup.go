package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// The rack of the scenario lookup. cn0 sends flows to cn1, and the switch looks each packet up in a
// table in the memory of ms1 and ms2. The table's entries may send packets to cn2 and cn3 instead.
const (
	lookupHosts   = 4
	lookupServers = 2
	lookupBytes   = 1 << 20 // memory of each server of the table
	lookupRule    = "look"
	lookupBase    = 72 // not a multiple of the slots' length, so that copies of slots can tear
)

// lookupChanges says which process changes the entries of flows while the flows send.
type lookupChanges string

const (
	changesNone    lookupChanges = "no one"
	changesControl lookupChanges = "the control plane"
	changesWriter  lookupChanges = "another writer" // a client that WRITEs to the table; its WRITEs tear
)

// lookupPlan has the choices that the seed makes for a run of lookup.
type lookupPlan struct {
	wirePlan
	// mode, packets, servers, capacity, cells, cell, cache and depth are keys of the switch's rule of action
	// lookup.
	mode, packets             string
	servers, capacity         int
	cells, cell, cache, depth int
	flows                     int
	theta                     float64 // exponent of the Zipf distribution by which packets are spread over flows
	frames                    int     // of cn0
	bursts                    bursts
	payload                   payload
	drop                      bool // the switch drops a packet without an entry; otherwise it forwards the packet
	churn                     int  // number of entries of flows that do not send, which come and go during the run
	changes                   lookupChanges
	ternary                   bool // the entries of flows are under the first of four masks; packets without one have the entry of the third mask
	wrap                      bool
	midFault
}

// lookupMasks are the masks of a ternary run. No entry is under the second one, and none under the last.
const lookupMasks = "from+to+proto+sport+dport,from/8+sport/0xff00+proto,to/24+proto,any"

// payload has the bounds of the length of a frame's payload, in bytes.
type payload struct{ least, most int }

// bursts are how many frames the sender sends at once at most, and the longest time between two bursts.
type bursts struct {
	most int
	gap  time.Duration
}

// rule returns the text of the plan's switch rule, in the form of a rack file.
func (p *lookupPlan) rule() string {
	miss := "forward"
	if p.drop {
		miss = "drop"
	}
	match := "match: flow"
	if p.ternary {
		match = fmt.Sprintf("match: ternary, masks: %q", lookupMasks)
	}
	return fmt.Sprintf("{id: %s, server: cn0, action: lookup, table: %q, mode: %s, capacity: %d, cells: %d, cell: %d, cache: %d, depth: %d, miss: %s, packets: %s, base: %d, %s}",
		lookupRule, strings.Join([]string{"ms1", "ms2"}[:p.servers], ","), p.mode, p.capacity, p.cells, p.cell, p.cache, p.depth, miss, p.packets, lookupBase, match)
}

func (p *lookupPlan) String() string {
	return fmt.Sprintf("%s; %d flows by Zipf %.2f, %d frames of %d to %d bytes, %d at a time every %v, churn %d, changes by %s, wrap=%v; links %s; %s", p.rule(), p.flows, p.theta,
		p.frames, p.payload.least, p.payload.most, p.bursts.most, p.bursts.gap, p.churn, p.changes, p.wrap, strings.TrimSpace(p.links), &p.midFault)
}

func (p *lookupPlan) draw(e *env) *lookupPlan {
	d := e.draw
	*p = lookupPlan{
		mode: modeHardened, servers: d.between(1, lookupServers), capacity: one(d, 16, 16, 64, 4096), cells: one(d, 1, 8, 128), cell: one(d, 512, 2048),
		cache: one(d, 0, 0, 4, 64), depth: one(d, 1, 2, 8, 16), flows: one(d, 1, 8, 24, 100), theta: one(d, 0, 0.8, 1.2), frames: d.between(50, 1000),
		bursts: bursts{d.between(1, 16), d.span(2*time.Microsecond, 200*time.Microsecond)}, payload: payload{least: d.between(20, 100)}, drop: d.chance(0.2), churn: one(d, 0, 10, 100),
	}
	p.payload.most = p.payload.least + one(d, 0, 300, 1400)
	p.fault = one(d, stateCalm, stateCalm, stateCalm, stateSwitchCrash, stateLinkCut, stateNICCrash, stateHang)
	var hosts []string
	if d.chance(0.6) {
		hosts = []string{"ms1", "ms2"}
	}
	p.drawWire(e, hosts, nil, 0)
	e.v6 = d.chance(0.3)
	p.params.Timeout, p.params.RetryCount = 14, 7
	p.rack.Datagrams = true
	p.wrap = d.nearWrap(&p.rack)
	p.drawTimes(d, fmt.Sprintf("ms%d", d.between(1, p.servers)))
	p.packets = one(d, "deposit", "recirculate")
	if t := newDraw(e.seed ^ ternaryLane); t.chance(0.3) { // a lane of its own: the other choices of a seed stay
		p.ternary, p.servers = true, 1
		p.drawTimes(d, "ms1")
	}
	p.changes = changesNone
	switch d.IntN(4) {
	case 0, 1:
		p.changes = changesControl
	case 2:
		p.otherWriter()
	}
	return p
}

type lookupRun struct {
	lenders
	plan   *lookupPlan
	oracle *lookupOracle
	zipf   *kv.Zipf
	asked  int  // entries that the switch has accepted so far
	loaded bool // all entries are in the table in the servers' memory
	// written: true if the switch has sent the WRITEs of all entries.
	written bool
	sent    int  // frames that cn0 has sent so far
	over    bool // the plan's fault is over, or the plan has none
	checks  int
	// changed counts the changes of entries of flows that send. If all earlier changes are complete
	// before a change, the oracle reads the table; quiet counts these reads.
	changed, quiet int
}

// lookupVariant returns the run of lookup in the mode p.Mode.
func lookupVariant(p Params) (func(*env) error, error) {
	return func(e *env) error {
		plan := new(lookupPlan).draw(e)
		if p.Mode == modePublished { // in published mode each slot has a whole cell, so fewer slots fit the memory
			plan.ternary = false
			plan.mode, plan.packets, plan.capacity, plan.cells = modePublished, "deposit", min(plan.capacity, 64), 128
		}
		return e.complete(plan.begin(e))
	}, nil
}

// begin builds the rack and starts the memory servers and the watcher. The watcher loads the
// table and then starts the sender.
func (p *lookupPlan) begin(e *env) (*lookupRun, error) {
	r := &lookupRun{lenders: lenders{env: e, group: "lookup"}, plan: p, over: p.fault == stateCalm, zipf: kv.NewZipf(uint64(p.flows), p.theta)}
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	r.oracle = r.newOracle()
	if err := r.build(&p.wirePlan, lookupHosts, 1+lookupServers, lookupBytes, p.rule(), r.oracle.wrap); err != nil {
		return nil, err
	}
	e.rack.At(0, e.rack.Announce)
	r.watch()
	return r, nil
}

// change hands changes of entries, given as text, to the switch. remove is true if they remove
// entries. It returns how many of them the switch has accepted, and how many changes are not
// complete yet.
func (r *lookupRun) change(list []string, remove bool) (taken, waiting int, err error) {
	out, err := r.env.rack.ChangeEntries(handler.Entries{Rule: lookupRule, Entries: list, Remove: remove})
	return out.Taken, out.Waiting, err
}

// load hands the entries that the switch has not accepted yet to the switch, and sets r.loaded when
// all entries are in the table.
func (r *lookupRun) load() error {
	list := r.oracle.entries()
	n, waiting, err := r.change(list[r.asked:], false)
	r.asked += n
	if r.asked < len(list) || waiting > 0 {
		return err
	}
	// Under a published rule, waiting is 0 as soon as all WRITEs are sent. They have been executed
	// when load is called again. So the first call that comes here only sets r.written, and the
	// next one sets r.loaded.
	if r.loaded = r.written || r.plan.mode == modeHardened; r.loaded {
		r.oracle.readTable()
		if n, m := r.count("written"), len(r.oracle.slots())+r.oracle.others(); n != uint64(m) && r.plan.mode == modeHardened {
			r.oracle.fail(fmt.Errorf("%d entries were written, and %d are in the table", n, m))
		}
	}
	r.written = true
	return err
}

// begin starts the sender and the fault of the plan.
func (r *lookupRun) begin() {
	now := r.env.rack.Now()
	d := newDraw(r.env.draw.Uint64())
	r.env.rack.At(now, func() { r.burst(d) })
	r.disturb(&r.plan.midFault, &r.over)
	if r.plan.changes == changesWriter {
		r.startWriter(newDraw(r.env.draw.Uint64()))
	}
}

// burst sends the next frames, and changes entries if the plan says so.
func (r *lookupRun) burst(d *draw) {
	h := r.env.rack.Host("cn0")
	for range min(r.plan.bursts.most, r.plan.frames-r.sent) {
		h.Inject(fault.Up, r.oracle.next(d, int(r.zipf.Next(d.Rand))), nil)
		r.sent++
	}
	r.operate(d)
	if r.sent < r.plan.frames {
		r.env.rack.At(r.env.rack.Now().Add(d.span(0, r.plan.bursts.gap)), func() { r.burst(d) })
	}
}

// watch starts an application that loads the table, starts the sender, and checks the counters at
// intervals until no frame is in flight.
func (r *lookupRun) watch() {
	r.env.client("ms0", "watcher", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		quiet := clock.Time(0)
		for {
			rt.Sleep(bufferEvery)
			if !r.loaded {
				if err := r.load(); err != nil {
					return err
				}
				if rt.Now() > clock.Time(bufferQuiet) {
					return fmt.Errorf("%d entries taken, and not in the table after %v: %v", r.asked, bufferQuiet, r.counts())
				}
				if r.loaded {
					r.begin()
				}
				continue
			}
			if r.down {
				continue
			}
			if err := r.check(); err != nil {
				return err
			}
			switch {
			case r.sent < r.plan.frames || !r.over:
			case quiet == 0:
				quiet = rt.Now()
			case r.count("in_flight") == 0 && r.count("cells") == 0 && rt.Now().Sub(quiet) > 10*bufferEvery,
				r.plan.mode == modePublished && rt.Now().Sub(quiet) > bufferQuiet/10:
				return nil
			case rt.Now().Sub(quiet) > bufferQuiet:
				return fmt.Errorf("%v after the last frame: %v", bufferQuiet, r.counts())
			}
		}
	})
}

// check compares the switch's counters with each other, during the run and after it: each frame
// that the switch took must be counted in exactly one place.
func (r *lookupRun) check() error {
	r.checks++
	if r.plan.mode == modePublished {
		return nil
	}
	if r.oracle.err != nil {
		return r.oracle.err
	}
	c := r.counts()
	if sum := c["cached"] + c["hits"] + c["misses"] + c["in_flight"] + c["torn"] + c["unfit"] + c["lost"] + c["full"] + c["blocked"] + c["long"]; sum != c["frames"] {
		return fmt.Errorf("the switch took %d frames, and its counters account for %d: %v", c["frames"], sum, c)
	}
	return nil
}

// judge compares, after the run, the frames that have arrived with the switch's counters.
func (r *lookupRun) judge() error {
	c, o := r.counts(), r.oracle
	r.env.note("%d of %d frames arrived; %d entries, %d refused; %d cached, %d hits, %d misses, %d denied, %d lost, %d full, %d blocked, %d torn; %d WRITEs without bytes; %d entries changed; %d checks",
		o.arrived(), r.sent, len(o.slots()), c["refused"], c["cached"], c["hits"], c["misses"], c["denied"], c["lost"], c["full"], c["blocked"], c["torn"],
		c["requester_emptied"], r.changed, r.checks)
	if r.plan.mode == modePublished {
		r.env.report.Damage = strings.Join(slices.Sorted(maps.Keys(o.wrong)), ", ")
		return nil
	}
	if err := r.check(); err != nil {
		return err
	}
	if r.plan.fault == stateSwitchCrash { // the restarted switch has counted from 0 again
		return nil
	}
	found, missed := c["cached"]+c["hits"]-c["denied"], c["misses"]
	if r.plan.drop { // of a ternary run, too: each packet has an entry
		missed = 0
	}
	switch {
	case c["frames"] != uint64(r.sent):
		return fmt.Errorf("%d frames were sent; the switch counts %d", r.sent, c["frames"])
	case found != o.found:
		return fmt.Errorf("%d frames with an entry arrived; the switch counts %d: %v", o.found, found, c)
	case missed != o.missed:
		return fmt.Errorf("%d frames without an entry arrived; the switch counts %d: %v", o.missed, missed, c)
	case c["torn"] != 0 && r.plan.changes != changesWriter || c["unfit"]+c["long"] != 0 && r.plan.payload.most < r.plan.cell*r.plan.cells:
		return fmt.Errorf("frames are torn, unfit or long: %v", c)
	case len(r.plan.rules) == 0 && r.plan.fault == stateCalm && c["lost"] != 0:
		return fmt.Errorf("frames are lost, though nothing was lost on a link: %v", c)
	case o.arrived() == 0 && r.plan.fault == stateCalm && c["denied"]+c["misses"]+c["lost"]+c["full"]+c["blocked"] == 0:
		return errors.New("no frame arrived")
	}
	return nil
}
