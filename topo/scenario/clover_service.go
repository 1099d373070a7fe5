package scenario

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// serviceHang describes the hang of a memory service in a run: at hungAt its process stops, while
// its NIC goes on to execute requests. starved counts the operations that had to wait for it too
// long (see noteStarved).
type serviceHang struct {
	hungAt  clock.Time
	starved int
}

// mixServices names the mix in which a memory service hangs and nothing else fails. Runs with a
// switch that steers, and those with shared queue pairs, do not have it.
const mixServices = "services"

// servicePatience is how long after the hang of a memory service operations on a store with copies
// may be unanswered. In this time the metadata server notices the hang and removes the server from
// the view.
const servicePatience = 5 * time.Second

// mixServices makes a memory service hang: for a short time, or so long that a store with copies
// goes on without it. Some clients open the store during the hang. In half of the runs no link has
// faults.
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

// newcomerPatience bounds how long a newcomer, a client that opens the store after the first fault
// has begun, waits for this fault.
const newcomerPatience = 20 * time.Second

// await returns at once, but makes the last clients, the newcomers of the plan, wait until the
// first fault has begun.
func (r *storeRun) await(id int, rt verbs.Runtime) {
	if id < r.plan.clients-r.plan.newcomers {
		return
	}
	for end := rt.Now().Add(newcomerPatience); !r.injected && rt.Now() < end; {
		rt.Sleep(time.Millisecond)
	}
}

// noteStarved is called for an operation that ended with ErrTimeout. It counts the operation if it
// began long after the hang of a memory service and waited until its deadline: a store with copies
// must go on without that service if the links have no faults. An operation that ended before its
// deadline is not counted: a change of the view has interrupted it, perhaps the change that brings
// the server back.
func (r *storeRun) noteStarved(began, ended clock.Time) {
	if r.plan.replicas > 1 && len(r.plan.rules) == 0 && r.hungAt != 0 && began > r.hungAt.Add(servicePatience) && ended >= began.Add(storePatience) {
		r.starved++
	}
}
