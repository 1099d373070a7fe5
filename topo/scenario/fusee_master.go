package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxMasters bounds the masters of one run; each has a host of its own.
const maxMasters = 2

// masterLane makes the draw of masters and of crashes of memory servers another one than that of the rest
// of the plan.
const masterLane = 0x3a57e5 << 32

// masterHost is the host of a master.
func masterHost(i int) string { return fmt.Sprintf("cn%d", computeHosts+maxDeaths+i) }

// drawMasters draws whether there is a master, and which memory servers crash: at most so many that one
// replica of everything remains. The second one may crash while the first one is being replaced. The master
// may be hung, often then, and another master may take its place.
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

// drawReign draws what happens to the master, when the crashes of servers are known.
func (p *tablePlan) drawReign(d *draw) {
	p.clientLease = one(d, 0, d.span(300*time.Millisecond, 3*time.Second))
	moment := func() int { return d.between(1, max(1, p.clients*p.rounds*3/4)) }
	if len(p.faults) > 1 && d.chance(0.5) { // in the middle of the change that the first crash needs
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
}

// masterPatience bounds the time in which a master takes charge of the store.
const masterPatience = 20 * time.Second

// reign starts the masters.
func (r *tableRun) reign() {
	for i := range r.plan.masters {
		h := r.env.rack.Host(masterHost(i))
		h.Go("master", true, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !r.made || i > 0 && (!r.ready || r.begun < r.plan.successor) {
				rt.Sleep(time.Millisecond)
			}
			cfg := r.plan.config(r.config(h, ctx))
			cfg.Lease, cfg.ClientLease = r.plan.rule, r.plan.clientLease
			end := rt.Now().Add(masterPatience)
			m, err := fusee.OpenMaster(cfg, end)
			for i > 0 && err != nil && rt.Now() < end { // the first one may be in the middle of a change
				m, err = fusee.OpenMaster(cfg, end)
			}
			if r.ready = true; err == nil {
				err = m.Run()
			}
			if i == 0 && r.plan.masters > 1 && errors.Is(err, fusee.ErrDeposed) {
				return
			}
			if err != nil && !errors.Is(err, verbs.ErrClosed) {
				r.env.fail("master on %s: %w", h.Spec.Name, err)
			}
		})
	}
}
