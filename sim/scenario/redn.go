package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Programs of the scenario redn. Each client uses one of them.
const (
	chainSequential = "sequential"
	chainParallel   = "parallel"
	chainList       = "list"
	chainRecycled   = "recycled" // lookups by a loop, each round of which answers one lookup
)

// Faults of the server in the scenario redn.
const (
	chainCalm  = "none"
	chainKill  = "kill"  // the server's process is killed; no request may fail, because the NIC alone answers
	chainCrash = "crash" // the server's NIC crashes; the clients' requests end with RetryExcErr
)

// Sizes of the scenario redn.
const (
	chainDepth   = 4 // the most lookups of a client in flight
	chainNodeLen = 64
	// chainSlotOff is the offset of the slot (see redn.SlotLen) in the chainNodeLen bytes of a
	// bucket. Only the recycled program uses slots.
	chainSlotOff = 32
	// chainManyKeys is the approximate number of keys in the largest table. A bucket of this table
	// has a key with probability 0.8.
	chainManyKeys = 10_000
)

// chainPlan has the choices that the seed makes for a run of redn.
type chainPlan struct {
	wirePlan
	programs  []string // by client: the program that answers its requests
	rounds    int      // requests that each client makes
	probes    int      // buckets in which a lookup looks for its key
	buckets   int
	nodes     []int // by list: its number of nodes
	value     int   // bytes of a value
	depth     int   // the most lookups of a client in flight, for the programs without a loop
	published bool  // the answers are in a queue that the NIC reads ahead (see chainPlan.runPublished)
	fault     string
	when      time.Duration // time from the last client's connection to the fault
}

func (p *chainPlan) draw(e *env) *chainPlan {
	d := e.draw
	*p = chainPlan{
		rounds: d.between(5, 60), probes: d.between(1, 3), buckets: one(d, 4, 64, 1000, chainManyKeys*5/4), value: one(d, 1, 8, 64, 300, 3000), depth: d.between(1, chainDepth),
		fault: one(d, chainCalm, chainCalm, chainKill, chainKill, chainCrash),
	}
	if p.buckets > chainManyKeys {
		p.value = min(p.value, chainNodeLen)
	}
	for range d.between(1, 2*computeHosts) {
		p.programs = append(p.programs, one(d, chainSequential, chainParallel, chainList, chainRecycled))
	}
	for range d.between(1, 4) {
		p.nodes = append(p.nodes, d.between(0, 64))
	}
	p.drawWire(e, passiveHosts(1), nil, 0)
	p.params.RetryCount = 7
	p.when = d.span(0, 3*time.Millisecond)
	p.rack.Loopback = one(d, 0, d.span(50*time.Nanosecond, 2*time.Microsecond))
	return p
}

func (p *chainPlan) String() string {
	return fmt.Sprintf("%s; %d requests each, %d probes, %d buckets, lists of %v, values of %d bytes, depth %d, published=%t; links %s; loopback %v; %s after %v",
		strings.Join(p.programs, " "), p.rounds, p.probes, p.buckets, p.nodes, p.value, p.depth, p.published, strings.TrimSpace(p.links), p.rack.Loopback, p.fault, p.when)
}

// chainRun is one run of redn: clients whose requests the NIC of a server answers, by programs that the
// server's process has built.
type chainRun struct {
	env       *env
	plan      *chainPlan
	clients   []*chainClient
	server    *chainServer
	connected int  // clients whose connections are made and whose programs run
	failed    bool // the plan's fault has happened
	answered  int
	hits      int
	stale     int // lookups of keys that exist and were answered as misses
	broken    int // clients whose connection has failed
	unserved  int // requests that were answered after the death of the server's process
}

// runPublished runs lookups whose answers are in a queue that is not managed. The NIC reads
// ahead in such a queue: it may have read an answer before the CAS of the program changes the
// answer. Damage is not a failure of the run: it is written into the report.
func (p *chainPlan) runPublished(e *env) error {
	p.draw(e)
	p.published, p.fault = true, chainCalm
	for i := range p.programs {
		p.programs[i] = one(e.draw, chainSequential, chainParallel)
	}
	return e.complete(p.begin(e))
}

// begin builds the rack and starts the server and the clients.
func (p *chainPlan) begin(e *env) (*chainRun, error) {
	e.report.Plan = p.String()
	if err := e.build(passiveRack(1, computeHosts), p.rack); err != nil {
		return nil, err
	}
	e.setFaults(p.rules)
	r := &chainRun{env: e, plan: p}
	r.server = r.newServer()
	r.server.start()
	for i, program := range p.programs {
		r.clients = append(r.clients, r.newClient(i, program))
	}
	return r, nil
}

// served is called when the receives for a client's program are posted, so that this client does
// not need the server's process any more. When all clients are served, the time to the fault
// begins.
func (r *chainRun) served() {
	if r.connected++; r.connected < len(r.plan.programs) || r.plan.fault == chainCalm {
		return
	}
	r.env.rack.At(r.env.rack.Now().Add(r.plan.when), func() {
		r.failed = true
		h := r.env.rack.Host(server)
		if r.plan.fault == chainKill {
			h.CrashApps()
			return
		}
		h.CrashNIC()
	})
}

// crashed reports whether the server's NIC has crashed.
func (r *chainRun) crashed() bool { return r.failed && r.plan.fault == chainCrash }

// lossy reports whether links lose packets by a list of fault rules, so that a connection may rightly
// reach its retry limit.
func lossy(list []fault.Rule) bool {
	return slices.ContainsFunc(list, func(r fault.Rule) bool { return r.Kind == fault.Loss || r.Kind == fault.Corrupt })
}

// mayBreak reports whether a connection may end with status s: after a crash of the NIC, or with
// links that lose packets.
func (r *chainRun) mayBreak(s verbs.Status) bool {
	return s == verbs.RetryExcErr && (r.crashed() || lossy(r.plan.rules))
}

// judge judges the run by its counts and the server's memory.
func (r *chainRun) judge() error {
	c := r.env.rack.Host(server).Counters()
	r.env.note("%d requests answered, %d with a value, %d after the death of the server's process; the NIC executed %d entries; %d connections failed",
		r.answered, r.hits, r.unserved, c.RingEntries, r.broken)
	if r.plan.published {
		if r.stale > 0 {
			r.env.report.Damage = "lookups of keys that are there were answered as misses (stale fetch)"
			r.env.note("%d lookups of keys that are there were answered as misses", r.stale)
		}
		return nil
	}
	if r.stale > 0 {
		return errors.New("a lookup of a key that is there was answered as a miss")
	}
	if r.crashed() {
		return nil
	}
	if c.RingRefused > 0 {
		return fmt.Errorf("the server's NIC has refused %d entries", c.RingRefused)
	}
	if err := r.server.unchanged(); err != nil {
		return err
	}
	if want := len(r.plan.programs) * r.plan.rounds; r.broken == 0 && r.answered != want {
		return fmt.Errorf("%d requests were answered, %d were made", r.answered, want)
	}
	return nil
}
