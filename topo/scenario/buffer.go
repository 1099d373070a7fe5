package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// The rack of buffer: senders send frames to ms0, whose port is slow, and the switch keeps those
// that must wait in the memory of ms1 to ms3.
const (
	bufferSenders = 8
	bufferServers = 3
	bufferBytes   = 1 << 20 // of each server of the ring
	bufferTo      = "ms0"
)

// bufferPlan is what a seed decides for a run of buffer.
type bufferPlan struct {
	wirePlan
	mode                    string
	servers, entries, entry int
	high, low, depth        int
	rate                    string
	frames, burst           int // of each sender; frames of a sender in one burst
	least, most             int // bytes of a frame
	gap                     time.Duration
	requests                int // WRITEs and READs of clients through the slow port
	wrap                    bool
	bufferFault
}

// bufferFault is what fails in the middle of a run.
type bufferFault struct {
	fault      stateFault
	victim     string
	when, down time.Duration
}

// rule returns the rule of the plan, in the form of a rack file.
func (p *bufferPlan) rule() string {
	return fmt.Sprintf("{id: slow, server: %s, action: buffer, ring: %q, rate: %s, mode: %s, high: %d, low: %d, entries: %d, entry: %d, depth: %d, offset: 64}",
		bufferTo, strings.Join([]string{"ms1", "ms2", "ms3"}[:p.servers], ","), p.rate, p.mode, p.high, p.low, p.entries, p.entry, p.depth)
}

// String prints the plan on one line.
func (p *bufferPlan) String() string {
	s := fmt.Sprintf("%s; %d senders of %d frames, %d to %d bytes, %d at a time every %v, %d requests, wrap=%v; links %s; %s", p.rule(), bufferSenders, p.frames,
		p.least, p.most, p.burst, p.gap, p.requests, p.wrap, strings.TrimSpace(p.links), p.fault)
	if p.fault != stateCalm {
		s += fmt.Sprintf(" of %s at %v for %v", p.victim, p.when, p.down)
	}
	return s
}

