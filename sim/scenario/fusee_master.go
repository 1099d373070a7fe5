package scenario

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxMasters bounds the number of masters of one run. Each of them has a host for itself.
const maxMasters = 2

func masterHost(i int) string { return fmt.Sprintf("cn%d", computeHosts+maxDeaths+i) }

// drawMasters draws whether the run has masters, and which memory servers crash: so few that one
// replica of all data is left. The second server may crash while the store recovers from the
// crash of the first. The master may hang, often at that time, and another master may take its
// place (see drawReign).
func (p *tablePlan) drawMasters(d *draw) {
	if p.servers < 2 || d.chance(0.3) {
		return
	}
	p.masters, p.rule = 1, d.span(200*time.Millisecond, 500*time.Millisecond)
	defer p.drawReign(newDraw(d.Uint64()))
	if d.chance(0.15) {
		return
	}
	p.format.Replicas, p.format.IndexReplicas = d.between(2, p.servers), d.between(2, p.servers)
	for n := d.between(1, min(p.format.Replicas, p.format.IndexReplicas)-1); len(p.faults) < n; {
		victim := fmt.Sprintf("ms%d", d.IntN(p.servers))
		if len(p.faults) > 0 && p.faults[0].victim == victim {
			continue
		}
		p.faults = append(p.faults, trialFault{
			what: trialServerDies, victim: victim, after: d.between(1, max(1, p.clients*p.rounds*3/4)),
			late: d.span(0, 30*time.Microsecond), down: d.span(time.Millisecond, 900*time.Millisecond),
		})
	}
}

// drawReign draws what happens to the masters. The crashes of memory servers have been drawn
// before.
func (p *tablePlan) drawReign(d *draw) {
	p.clientLease = one(d, 0, d.span(300*time.Millisecond, 3*time.Second))
	moment := func() int { return d.between(1, max(1, p.clients*p.rounds*3/4)) }
	if len(p.faults) > 1 && d.chance(0.5) { // the second server crashes in the middle of the change of members that the first crash causes
		p.faults[1].after, p.faults[1].late = p.faults[0].after, p.faults[0].late+d.span(0, 3*p.rule)
	}
	first := moment()
	if len(p.faults) > 0 && d.chance(0.7) {
		first = p.faults[0].after
	}
	if p.vigil = d.chance(0.5); p.vigil {
		return
	}
	if d.chance(0.6) {
		p.faults = append(p.faults, trialFault{
			what: trialHostHang, victim: masterHost(0), after: first, late: d.span(0, 3*p.rule), down: d.span(50*time.Millisecond, 3*time.Second),
		})
	}
	if d.chance(0.6) {
		p.masters, p.successor = 2, one(d, first, moment())
	}
	if p.standby = d.chance(0.5); p.standby {
		p.masters, p.successor = 2, 0
		if d.chance(0.6) { // the master or the standby dies
			p.faults = append(p.faults, trialFault{
				what: trialMasterDies, victim: masterHost(d.IntN(2)), after: one(d, first, moment()), late: d.span(0, 3*p.rule), down: d.span(100*time.Millisecond, 3*time.Second),
			})
		}
	}
}

// masterPatience bounds how long a master may take to take charge of the store. It also bounds how
// long it may take, after all clients have ended, until the members are settled (see steady).
const masterPatience = 20 * time.Second

// reign starts the masters of the plan. It also sets revive: when the host of a master has
// restarted, it runs a master again (see resume).
func (r *tableRun) reign() {
	for i := range r.plan.masters {
		r.rule(i, i > 0 && r.plan.standby)
	}
	r.revive = func(host string) {
		for i := range r.plan.masters {
			if masterHost(i) == host {
				r.resume(i)
			}
		}
	}
}

// patience is how long resume waits for a sign that any master is alive before it starts a master
// itself. A standby takes charge after 4 leases, and needs more time while packets are lost. A
// master that hangs goes on when its fault is over.
func (p *tablePlan) patience() time.Duration {
	long := 8*p.rule + time.Second
	for _, x := range p.faults {
		if x.what == trialHostHang {
			long += x.down
		}
	}
	return long
}

// latePatience bounds how long a packet of a program that has died may still be in flight.
const latePatience = 100 * time.Millisecond

