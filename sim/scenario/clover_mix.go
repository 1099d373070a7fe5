package scenario

import (
	"math"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// storeMixes are the mixes of Clover: named variations of a plan that storePlan.draw itself does not
// draw. Each has its name, its probability, the function that changes the plan, and the mixes that
// it excludes.
var storeMixes = planMixes[*storePlan]{
	{"sizes", 1, (*storePlan).mixSizes, nil},
	{"wear", 0.03, (*storePlan).mixWear, []string{"sizes", "keys", "format"}},
	{"keys", 0.25, (*storePlan).mixKeys, []string{"wear"}},
	{"format", 0.15, (*storePlan).mixFormat, []string{"wear", "sizes"}},
	{"late", 0.15, (*storePlan).mixLate, nil},
	{"faults", 0.25, (*storePlan).mixFaults, nil},
	{"hangs", 0.2, (*storePlan).mixHangs, nil},
	{"lazy", 0.5, func(p *storePlan, _ *draw) { p.lazy = true }, nil},
	{"after", 0.25, (*storePlan).mixAfter, nil},
	{"cache", 0.4, func(p *storePlan, _ *draw) { p.caches = true }, nil},
	{"spread", 0.4, func(p *storePlan, _ *draw) { p.spread = true }, nil},
	{"crowd", 0.15, (*storePlan).mixCrowd, []string{"wear", "keys"}},
	{"merge", 0.4, func(p *storePlan, _ *draw) { p.merged = true }, nil},
	{"turns", 0.4, func(p *storePlan, _ *draw) { p.turns = true }, nil},
	{"chase", 0.5, func(p *storePlan, _ *draw) { p.chase = true }, nil},
	{mixRules, 0.3, (*storePlan).mixRules, nil},
	{"balance", 0.4, func(p *storePlan, _ *draw) { p.balance = true }, nil},
	{mixServices, 0.1, (*storePlan).mixServices, []string{"faults", "hangs", "after"}},
}

// mixRules names the mix in which steering rules come and go. Only runs with a switch that steers
// can have it.
const mixRules = "rules"

// blend applies to p the mixes whose names are in `list`. If list is "", the seed draws them. The
// mixes in `without` are those that the scenario cannot have.
func (p *storePlan) blend(e *env, list string, without ...string) {
	chosen := storeMixes.choose(e.seed, list, without...)
	storeMixes.blend(p, e.seed, chosen)
	p.mixes = strings.Join(chosen, ",")
}

// mixSizes draws several lengths of values in about half of the runs. If they are similar, the size
// classes of nodes have fixed parts of the memory. If they are very different, the classes share
// the memory in segments of 32 KiB, or of 4 KiB in runs with less memory.
func (p *storePlan) mixSizes(d *draw) {
	switch {
	case d.chance(0.3):
		p.sizes, p.shares, p.region = []int{16, 104, 400, 1500, 3900, 7000}, [layout.Classes]int{}, 72*layout.UsualSegment
		if d.chance(0.4) {
			p.sizes, p.region = p.sizes[:5], max(1, p.replicas)*36*4096
		}
	case d.chance(0.3):
		p.sizes = []int{16, 40, 104, 200}
	}
}

// mixWear makes the pool so small and the run so long that the versions of nodes are used up: new
// epochs begin, and a node is reused with the same handle and version.
func (p *storePlan) mixWear(d *draw) {
	p.sizes, p.shares, p.slots = []int{one(d, 16, 40, 104)}, [layout.Classes]int{1}, 8
	p.keys, p.clients, p.region = d.between(1, 3), d.between(2, 4), 2<<10
	p.rounds = d.between(6000, 9000) / p.clients
	p.mix, p.batch = [4]float64{0.1, 0.98, 0.99, 1}, 2
	if p.after > 0 {
		p.after = d.between(1, p.clients*p.rounds*9/10)
	}
	if p.pace > 0 {
		p.pace = time.Duration(d.between(0, 2)) * p.lease / 100
	}
}

// mixKeys makes many keys, whose numbers lie anywhere in the range of 64 bits.
func (p *storePlan) mixKeys(d *draw) {
	p.keys = d.between(9, 60)
	p.first, p.stride = one(d, uint64(0), 1, 1<<40, math.MaxUint64), one(d, uint64(1), 7, 1<<32, 1<<57)
	p.slots = p.keys + d.between(0, p.keys)
	if len(p.sizes) == 1 {
		p.region = max(p.region, 96<<10)
	}
}

// mixFormat makes nodes without a checksum or, in the published format, without checksum and key.
// Such nodes are correct only while no memory copy is torn and every value fills its node. So
// mixFormat removes torn copies, and gives all values the one length that fills a node.
func (p *storePlan) mixFormat(d *draw) {
	p.format = one(d, layout.Keyed, layout.Published)
	p.sizes = []int{p.format.Capacity(layout.Class(one(d, 0, 1)).Size())}
	p.region = 512 << 10
	p.untear()
	p.links += "untorn "
}

// mixLate delays packets by up to 15 ms, so long that requesters may give up their connections.
func (p *storePlan) mixLate(d *draw) { p.belated(d, storeHostNames(p.servers)) }

// mixFaults plans two or three faults, which may overlap or hit the same machine.
func (p *storePlan) mixFaults(d *draw) {
	if !p.faulty(d) {
		return
	}
	for n := d.between(1, 2); len(p.then) < n; {
		s := p.next(d, false)
		list := p.faultList()
		if last := list[len(list)-1]; d.chance(0.4) {
			s.later = d.span(0, last.down) // the new fault begins while the one before it lasts
		}
		p.then = append(p.then, s)
	}
	p.paced(d)
}

// mixHangs makes one of the faults a hang of a NIC, of a whole host, or of the switch.
func (p *storePlan) mixHangs(d *draw) {
	if !p.faulty(d) {
		return
	}
	list := p.faultList()
	s := list[d.IntN(len(list))]
	if s == &p.storeFaultAt {
		p.loses = 0
	}
	s.what, s.down = one(d, storeHang, storeHostHang, storeSwitchHang), d.span(p.lease/2, 4*p.lease)
	if s.victim = ""; s.what != storeSwitchHang {
		s.victim = one(d, storeHostNames(p.servers)...)
	}
	p.paced(d)
}

// mixAfter makes each later fault begin two to four leases after the end of the fault before it,
// when lease and grace are over. If there is no later fault, mixAfter adds one.
func (p *storePlan) mixAfter(d *draw) {
	if !p.faulty(d) {
		return
	}
	if len(p.then) == 0 {
		p.then = append(p.then, p.next(d, false))
	}
	down := p.down
	for i := range p.then {
		p.then[i].later = down + d.span(2*p.lease, 4*p.lease)
		down = p.then[i].down
	}
	p.paced(d)
}

// mixCrowd makes many clients write one or two keys, so that several appends wait for each other in
// a switch that steers.
func (p *storePlan) mixCrowd(d *draw) {
	p.keys, p.clients, p.rounds = d.between(1, 2), d.between(6, 9), d.between(6, 12) // few rounds: the time to find an order grows with the number of concurrent clients
	p.mix, p.region = [4]float64{0.25, 0.8, 0.92, 1}, max(p.region, 96<<10)
	if p.after > 0 {
		p.after = d.between(1, p.clients*p.rounds/2)
	}
}

// mixRules makes an operator take away the steering rules of one or both servers, and set them
// again, up to three times. Meanwhile most nodes are reused.
func (p *storePlan) mixRules(d *draw) {
	p.tighten()
	if p.rack.Wrap == nil && d.chance(0.5) {
		p.storeFaultAt, p.then, p.loses, p.pace = storeFaultAt{}, nil, 0, 0
	}
	if !p.shared && d.chance(0.5) {
		// If the switch steers an operation to a stale tail, the client repeats the operation until
		// an append to the key corrects the switch. With few clients such appends are rare, so the
		// operation fails and the run shows the error. Many rounds make up for the few clients.
		p.clients, p.rounds = d.between(1, 3), d.between(60, 120)
		if p.after > 0 {
			p.after = d.between(1, p.clients*p.rounds/2)
		}
	}
	n := d.between(1, 3)
	part := p.clients * p.rounds / n
	for i := range n {
		from, to := d.between(1, part/2), d.between(part/2+1, part)
		servers := memoryServers(steeredServers)
		if d.chance(0.3) {
			servers = []string{one(d, servers...)}
		}
		p.rests = append(p.rests, storeRest{from: i*part + from, to: i*part + to, servers: servers})
	}
}

// tighten makes the pool so small that its nodes are reused soon.
func (p *storePlan) tighten() {
	if len(p.sizes) > 1 { // several classes of nodes share the memory, so one class cannot have all of it
		return
	}
	c, _ := layout.ClassOf(p.format.Overhead() + p.sizes[0])
	p.shares = [layout.Classes]int{}
	p.shares[c] = 1
	p.batch = min(p.batch, 2)
	p.region = 1<<10 + p.slots*32 + (p.clients*p.batch+p.keys)*c.Size()
}

// faulty draws a fault if the plan has none. It returns false if the plan loses steered appends
// (appendLoss), which is not combined with other faults.
func (p *storePlan) faulty(d *draw) bool {
	if p.rack.Wrap != nil {
		return false
	}
	if p.what == storeNothing {
		p.storeFaultAt.draw(d, p)
		p.after = d.between(1, p.clients*p.rounds/2)
	}
	return true
}

func (p *storePlan) faultList() []*storeFaultAt {
	list := []*storeFaultAt{&p.storeFaultAt}
	for i := range p.then {
		list = append(list, &p.then[i])
	}
	return list
}

// paced adds pauses between operations, so that some operations begin after all faults are over.
func (p *storePlan) paced(d *draw) {
	whole := 2 * p.lease
	for _, s := range p.faultList() {
		whole += s.later + s.down
	}
	p.pace = whole * time.Duration(d.between(1, 3)) / time.Duration(p.rounds)
}

func storeHostNames(servers int) []string {
	return append([]string{"md0"}, passiveHosts(servers)...)
}
