package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// The rack of the scenario buffer. Senders send frames to ms0, whose port is slow. The switch keeps
// the frames that must wait for this port in a ring in the memory of ms1 to ms3.
const (
	bufferSenders = 8
	bufferServers = 3
	bufferBytes   = 1 << 20 // memory of each server of the ring
	bufferTo      = "ms0"
)

// bufferRule has the keys of the switch's rule of action buffer. The ring has `entries` entries of
// `entry` bytes in the memory of `servers` servers. high and low are the numbers of waiting frames
// at which frames go to the ring and come back from it. depth is how many READs and atomics may be
// in flight on a connection of the switch.
type bufferRule struct {
	mode                    string
	servers, entries, entry int
	high, low, depth        int
	rate                    string
}

func (r *bufferRule) String() string {
	return fmt.Sprintf("id=slow server=%s action=buffer ring=%s rate=%s mode=%s high=%d low=%d entries=%d entry=%d depth=%d offset=64",
		bufferTo, strings.Join([]string{"ms1", "ms2", "ms3"}[:r.servers], ","), r.rate, r.mode, r.high, r.low, r.entries, r.entry, r.depth)
}

// bufferPlan has the choices that the seed makes for a run of buffer.
type bufferPlan struct {
	wirePlan
	bufferRule
	change        string        // what an operator changes: one of the values of Params.Change; "" means that there is no operator
	frames, burst int           // frames of each sender; how many of them it sends at once
	least, most   int           // bounds of a frame's length in bytes
	gap           time.Duration // the longest time between two bursts of a sender
	requests      int           // WRITEs and READs of a client through the slow port
	wrap          bool          // first PSNs are so large that PSNs wrap around
	room          int           // bytes of memory of each server; 0 means bufferBytes
	midFault
	begun func(r *bufferRun) // for tests: called when the senders begin, instead of operator.begin; nil: not called
}

func (p *bufferPlan) String() string {
	return fmt.Sprintf("%v; %d senders of %d frames, %d to %d bytes, %d at a time every %v, %d requests, wrap=%v; links %s; %v", &p.bufferRule, bufferSenders, p.frames,
		p.least, p.most, p.burst, p.gap, p.requests, p.wrap, strings.TrimSpace(p.links), &p.midFault)
}

func (p *bufferPlan) draw(e *env) *bufferPlan {
	d := e.draw
	*p = bufferPlan{
		bufferRule: bufferRule{
			mode: modeHardened, servers: d.between(1, bufferServers), entry: one(d, 512, 1024, 2048, 4096), depth: one(d, 1, 2, 8, 16),
			rate: one(d, "50Mbit", "200Mbit", "1Gbit"),
		},
		frames: d.between(20, 200), burst: d.between(1, 20), gap: d.span(10*time.Microsecond, time.Millisecond),
	}
	p.fault = one(d, stateCalm, stateCalm, stateCalm, stateSwitchCrash, stateLinkCut, stateNICCrash, stateHang)
	p.high = one(d, 1, 8, 64)
	p.low = d.between(1, min(p.high, 8))
	p.entries = one(d, 1, d.between(2, 100), bufferBytes/2/p.entry)
	p.least = d.between(18, 200)
	p.most = p.least + one(d, 0, 300, 1300, 4000)
	var hosts []string
	if d.chance(0.6) {
		hosts = []string{"ms1", "ms2", "ms3"}
	}
	p.drawWire(e, hosts, nil, 0)
	e.v6 = d.chance(0.3)
	p.params.Timeout, p.params.RetryCount = 14, 7
	p.rack.Datagrams = true
	if d.chance(0.3) {
		p.requests = d.between(10, 100)
	}
	p.wrap = d.nearWrap(&p.rack)
	p.drawTimes(d, fmt.Sprintf("ms%d", d.between(1, p.servers)))
	return p
}

// whole reports whether no frame can be lost under the plan: the ring has room for all frames,
// nothing fails, no operator changes the rule, and no client uses the slow port, too.
func (p *bufferPlan) whole() bool {
	room := p.entry - 32
	return p.change == "" && len(p.rules) == 0 && p.fault == stateCalm && p.requests == 0 && p.entries >= bufferSenders*p.frames*((p.most+room-1)/room)
}

type bufferRun struct {
	lenders
	plan     *bufferPlan
	oracle   *bufferOracle
	operator bufferOperator
	sent     int  // frames that the senders have sent so far
	over     bool // the plan's fault is over, or the plan has none
	begun    bool // begin was called
	ended    int  // clients that have ended; begin sets it to 1 if the plan has no client
	checks   int  // how often check was called
	// before is how many frames the switch had dropped when the senders began. judge does not count
	// these.
	before uint64
}

