package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// treeTrigger calls fire when a host has sent a number of requests of a kind.
type treeTrigger struct {
	host string // the host whose requests are counted; "" means any compute host
	when treeMoment
	page int // length of a page in bytes: for atSplit only WRITEs of at least a page count
	left int // number of requests until fire is called; 0: it is not called any more
	fire func()

	frame wire.Frame
}

func (t *treeTrigger) see(ev *simnet.Event) {
	if t.left == 0 || ev.Kind != simnet.Sent || ev.Dir() != fault.Up || wire.ParseFrame(ev.Frame, &t.frame) != nil {
		return
	}
	link := ev.Link()
	if link[0] != 'c' || t.host != "" && link != t.host || t.frame.BTH.DestQP <= 1 || !t.matches(t.frame.BTH.Opcode) {
		return
	}
	if t.left--; t.left == 0 {
		t.fire()
	}
}

// loseOne puts a tap in front of every memory server. The taps drop the request for which the trigger
// waits, and inject the first fault at that moment.
func (r *treeRun) loseOne() {
	lose := func(now clock.Time, _ int, in *packetio.Frame) bool {
		t := r.trigger
		if t.left > 0 && r.ready && wire.ParseFrame(in.Data, &t.frame) == nil && sentBy(r.env.rack.Host(t.host), &t.frame) && t.matches(t.frame.BTH.Opcode) {
			if t.left--; t.left == 0 {
				r.env.rack.At(now, func() { r.inject(0) })
				return false
			}
		}
		return true
	}
	r.plan.rack.Wrap = func(name string, n simnet.Node) simnet.Node {
		if name[0] == 'm' {
			n = &simnet.Tap{Node: n, Pass: lose}
		}
		return n
	}
}

// matches reports whether the trigger counts a request with opcode op; t.frame is the request. That
// depends on t.when, for example atWrite counts the first packets of WRITEs.
func (t *treeTrigger) matches(op wire.Opcode) bool {
	write := op == wire.RCWriteOnly || op == wire.RCWriteFirst
	switch t.when {
	case atLock:
		return op == wire.RCCmpSwap
	case atSplit:
		return write && int(t.frame.RETH.Length) >= t.page
	case atWrite:
		return write
	default:
		return op.Is(wire.OpRequest)
	}
}

// arm sets the trigger of the first fault of the plan.
func (r *treeRun) arm() {
	p := r.plan
	if len(p.faults) == 0 {
		return
	}
	first := p.faults[0]
	host := first.victim
	if host == "" || host[0] != 'c' || first.what == treeLinkCut {
		host = ""
	}
	r.trigger = &treeTrigger{host: host, when: first.when, page: p.shape.WithDefaults().Page, left: first.after, fire: func() {
		r.env.rack.At(r.env.rack.Now().Add(first.late), func() { r.inject(0) })
	}}
	if p.loses {
		r.loseOne()
		return
	}
	r.env.spy = func(ev *simnet.Event) {
		if r.ready {
			r.trigger.see(ev)
		}
	}
}

// inject injects fault number i of the plan, and schedules its end and the next fault.
func (r *treeRun) inject(i int) {
	rack, p := r.env.rack, r.plan.faults[i]
	if over := r.down[p.victim]; over > rack.Now() { // the victim is down already
		rack.At(over.Add(time.Microsecond), func() { r.inject(i) })
		return
	}
	r.injected++
	r.down[p.victim] = rack.Now().Add(p.down)
	h := rack.Host(p.victim)
	end := func() {}
	switch p.what {
	case treeClientCrash:
		h.CrashApps() // requests that the clients have posted may still be executed, late
	case treeClientHang, treeServerHang:
		h.Hang()
		end = h.Resume
	case treeHostHang:
		h.HangAll()
		end = h.ResumeAll
	case treeNICCrash:
		h.Crash()
		end = func() {
			h.Restart()
			r.serve(p.victim)
		}
	case treeMemoryCrash:
		h.Crash()
		r.lost = true
		end = func() {
			clear(r.memory[p.victim])
			h.Restart()
			r.serve(p.victim)
		}
	case treeSwitchCrash:
		rack.CrashSwitch()
		end = r.env.restartSwitch
	case treeSwitchHang:
		rack.HangSwitch()
		end = rack.ResumeSwitch
	case treeLinkCut:
		h.SetLink(false)
		end = func() { h.SetLink(true) }
	case treeNothing:
	}
	over := rack.Now().Add(p.down)
	rack.At(over, end)
	if i+1 < len(r.plan.faults) {
		next := over.Add(r.plan.faults[i+1].pause)
		rack.At(next, func() { r.inject(i + 1) })
		over = max(over, next)
	}
	r.env.goOnUntil(over)
}

// rules is called when the memory service of a server has started. It gives the switch a rule to
// replace the atomics on the server's lock words. The rule selects them by the R_Key of the lock
// table.
func (r *treeRun) rules(server string, table verbs.MR) {
	box, ok := r.env.rack.Program().(*swordbox.Program)
	if !ok || table == nil {
		return
	}
	others := slices.DeleteFunc(slices.Clone(box.Rules().All()), func(x rules.Rule) bool { return x.ID == server })
	rule, err := r.env.rack.Rule(fmt.Sprintf("id=%s server=%s action=atomics mode=hardened rkey=%#x range=0-%#x service=memory misses=%v",
		server, server, table.RKey(), table.Len(), r.env.missesIn()))
	if err == nil {
		err = r.env.rack.SetRules(append(others, rule)...)
	}
	if err != nil {
		r.env.fail("locks of %s: %w", server, err)
	}
}
