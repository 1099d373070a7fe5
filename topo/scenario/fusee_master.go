package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxMasters bounds the masters of one run; each has a host of its own.
const maxMasters = 1

// masterLane makes the draw of masters and of crashes of memory servers another one than that of the rest
// of the plan.
const masterLane = 0x3a57e5 << 32

// drawMasters draws whether there is a master, and which memory servers crash: at most so many that one
// replica of everything remains.
func (p *tablePlan) drawMasters(d *draw) {
	if p.servers < 2 || d.chance(0.3) {
		return
	}
	p.masters, p.rule = 1, d.span(200*time.Millisecond, 500*time.Millisecond)
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

// masterPatience bounds the time in which a master takes charge of the store.
const masterPatience = 20 * time.Second

// reign starts the masters.
func (r *tableRun) reign() {
	for i := range r.plan.masters {
		h := r.env.rack.Host(fmt.Sprintf("cn%d", computeHosts+maxDeaths+i))
		h.Go("master", true, func(ctx verbs.Context) {
			rt := ctx.Runtime()
			for !r.made {
				rt.Sleep(time.Millisecond)
			}
			cfg := r.plan.config(r.config(h, ctx))
			cfg.Lease = r.plan.rule
			m, err := fusee.OpenMaster(cfg, rt.Now().Add(masterPatience))
			if r.ready = true; err == nil {
				err = m.Run()
			}
			if err != nil && !errors.Is(err, verbs.ErrClosed) {
				r.env.fail("master on %s: %w", h.Spec.Name, err)
			}
		})
	}
}
