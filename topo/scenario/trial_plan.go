package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// trialPlan is what a seed decides for a trial.
type trialPlan struct {
	store.Trial
	servers, clients, rounds, keys int
	skew                           float64
	// mix has the upper bounds of get, put and insert for a random number from 0 to 1; above are
	// deletes.
	mix    [3]float64
	links  string
	rules  []fault.Rule
	faults []trialFault
	rack   simrack.Options
	params rdmacm.Params
}

// trialFault is a fault of a host. It begins late after the after-th operation has begun, and lasts
// for down.
type trialFault struct {
	what       string
	victim     string
	after      int
	late, down time.Duration
}

// Faults of hosts.
const (
	trialClientsDie = "clients die"
	trialNICHang    = "NIC hangs"
	trialHostHang   = "host hangs"
	trialLinkCut    = "link cut"
	trialNICCrash   = "NIC crashes"
	trialMemoryLost = "memory lost"
)

// trialHosts is the number of compute hosts in the rack. The last one, survivor, never fails.
const (
	trialHosts = 4
	survivor   = "cn3"
)

func trialServers(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("ms%d", i))
	}
	return out
}

func drawTrial(e *env, own func(*rand.Rand, int) store.Trial) *trialPlan {
	d := e.draw
	p := &trialPlan{
		servers: d.between(1, 3), clients: d.between(2, 10), rounds: d.between(10, 50), keys: one(d, 1, 2, 4, 8, 14), skew: one(d, 0.0, 0.3, 0.7),
		mix: one(d, [3]float64{0.4, 0.7, 0.9}, [3]float64{0.2, 0.3, 0.65}, [3]float64{0.1, 0.9, 0.95}, [3]float64{0.3, 0.4, 0.7}),
	}
	p.Trial = own(newDraw(d.Uint64()).Rand, p.servers)
	servers := trialServers(p.servers)
	p.links, p.rules = drawLinks(d, append(slices.Clone(servers), "cn0", "cn1", "cn2", survivor))
	for _, h := range servers {
		if d.chance(0.6) {
			p.rules = append(p.rules, fault.Rule{Link: h, Kind: fault.Tear, Probability: 0.05 + d.Float64()*0.5, Delay: d.span(0, 20*time.Microsecond)})
			p.links += "tear:" + h + " "
		}
	}
	p.rack = simrack.Options{Delay: d.span(200*time.Nanosecond, 5*time.Microsecond), Window: one(d, 4, 16, 64), Datagrams: d.chance(0.3)}
	e.v6 = d.chance(0.2)
	p.params = rdmacm.Params{PathMTU: one(d, verbs.MTU256, verbs.MTU1024), Timeout: uint8(d.between(6, 8)), RdAtomic: one(d, 2, 16)}
	if d.chance(0.3) {
		p.belated(d, servers)
	}
	if p.Crashes && d.chance(0.7) {
		p.fail(d, servers)
	}
	return p
}

// belated delays packets by milliseconds, until the requesters have given up their connections.
func (p *trialPlan) belated(d *draw, servers []string) {
	p.links, p.rules = p.links+"late ", slices.DeleteFunc(p.rules, func(r fault.Rule) bool { return r.Kind != fault.Tear })
	for _, h := range servers {
		for _, k := range []fault.Kind{fault.Reorder, fault.Duplicate} {
			p.rules = append(p.rules, fault.Rule{Link: h, Kind: k, Probability: 0.02, Delay: d.span(time.Millisecond, 15*time.Millisecond)})
		}
	}
	p.params.RetryCount = uint8(d.between(1, 3))
}

// fail draws faults of one to three different hosts.
func (p *trialPlan) fail(d *draw, servers []string) {
	hosts := append([]string{"cn0", "cn1", "cn2"}, servers...)
	d.Shuffle(len(hosts), func(i, j int) { hosts[i], hosts[j] = hosts[j], hosts[i] })
	for _, h := range hosts[:min(len(hosts), d.between(1, 3))] {
		x := trialFault{
			victim: h, after: d.between(1, max(1, p.clients*p.rounds*3/4)), late: d.span(0, 30*time.Microsecond), down: d.span(time.Millisecond, 120*time.Millisecond),
			what: one(d, trialClientsDie, trialClientsDie, trialNICHang, trialHostHang, trialLinkCut),
		}
		if h[0] == 'm' {
			x.what = one(d, trialNICHang, trialLinkCut, trialNICCrash, trialMemoryLost)
			if x.what == trialMemoryLost && !p.Loss {
				x.what = trialNICCrash
			}
		}
		p.faults = append(p.faults, x)
	}
}

// longest bounds the time for which an operation may be stopped because its host is.
func (p *trialPlan) longest() (out time.Duration) {
	for _, x := range p.faults {
		out += x.down
	}
	return out
}

// setFaults gives each link its faults.
func setFaults(e *env, rules []fault.Rule) {
	for _, h := range e.rack.Hosts() {
		h.SetFaults(slices.DeleteFunc(slices.Clone(rules), func(f fault.Rule) bool { return f.Link != h.Spec.Name }))
	}
}

// String prints the plan on one line.
func (p *trialPlan) String() string {
	s := fmt.Sprintf("%s; %d servers, %d clients, %d keys, %d rounds; links %s", p.Plan, p.servers, p.clients, p.keys, p.rounds, strings.TrimSpace(p.links))
	for _, x := range p.faults {
		s += fmt.Sprintf("; %s: %s after %d operations and %v, for %v", x.victim, x.what, x.after, x.late, x.down)
	}
	return s
}
