package scenario

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/store/kv"
)

// treeMixes are named variations of a plan, which `--mix` adds to any run. Without `--mix`, a run
// has each of them with its probability. Mixes with probability 0 are those that treePlan.draw draws
// itself, for some seeds.
var treeMixes = planMixes[*treePlan]{
	{"sizes", 0.3, (*treePlan).mixSizes, []string{"wear"}},
	{"wear", 0, (*treePlan).mixWear, []string{"sizes", "keys", "format"}},
	{"keys", 0.2, (*treePlan).mixKeys, []string{"wear"}},
	{"format", 0, (*treePlan).publishedCalm, []string{"wear", "sizes", "late", "faults", "hangs", "after", "locks"}},
	{"late", 0, (*treePlan).mixLate, []string{"format"}},
	{"faults", 0.2, (*treePlan).mixFaults, []string{"format"}},
	{"hangs", 0.2, (*treePlan).mixHangs, []string{"format", "locks"}},
	{"after", 0.2, (*treePlan).mixAfter, []string{"format"}},
	{"locks", 0.2, (*treePlan).mixLocks, []string{"format", "hangs"}},
}

// blend changes the plan by the mixes that `list` names. If `list` is "", the seed draws the mixes.
func (p *treePlan) blend(e *env, list string) {
	chosen := treeMixes.choose(e.seed, list)
	if p.shape.Kind == layout.Published && list == "" {
		chosen = slices.DeleteFunc(chosen, func(name string) bool { return name != "keys" })
	}
	only := slices.IndexFunc(chosen, func(name string) bool { return name != "keys" }) < 0
	if p.shape.Kind == layout.Published && !only {
		p.hardened(newDraw(e.seed))
	}
	if p.small && slices.ContainsFunc(chosen, func(name string) bool { return name == "sizes" || name == "keys" || name == "format" }) {
		p.small, p.region, p.keys, p.rounds = false, 1<<20, 48, 50
	}
	if slices.Contains(chosen, "format") {
		p.faults = nil
	}
	treeMixes.blend(p, e.seed, chosen)
	p.mixes = strings.Join(chosen, ",")
}

// hardened changes a plan with the published layout to the hardened one.
func (p *treePlan) hardened(d *draw) {
	p.shape.Kind, p.lease = layout.Hardened, d.span(4*time.Millisecond, 20*time.Millisecond)
}

// mixSizes draws a length of pages from 256 bytes to 4 KiB, and any length of values.
func (p *treePlan) mixSizes(d *draw) {
	p.shape.Page, p.shape.Value = one(d, 256, 512, 1024, 2048, 4096), d.between(kv.MinValue, layout.MaxHardenedValue)
}

// mixWear plans a small memory, and clients that delete many keys (see wear).
func (p *treePlan) mixWear(d *draw) {
	p.wear(d) // wear may reduce the number of servers, so victims are drawn again
	for i := range p.faults {
		if s := &p.faults[i]; strings.HasPrefix(s.victim, "ms") {
			s.victim = fmt.Sprintf("ms%d", d.IntN(p.servers))
		}
	}
}

// mixKeys makes many keys, whose numbers lie anywhere in their range, so that the tree has several
// levels.
func (p *treePlan) mixKeys(d *draw) {
	p.keys = d.between(90, 300)
	p.first, p.stride = one(d, uint64(0), 1, 1<<40, layout.MaxKey), one(d, uint64(1), 7, 1<<32, math.MaxUint64/uint64(2*p.keys))
	p.shape.Page = min(p.shape.Page, 512)
	p.rounds, p.skew = d.between(60, 120), 0.2
	p.mix = one(d, [4]float64{0.15, 0.25, 0.9, 0.95}, [4]float64{0.3, 0.4, 0.65, 0.7})
}

// mixFaults plans two or three faults, which may overlap or hit the same machine.
func (p *treePlan) mixFaults(d *draw) {
	for n := d.between(2, 3); len(p.faults) < n; {
		s := p.drawFaultAt(d)
		if len(p.faults) > 0 {
			last := p.faults[len(p.faults)-1].down
			s.pause = one(d, -last+d.span(0, last), d.span(0, p.lease), d.span(p.lease, 4*p.lease))
		}
		p.faults = append(p.faults, s)
	}
	p.paced(d)
}

// mixHangs makes the first fault a hang of a NIC, a whole host, or the switch. The hang begins at
// the moment that was drawn for the fault, for example when a client has a lock.
func (p *treePlan) mixHangs(d *draw) {
	p.hasFault(d)
	s := &p.faults[0]
	s.what, s.victim, s.down = one(d, treeClientHang, treeHostHang, treeHostHang, treeServerHang, treeSwitchHang), "", d.span(p.lease/2, 5*p.lease)
	switch s.what {
	case treeServerHang:
		s.victim = fmt.Sprintf("ms%d", d.IntN(p.servers))
	case treeClientHang, treeHostHang:
		s.victim = fmt.Sprintf("cn%d", d.IntN(min(computeHosts, p.clients)))
	default:
	}
	p.paced(d)
}

// mixAfter makes each fault except the first begin at least a lease after the end of the fault
// before it: by then a dead owner has been fenced. If the plan has only one fault, mixAfter adds a
// second one.
func (p *treePlan) mixAfter(d *draw) {
	p.hasFault(d)
	if len(p.faults) == 1 {
		p.faults = append(p.faults, p.drawFaultAt(d))
	}
	for i := 1; i < len(p.faults); i++ {
		p.faults[i].pause = d.span(p.lease, 4*p.lease)
	}
	p.paced(d)
}

// mixLocks loses a CMP_SWAP of a lock word, or a WRITE to a page, and hangs the client's NIC or
// host at that moment for longer than the lease. Other clients take the lock over, and when the
// hang ends, the NIC sends the lost request again. In some runs there are few lock words, so that
// many clients need that lock.
func (p *treePlan) mixLocks(d *draw) {
	p.hasFault(d)
	p.loses, p.locks, p.skew = true, one(d, 1, 4, p.locks), max(p.skew, 0.3)
	p.faults[0] = treeFaultAt{
		what: one(d, treeClientHang, treeHostHang), victim: fmt.Sprintf("cn%d", d.IntN(min(computeHosts, p.clients))),
		when: one(d, atLock, atWrite, atWrite, atSplit), after: d.between(1, p.rounds/2), down: p.lease + d.span(p.lease/2, 4*p.lease),
	}
	if p.faults[0].when == atSplit {
		p.faults[0].after = d.between(1, 3)
	}
	p.paced(d)
}

func (p *treePlan) hasFault(d *draw) {
	if len(p.faults) == 0 {
		p.faults = append(p.faults, p.drawFaultAt(d))
	}
}

// paced adds pauses between operations, so that some operations begin after all faults are over.
func (p *treePlan) paced(d *draw) {
	whole := 2 * p.lease
	for _, s := range p.faults {
		whole += max(0, s.pause) + s.down
	}
	p.pace = whole * time.Duration(d.between(1, 3)) / time.Duration(p.rounds)
	if p.small { // for the waves of inserts and deletes, long pauses would leave too few operations
		p.pace /= 20
	}
}