// bufferVariant returns the run of buffer in the mode p.Mode, or with an operator who changes the
// rule as p.Change says.
func bufferVariant(p Params) (func(*env) error, error) {
	if p.Change != "" && p.Mode != "" {
		return nil, errors.New("--change: not with --mode, which it draws itself")
	}
	return func(e *env) error {
		plan := new(bufferPlan).draw(e)
		plan.mode, plan.change = cmp.Or(p.Mode, modeHardened), p.Change
		return e.complete(plan.begin(e))
	}, nil
}

// begin builds the rack and starts the memory servers and the watcher. The watcher starts the
// senders later.
func (p *bufferPlan) begin(e *env) (*bufferRun, error) {
	r := &bufferRun{lenders: lenders{env: e, group: "buffer"}, plan: p, over: p.fault == stateCalm}
	r.operator = bufferOperator{run: r, published: p.mode == modePublished}
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	r.oracle = &bufferOracle{run: r}
	if err := r.build(&p.wirePlan, bufferSenders, 1+bufferServers, cmp.Or(p.room, bufferBytes), yamlRule(p.bufferRule.String()), r.oracle.wrap); err != nil {
		return nil, err
	}
	e.rack.At(0, e.rack.Announce)
	r.watch()
	return r, nil
}

// begin starts the senders, the clients and the fault of the plan.
func (r *bufferRun) begin() {
	r.begun, r.before = true, r.dropped()
	now := r.env.rack.Now()
	for i := range bufferSenders {
		d := newDraw(r.env.draw.Uint64())
		r.env.rack.At(now.Add(d.span(0, r.plan.gap)), func() { r.burst(d, i, 0) })
	}
	if r.plan.requests > 0 {
		r.client()
	} else {
		r.ended = 1
	}
	r.disturb(&r.plan.midFault, &r.over)
	switch {
	case r.plan.begun != nil:
		r.plan.begun(r)
	case r.plan.change != "":
		r.operator.begin(newDraw(r.env.draw.Uint64()))
	}
}

// burst sends the next frames of a sender, which has sent n so far.
func (r *bufferRun) burst(d *draw, sender, n int) {
	h := r.env.rack.Host(fmt.Sprintf("cn%d", sender))
	for range min(r.plan.burst, r.plan.frames-n) {
		h.Inject(fault.Up, r.oracle.frame(d, sender, n), nil)
		n++
		r.sent++
	}
	if n < r.plan.frames {
		r.env.rack.At(r.env.rack.Now().Add(d.span(0, r.plan.gap)), func() { r.burst(d, sender, n) })
	}
}

// client starts a client, whose WRITEs and READs pass the slow port.
func (r *bufferRun) client() {
	d := newDraw(r.env.draw.Uint64())
	r.env.client("cn0", "client", func(ctx verbs.Context) error {
		defer func() { r.ended++ }()
		end, err := newEnds(ctx, 4096, 8, verbs.LocalWrite)
		if err != nil {
			return err
		}
		mem, err := memservice.Dial(r.env.rack.Host("cn0").Manager(ctx), end.qp, r.env.addrOf(bufferTo), r.plan.params, ctx.Runtime().Now().Add(dialPatience))
		if err != nil {
			return nil // a lost datagram of the connection manager is no error: it passes the slow port, where the switch may drop frames
		}
		for range r.plan.requests {
			wc, err := end.do(verbs.SendWR{
				Op: one(d, verbs.OpWrite, verbs.OpRead), RKey: mem.RKey, RemoteAddr: mem.Addr, SGL: []verbs.SGE{end.mr.SGE(0, d.between(1, 3000))},
			})
			if err != nil {
				return err
			}
			if wc.Status != verbs.Success {
				return nil // the client's retries may run out while its request waits in the queue of the slow port
			}
		}
		return nil
	})
}

// dropped returns how many frames the switch says it has dropped or lost.
func (r *bufferRun) dropped() uint64 {
	c := r.counts()
	return c["lost"] + c["full"] + c["blocked"] + c["long"] + c["down"]
}

// connected reports whether the switch has a connection to each server of the ring.
func (r *bufferRun) connected() bool {
	p, ok := r.env.rack.Program().(*swordbox.Program)
	return ok && p.Own().Dialer().Stats().Established >= uint64(r.plan.servers)
}