func drawBuffer(e *env) *bufferPlan {
	d := e.draw
	p := &bufferPlan{
		mode: modeHardened, servers: d.between(1, bufferServers), entry: one(d, 512, 1024, 2048, 4096), depth: one(d, 1, 2, 8, 16),
		rate: one(d, "50Mbit", "200Mbit", "1Gbit"), frames: d.between(20, 200), burst: d.between(1, 20), gap: d.span(10*time.Microsecond, time.Millisecond),
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
	if p.wrap = d.chance(0.5); p.wrap {
		p.rack.FirstPSN = func(r *rand.Rand) wire.PSN { return psnNearWrap(&draw{r}) }
	}
	p.victim = fmt.Sprintf("ms%d", d.between(1, p.servers))
	if p.fault == stateSwitchCrash {
		p.victim = "the switch"
	}
	p.when = d.span(100*time.Microsecond, 10*time.Millisecond)
	p.down = one(d, d.span(100*time.Microsecond, 2*time.Millisecond), d.span(20*time.Millisecond, 500*time.Millisecond))
	return p
}

// whole reports whether the plan has room for all frames and nothing that loses any.
func (p *bufferPlan) whole() bool {
	room := p.entry - 32
	return len(p.rules) == 0 && p.fault == stateCalm && p.requests == 0 && p.entries >= bufferSenders*p.frames*((p.most+room-1)/room)
}

// bufferRun is one run of buffer.
type bufferRun struct {
	env    *env
	plan   *bufferPlan
	oracle *bufferOracle
	memory [1 + bufferServers][]byte
	sent   int  // frames that senders have sent
	over   bool // the fault is over
	begun  bool
	down   bool // the switch is down
	ended  int  // clients that have ended
	checks int
	// before is how many frames the switch had dropped before the senders began: those of hello.
	before uint64
}

func runBuffer(e *env) error { return runBufferPlan(e, drawBuffer(e)) }

// runBufferPlan runs a plan.
func runBufferPlan(e *env, p *bufferPlan) error {
	r, err := beginBuffer(e, p)
	if err == nil {
		err = e.run()
	}
	if err != nil {
		return err
	}
	return r.judge()
}

// bufferVariant returns the run of buffer in a mode.
func bufferVariant(p Params) (func(*env) error, error) {
	return func(e *env) error {
		plan := drawBuffer(e)
		if plan.mode = p.Mode; p.Mode == "" {
			plan.mode = modeHardened
		}
		return runBufferPlan(e, plan)
	}, nil
}

// beginBuffer makes the rack and starts servers and the watcher, which starts the senders.
func beginBuffer(e *env, p *bufferPlan) (*bufferRun, error) {
	r := &bufferRun{env: e, plan: p, over: p.fault == stateCalm}
	e.report.Plan = fmt.Sprintf("%v ipv6=%v", p, e.v6)
	r.oracle = &bufferOracle{run: r}
	opt := p.rack
	opt.Wrap = wrapTwice(opt.Wrap, r.oracle.wrap)
	file := fmt.Sprintf("name: sim\nhosts:\n  - {name: \"cn[0-%d]\", role: compute}\n  - {name: \"ms[0-%d]\", role: memory}\nswitch:\n  program: swordbox\n  rules:\n    - %s\n",
		bufferSenders-1, bufferServers, p.rule())
	if err := e.build(file, opt); err != nil {
		return nil, err
	}
	e.setFaults(p.rules)
	for i := range r.memory {
		r.memory[i] = make([]byte, bufferBytes)
		r.serve(i)
	}
	e.rack.At(0, r.hello)
	r.watch()
	return r, nil
}

func (r *bufferRun) serve(i int) {
	r.env.serveMemory(fmt.Sprintf("ms%d", i), memservice.Config{Buffer: r.memory[i]}, nil)
}

// hello makes the addresses of all hosts known to the switch.
func (r *bufferRun) hello() {
	for _, h := range r.env.rack.Hosts() {
		f := make([]byte, 60)
		copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		copy(f[6:], h.Spec.MAC[:])
		binary.BigEndian.PutUint16(f[12:], bufferType+1)
		h.Inject(fault.Up, f, nil)
	}
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
	if r.plan.fault != stateCalm {
		r.env.rack.At(now.Add(r.plan.when), r.fail)
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
			return nil // its datagrams may be lost with the ring
		}
		var wcs [1]verbs.WC
		for range r.plan.requests {
			wr := verbs.SendWR{Op: one(d, verbs.OpWrite, verbs.OpRead), RKey: mem.RKey, RemoteAddr: mem.Addr, Flags: verbs.Signalled, SGL: []verbs.SGE{end.mr.SGE(0, d.between(1, 3000))}}
			if err := end.qp.PostSend(wr); err != nil {
				return err
			}
			if _, err := end.await(wcs[:], mixPatience); err != nil {
				return err
			}
			if wcs[0].Status != verbs.Success {
				return nil // retries may end before the queue does
			}
		}
		return nil
	})
}

// fail injects the fault of the plan and schedules its end.
func (r *bufferRun) fail() {
	rack, h := r.env.rack, r.env.rack.Host(r.plan.victim)
	var end func()
	switch r.plan.fault {
	case stateSwitchCrash:
		r.down = true
		rack.CrashSwitch()
		end = func() {
			r.env.restartSwitch()
			r.down = false
			r.hello()
		}
	case stateLinkCut:
		h.SetLink(false)
		end = func() { h.SetLink(true) }
	case stateNICCrash:
		h.Crash()
		end = func() {
			h.Restart()
			r.serve(int(r.plan.victim[2] - '0'))
		}
	case stateHang:
		h.Hang()
		end = h.Resume
	case stateCalm:
		return
	}
	rack.At(rack.Now().Add(r.plan.down), func() {
		end()
		r.over = true
	})
}

