package scenario

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// mixedHosts is the number of hosts, cn0 and so on, that send packets of several protocols to each
// other (teleFrames) in the scenarios telemetry and packet-trace.
const mixedHosts = 4

// mixedPlan has the choices for what these hosts send.
type mixedPlan struct {
	flows, frames, burst int
	theta                float64       // exponent of the Zipf distribution of frames over flows
	gap                  time.Duration // the longest time between two bursts
}

func (d *draw) mixed() mixedPlan {
	return mixedPlan{
		flows: one(d, 1, 10, 200), frames: d.between(50, 800),
		burst: d.between(1, 16), theta: one(d, 0, 0.8, 1.2), gap: d.span(2*time.Microsecond, 200*time.Microsecond),
	}
}

func (p *mixedPlan) String() string {
	return fmt.Sprintf("%d flows by Zipf %.2f, %d frames, %d at a time every %v", p.flows, p.theta, p.frames, p.burst, p.gap)
}

// mixed is a run in which these hosts send, while the switch keeps something of each frame in
// servers' memory, and one fault happens.
type mixed struct {
	lent   *lenders
	sends  *mixedPlan
	fault  *midFault
	made   teleFrames
	zipf   *kv.Zipf
	sent   int // frames that hosts have sent so far
	over   bool
	checks int
}

// mixed makes a run over the servers of l.
func (l *lenders) mixed(p *mixedPlan, f *midFault) mixed {
	return mixed{
		lent: l, sends: p, fault: f, made: teleFrames{env: l.env}, zipf: kv.NewZipf(uint64(p.flows), p.theta), over: f.fault == stateCalm,
	}
}

// start starts the senders and the checks. crash is called when the switch crashes.
func (c *mixed) start(check func() error, waiting string, crash func()) {
	c.lent.env.rack.At(0, c.lent.env.rack.Announce)
	d := newDraw(c.lent.env.draw.Uint64())
	c.lent.env.rack.At(clock.Time(c.sends.gap), func() { c.burst(d) })
	c.watch(check, waiting)
	if c.fault.fault != stateCalm {
		c.lent.env.rack.At(clock.Time(c.fault.when), func() { c.fail(crash) })
	}
}

// burst sends the next frames. What some of the hosts send is not for a rule.
func (c *mixed) burst(d *draw) {
	for range min(c.sends.burst, c.sends.frames-c.sent) {
		from := d.IntN(mixedHosts)
		frame := c.made.next(d, from, int(c.zipf.Next(d.Rand)))
		c.lent.env.rack.Host(fmt.Sprintf("cn%d", from)).Inject(fault.Up, frame, nil)
		c.sent++
	}
	if c.sent < c.sends.frames {
		c.lent.env.rack.At(c.lent.env.rack.Now().Add(d.span(0, c.sends.gap)), func() { c.burst(d) })
	}
}

// fail injects the fault and schedules its end.
func (c *mixed) fail(crash func()) {
	crashed := c.fault.fault == stateSwitchCrash
	if crashed {
		crash()
	}
	c.lent.env.goOnUntil(c.lent.inject(c.fault, func() {
		c.over = true
		if crashed {
			c.lent.env.rack.Announce()
		}
	}))
}

// watch starts an application that calls check at intervals, until the last frame was sent and
// nothing waits in the switch: the counter `waiting` and that of requests in flight are 0.
func (c *mixed) watch(check func() error, waiting string) {
	c.lent.env.client("ms0", "watcher", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		quiet := clock.Time(0)
		for {
			rt.Sleep(stateEvery)
			if c.lent.down {
				continue
			}
			if err := check(); err != nil {
				return err
			}
			left, flying := c.lent.count(waiting), c.lent.count("in_flight")
			switch {
			case c.sent < c.sends.frames || !c.over:
			case quiet == 0:
				quiet = rt.Now()
			case left == 0 && flying == 0 && rt.Now().Sub(quiet) > 3*stateEvery:
				return nil
			case rt.Now().Sub(quiet) > stateQuiet:
				return fmt.Errorf("%d %s in the switch and %d in flight %v after the last frame", left, waiting, flying, stateQuiet)
			}
		}
	})
}