// resume is called when the host of master i has restarted, and starts its program again. The
// program becomes the standby of the master that is in charge. If no master shows within patience
// that it is alive, the dead master had no standby that could take charge. Then resume starts a
// master, as an operator would. Each further call waits longer than the one before, because two
// masters that begin at the same time may end each other.
func (r *tableRun) resume(i int) {
	h := r.env.rack.Host(masterHost(i))
	h.Go("master", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		rt.Sleep(latePatience)
		was := r.reignWords()
		r.resumed++
		for end := rt.Now().Add(time.Duration(r.resumed) * r.plan.patience()); rt.Now() < end; rt.Sleep(time.Millisecond) {
			for k, word := range r.reignWords() {
				if word != 0 && word != was[k] { // a master has changed the word; 0 means that the server has lost its memory
					r.rule(i, true)
					return
				}
			}
		}
		r.env.note("no standby has taken the place of the master: another one begins on %s", h.Spec.Name)
		r.rule(i, false)
	})
}

// reignWords returns, for each server, the word in its memory that the master in charge changes to
// show that it is alive.
func (r *tableRun) reignWords() []uint64 {
	words := make([]uint64, r.plan.servers)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(r.memory[i][layout.ReignWord:])
	}
	return words
}

// rule runs master i on its host. If standby is true, it begins as a standby, otherwise it takes
// charge.
func (r *tableRun) rule(i int, standby bool) {
	h := r.env.rack.Host(masterHost(i))
	h.Go("master", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		for !r.made || i > 0 && (!r.ready || r.tally.begun < r.plan.successor) {
			rt.Sleep(time.Millisecond)
		}
		cfg := r.plan.config(r.config(h, ctx))
		cfg.Lease, cfg.ClientLease = r.plan.rule, r.plan.clientLease
		var m *fusee.Master
		var err error
		if !standby {
			end := rt.Now().Add(masterPatience)
			m, err = fusee.OpenMaster(cfg, end)
			for (i > 0 || r.ready) && err != nil && rt.Now() < end { // another master may be in the middle of a change
				m, err = fusee.OpenMaster(cfg, end)
			}
			r.ready = true
		}
		if err == nil {
			err = fusee.Reign(cfg, m, nil, func() bool { return r.plan.standby }, func(*fusee.Master) { r.reigns++ })
		}
		if i == 0 && r.plan.masters > 1 && errors.Is(err, fusee.ErrDeposed) {
			return
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			r.env.fail("master on %s: %w", h.Spec.Name, err)
		}
	})
}

// calm lets the rack run on after all clients have ended, until the members of the store are
// settled, because a master may be in the middle of a change. If they are not settled within
// masterPatience, calm returns nil nevertheless: judge finds this defect.
func (r *tableRun) calm() error {
	rack := r.env.rack
	for end := rack.Now().Add(masterPatience); r.plan.masters > 0 && !r.rests() && rack.Now() < end; {
		if err := rack.Settle(settleTime); err != nil {
			return err
		}
	}
	return nil
}

// rests reports whether the members are settled, and all servers that come back are members again.
func (r *tableRun) rests() bool { return r.steady() && (!r.plan.returns() || r.whole() == nil) }

// steady reports whether the members are settled: all members have the latest view, and its state
// is not layout.Preparing.
func (r *tableRun) steady() bool {
	last := r.latest()
	for i := range r.plan.servers {
		if last.Has(i) && r.viewAt(i) != last {
			return false
		}
	}
	return last.State() != layout.Preparing
}

// theSwitch names the switch as the victim of a fault.
const theSwitch = "the switch"

// drawSwitch draws whether the switch crashes, at any time, or about the time of another crash. A
// crash loses all packets in flight and separates all hosts. The switch may be down for longer than
// the lease of the master, which then takes all memory servers for dead.
func (p *tablePlan) drawSwitch(d *draw) {
	if d.chance(0.7) {
		return
	}
	for range d.between(1, 2) {
		x := trialFault{
			what: trialSwitchDies, victim: theSwitch, after: d.between(1, max(1, p.clients*p.rounds*3/4)),
			late: d.span(0, 30*time.Microsecond), down: d.span(time.Millisecond, 900*time.Millisecond),
		}
		if len(p.faults) > 0 && d.chance(0.6) {
			other := one(d, p.faults...)
			x.after, x.late = other.after, other.late+d.span(0, max(time.Millisecond, 3*p.rule))
		}
		p.faults = append(p.faults, x)
	}
	p.cut = true
}