// counts returns the counters of the switch's handler by name.
func (r *bufferRun) counts() map[string]uint64 {
	group, out := "buffer", make(map[string]uint64)
	if r.plan.mode == modePublished {
		group += " published"
	}
	p, ok := r.env.rack.Program().(*swordbox.Program)
	if !ok {
		return nil
	}
	for _, g := range p.Counters(r.env.rack.Now()) {
		if g.Name == group {
			for _, c := range g.Counters {
				out[c.Name] = c.Value
			}
		}
	}
	return out
}

// dropped returns how many frames the switch says it has dropped or lost.
func (r *bufferRun) dropped() uint64 {
	c := r.counts()
	return c["lost"] + c["full"] + c["blocked"] + c["long"]
}

// count returns one of counts.
func (r *bufferRun) count(name string) uint64 { return r.counts()[name] }

// connected reports whether the switch has a connection to each server of the ring.
func (r *bufferRun) connected() bool {
	p, ok := r.env.rack.Program().(*swordbox.Program)
	return ok && p.Own().Dialer().Stats().Established >= uint64(r.plan.servers)
}

// Bounds of the watcher, in virtual time.
const (
	bufferEvery = 300 * time.Microsecond
	// bufferQuiet is how long after the last frame and the last fault the queue may take to end.
	bufferQuiet = 20 * time.Second
)

// watch starts an application that starts the senders when the ring can be reached, and checks the
// counters every now and then until the queue is empty.
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
				case r.connected() && (empty || late && r.plan.mode == modePublished): // a lost READ keeps its frames in the ring for ever
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
			case r.count("waiting") == 0 && r.count("remote") == 0:
				return nil
			case r.plan.mode == modePublished && rt.Now().Sub(quiet) > bufferQuiet/10:
				return nil
			case rt.Now().Sub(quiet) > bufferQuiet:
				return fmt.Errorf("%d frames wait in the switch and %d in the ring %v after the last one", r.count("waiting"), r.count("remote"), bufferQuiet)
			}
		}
	})
}

// check compares what the switch says where each frame is, in the middle of a run.
func (r *bufferRun) check() error {
	r.checks++
	if r.oracle.err != nil && r.plan.mode == modeHardened {
		return r.oracle.err
	}
	if r.plan.mode == modePublished {
		return nil
	}
	c := r.counts()
	if sum := c["sent"] + c["waiting"] + c["remote"] + c["lost"] + c["full"] + c["blocked"] + c["long"]; sum != c["frames"] {
		return fmt.Errorf("the switch took %d frames, and says where %d are: %v", c["frames"], sum, c)
	}
	return nil
}

// judge compares what has arrived with what the counters say, after the run.
func (r *bufferRun) judge() error {
	c := r.counts()
	dropped := r.dropped() - r.before
	r.env.note("%d of %d frames arrived; %d went to the ring, %d came back, %d lost, %d full, %d blocked, %d long; %d WRITEs without bytes; %d checks",
		r.oracle.arrived, r.sent, c["stored"], c["loaded"], c["lost"], c["full"], c["blocked"], c["long"], c["requester_emptied"], r.checks)
	if r.plan.mode == modePublished {
		return nil
	}
	if err := r.check(); err != nil {
		return err
	}
	gone := uint64(r.sent - r.oracle.arrived)
	switch {
	case r.plan.fault == stateSwitchCrash:
	case r.plan.requests > 0 && gone > dropped, r.plan.requests == 0 && gone != dropped:
		return fmt.Errorf("%d frames did not arrive; the switch counts %d: %v", gone, dropped, c)
	case r.plan.whole() && gone != 0:
		return fmt.Errorf("%d frames did not arrive, though nothing was lost on a link and the ring has room: %v", gone, c)
	}
	if r.oracle.arrived == 0 && r.plan.requests == 0 { // the clients' packets may take all places
		return errors.New("no frame arrived")
	}
	return nil
}