const (
	// bufferEvery is the interval of checks while frames are sent; afterwards it is ten times as
	// long.
	bufferEvery = 300 * time.Microsecond
	// bufferQuiet is how long after the last frame and the last fault the queue may take to become
	// empty.
	bufferQuiet = 20 * time.Second
)

// hazards reports whether the holes of a published rule may have done damage, so that the run's
// checks do not count. It is true if the rule was published and no operator changed it. If an
// operator changed the rule between published and hardened, hazards is true only if links or
// machines failed: without faults, such a run must lose no frame.
func (r *bufferRun) hazards() bool {
	return r.operator.published && (r.plan.change == "" || len(r.plan.rules) > 0 || r.plan.fault != stateCalm)
}

// watch starts an application that waits until the switch can reach the ring, starts the senders,
// and checks the counters at intervals until the queue is empty.
func (r *bufferRun) watch() {
	r.env.client("cn7", "watcher", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		quiet := clock.Time(0)
		for {
			if rt.Sleep(bufferEvery); quiet != 0 {
				rt.Sleep(9 * bufferEvery)
			}
			if !r.begun {
				empty := r.count("waiting")+r.count("remote") == 0
				late := rt.Now() > clock.Time(bufferQuiet/10)
				switch {
				case r.connected() && (empty || late && r.hazards()): // under a published rule, a lost READ leaves the frames of its entry in the ring for ever, so the run does not wait until the ring is empty
					r.begin()
				case rt.Now() > clock.Time(bufferQuiet):
					return fmt.Errorf("the switch has no connection to the ring, or %d frames are still in it, after %v", r.count("remote"), bufferQuiet)
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
			case r.sent < bufferSenders*r.plan.frames || !r.over || r.ended == 0:
			case quiet == 0:
				quiet = rt.Now()
			case r.count("waiting") == 0 && r.count("remote") == 0, r.hazards() && rt.Now().Sub(quiet) > bufferQuiet/10:
				return nil
			case rt.Now().Sub(quiet) > bufferQuiet:
				return fmt.Errorf("%d frames wait in the switch and %d in the ring %v after the last one", r.count("waiting"), r.count("remote"), bufferQuiet)
			}
		}
	})
}

// check compares the switch's counters with each other, during the run and after it: each frame
// that the switch took must be counted in exactly one place.
func (r *bufferRun) check() error {
	r.checks++
	if r.hazards() {
		return nil
	}
	if r.oracle.err != nil {
		return r.oracle.err
	}
	c := r.counts()
	if sum := c["sent"] + c["waiting"] + c["remote"] + r.dropped(); sum != c["frames"] {
		return fmt.Errorf("the switch took %d frames, and its counters account for %d: %v", c["frames"], sum, c)
	}
	return nil
}

// judge compares, after the run, the frames that have arrived with the switch's counters.
func (r *bufferRun) judge() error {
	c := r.counts()
	dropped := r.dropped() - r.before
	r.env.note("%d of %d frames arrived; %d went to the ring, %d came back, %d lost, %d full, %d blocked, %d long, %d to a port that was down; %d WRITEs without bytes; %d checks",
		r.oracle.arrived, r.sent, c["stored"], c["loaded"], c["lost"], c["full"], c["blocked"], c["long"], c["down"], c["requester_emptied"], r.checks)
	o := &r.operator
	r.env.note("the operator changed the rule %d times, %d times its mode, %d times to a ring that does not fit", o.changes, o.modes, o.misfits)
	if err := r.check(); err != nil {
		return err
	}
	if r.hazards() {
		if err := r.oracle.err; err != nil && r.plan.change != "" {
			r.env.report.Damage = err.Error()
		}
		return nil
	}
	gone := uint64(r.sent - r.oracle.arrived)
	switch {
	case r.plan.fault == stateSwitchCrash:
	case r.plan.requests > 0 && gone > dropped, r.plan.requests == 0 && gone != dropped:
		return fmt.Errorf("%d frames did not arrive; the switch counts %d: %v", gone, dropped, c)
	case r.plan.whole() && gone != 0:
		return fmt.Errorf("%d frames did not arrive, though nothing was lost on a link and the ring has room: %v", gone, c)
	}
	// If a client makes requests, their packets may take all places of the queue. If the switch is down while the senders send, no frame
	// reaches it.
	if r.oracle.arrived == 0 && r.plan.requests == 0 && r.oracle.taken > 0 {
		return fmt.Errorf("no frame arrived; %d reached the switch", r.oracle.taken)
	}
	return nil
}
