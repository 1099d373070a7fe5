package scenario

import (
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// bufferOperator changes the rule of buffer at random times while frames arrive: its rate, its
// bounds, its ring, and with changeModes its mode. Sometimes the ring does not fit the servers'
// memory, and sometimes there is no rule.
type bufferOperator struct {
	run  *bufferRun
	draw *draw
	most time.Duration // the longest time between two changes
	// changes counts all changes of the rule, modes those that changed its mode, and misfits those
	// to a ring that is larger than the servers' memory.
	changes, modes, misfits int
	published               bool   // true if any rule so far was published
	mode                    string // mode of the last rule that was drawn; at first that of the plan
}

// begin schedules the first change.
func (o *bufferOperator) begin(d *draw) {
	p := o.run.plan
	o.draw, o.mode = d, p.mode
	sending := p.gap * time.Duration(p.frames) / time.Duration(2*p.burst) // how long a sender needs on average for all its frames
	o.most = max(50*time.Microsecond, sending/one(d, time.Duration(3), 10, 30))
	o.next()
}

// next schedules a change at a random time, and then the next one, until the senders have sent all
// frames. While the switch is down, nothing changes.
func (o *bufferOperator) next() {
	r := o.run
	r.env.rack.At(r.env.rack.Now().Add(o.draw.span(20*time.Microsecond, o.most)), func() {
		if !r.down {
			o.change()
		}
		if r.sent < bufferSenders*r.plan.frames {
			o.next()
		}
	})
}

// change replaces the rule by a new one, or, in one of ten cases, by none.
func (o *bufferOperator) change() {
	if o.changes++; o.draw.chance(0.1) {
		o.set(nil)
		return
	}
	o.set(o.rule())
}

// set replaces the switch's rule by a new one; nil removes the rule.
func (o *bufferOperator) set(rule *bufferRule) {
	r, list := o.run, []rules.Rule(nil)
	var err error
	if rule != nil {
		o.published = o.published || rule.mode == modePublished
		list = make([]rules.Rule, 1)
		list[0], err = r.env.rack.Rule(rule.String())
	}
	if err == nil {
		err = r.env.rack.SetRules(list...)
	}
	if err != nil {
		r.env.fail("change %d of the rule: %w", o.changes, err)
		return
	}
	r.env.rack.StepSwitch(r.env.rack.Program().Tick)
}

// rule draws the next rule from the plan's rule: its rate and, in some cases, its mode, bounds and
// ring.
func (o *bufferOperator) rule() *bufferRule {
	d, rule := o.draw, o.run.plan.bufferRule
	if o.run.plan.change == changeModes && d.chance(0.6) {
		o.mode = map[string]string{modeHardened: modePublished, modePublished: modeHardened}[o.mode]
		o.modes++
	}
	rule.mode = o.mode
	rule.rate = one(d, rule.rate, "20Mbit", "500Mbit", "10Gbit")
	if d.chance(0.3) {
		rule.high = one(d, 1, 8, 64)
		rule.low = d.between(1, min(rule.high, 8))
	}
	if d.chance(0.3) {
		rule.servers, rule.entry = d.between(1, bufferServers), one(d, 512, 1024, 2048, 4096)
		rule.entries = one(d, 1, d.between(2, 100), bufferBytes/2/rule.entry)
	}
	if d.chance(0.1) {
		rule.entries = bufferServers*bufferBytes/512 + d.between(1, 100)
		o.misfits++
	}
	return &rule
}
