package scenario

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// serviceHang is the hang of a memory service in a run: its process stops, while its NIC serves
// data. starved counts the operations that noteStarved reports.
type serviceHang struct {
	hungAt  clock.Time
	starved int
}

// mixServices is the mix of runs in which a memory service hangs, and nothing else. Steered runs and
// those with shared queue pairs do not have it.
const mixServices = "services"

// servicePatience is how long after the hang of a memory service a store with copies may leave
// operations unanswered: the metadata server notices it, and changes the view.
const servicePatience = 5 * time.Second

// mixServices makes a memory service hang, shortly or until a store with copies has gone on without it.
// Some clients open the store meanwhile. Half of the runs have links without faults.
func (p *storePlan) mixServices(d *draw) {
	p.then, p.loses, p.newcomers = nil, 0, d.between(1, p.clients-1)
	p.storeFaultAt = storeFaultAt{
		what: storeServiceHang, victim: one(d, memoryServers(p.servers)...), after: d.between(1, max(1, (p.clients-p.newcomers)*p.rounds/4)),
		down: one(d, d.span(p.lease/2, 2*time.Second), d.span(2*time.Second, 4*time.Second), d.span(servicePatience, 9*time.Second)),
	}
	if d.chance(0.5) {
		p.rules, p.links = nil, "none"
	}
	p.pace = (p.down + time.Second) / time.Duration(p.rounds)
}

// newcomerPatience bounds the time that a client waits for the first fault.
const newcomerPatience = 20 * time.Second

// await makes a client that comes after the first fault has begun wait until then.
func (r *storeRun) await(id int, rt verbs.Runtime) {
	if id < r.plan.clients-r.plan.newcomers {
		return
	}
	for end := rt.Now().Add(newcomerPatience); !r.injected && rt.Now() < end; {
		rt.Sleep(time.Millisecond)
	}
}

// noteStarved is called for an operation whose outcome is unknown. In a store with copies the hang of
// one memory service must not make operations wait until their deadlines for long, if the links have no
// faults. An operation that ends earlier was interrupted by a change of the view, also by the one that
// brings the server back.
func (r *storeRun) noteStarved(began, ended clock.Time) {
	if r.plan.replicas > 1 && len(r.plan.rules) == 0 && r.hungAt != 0 && began > r.hungAt.Add(servicePatience) && ended >= began.Add(storePatience) {
		r.starved++
	}
}
