package scenario

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
)

// searcher searches for schedules (lists of the adversary's acts) of one setup that do damage.
//
// It runs level by level: first the schedules of one act, then those of two, and so on. The new act
// of a schedule is on a later packet than the acts before it, or on the same packet if that makes a
// difference (act.joins). The simulator repeats a run exactly up to the packet of the new act. So
// the levels contain all schedules with the setup's acts on the packets that the setup chooses. A
// schedule is not continued by more acts if it does damage, if a client dies in its run, or if the
// run delivers the same packets in the same order as an earlier one, even at other times.
//
// Within a level, the searcher first continues the schedules whose runs have shown new transitions
// of the switch's state tables. The others take turns, in an order that the seed draws. Each
// schedule is continued first with the acts on the packets nearest to its last act, because acts
// that have an effect together are mostly near each other.
type searcher struct {
	env      *env
	setup    *smallSetup
	depth    int
	budget   int // how many schedules may run in this search
	ran      int // how many have run
	pruned   int // runs that delivered the same packets as earlier ones
	excused  int // runs in which a client died and may die (see outcomeOf.excused)
	findings []finding
	digests  map[uint64]struct{}     // digests of all runs so far without damage and without a dead client
	covered  map[transition]struct{} // transitions that any of these runs has shown
	whole    bool                    // all schedules up to the depth have run
}

const (
	// maxFindings is the number of findings after which the search of a setup ends; more findings
	// would tell little.
	maxFindings = 3
	// turnLength is how many continuations of one schedule are run before it is the next schedule's
	// turn.
	turnLength = 8
	// batchLength is how many schedules run in parallel before the next ones are chosen.
	batchLength = 256
)

type finding struct {
	schedule schedule
	err      error
	after    int // number of schedules that had run, with this one
}

// node is a schedule that has run and can be continued by one more act.
type node struct {
	schedule schedule
	// next are the acts that can continue the schedule. Acts on packets that are near to the packet
	// of the schedule's last act come first.
	next    []act
	novelty int // number of transitions that no earlier run had shown
	turn    int // how many turns the node has had
}

func (x *searcher) String() string {
	why := "all up to the depth"
	switch {
	case x.enough():
		why = "ended by the findings"
	case !x.whole:
		why = "as many as may run"
	}
	return fmt.Sprintf("%-12s %6d schedules, %s; %d were the same as others, in %d a client may die; %d transitions; %d findings",
		x.setup.name, x.ran, why, x.pruned, x.excused, len(x.covered), len(x.findings))
}

// search runs the schedules that have at most x.depth acts, those with fewer acts first. It ends
// early if the budget of runs is used up, if there are enough findings, or if the user cancels it.
func (x *searcher) search() {
	x.digests, x.covered = make(map[uint64]struct{}), make(map[transition]struct{})
	level := x.run([]schedule{{setup: x.setup.name}}, x.depth > 0)
	for d := 0; d < x.depth && len(level) > 0 && !x.ended(); d++ {
		level = x.extend(level, d+1 < x.depth)
	}
	x.whole = !x.ended()
}

// extend runs the schedules of a level with one more act. If more is true, it returns the new
// schedules that can be continued, which are the next level.
func (x *searcher) extend(level []*node, more bool) (next []*node) {
	d := rand.New(rand.NewPCG(x.env.seed, uint64(x.ran)))
	d.Shuffle(len(level), func(i, j int) { level[i], level[j] = level[j], level[i] })
	slices.SortStableFunc(level, func(a, b *node) int { return b.novelty - a.novelty })
	var batch []schedule
	for len(level) > 0 {
		left := level[:0]
		for _, n := range level {
			children := x.turn(n)
			batch = append(batch, children...)
			if len(children) > 0 {
				left = append(left, n)
			}
			if len(batch) >= batchLength {
				next = append(next, x.run(batch, more)...)
				batch = batch[:0]
			}
			if x.ended() {
				return nil
			}
		}
		level = left
	}
	return append(next, x.run(batch, more)...)
}

// enough reports whether there are so many findings that the search ends.
func (x *searcher) enough() bool {
	return len(x.findings) >= cmp.Or(x.env.opt.Findings, maxFindings)
}

// ended reports whether the search must end, by its budget, its findings or the user.
func (x *searcher) ended() bool {
	return x.ran >= x.budget || x.enough() || x.env.cancelled()
}

// turn returns the next turnLength continuations of node n, in the order of n.next. If the node's
// run has shown new transitions, the first call returns all continuations.
func (x *searcher) turn(n *node) []schedule {
	from, to := n.turn*turnLength, (n.turn+1)*turnLength
	if n.novelty > 0 {
		from, to = n.turn*len(n.next), len(n.next)
	}
	n.turn++
	from, to = min(from, len(n.next)), min(to, len(n.next))
	out := make([]schedule, 0, to-from)
	for _, a := range n.next[from:to] {
		out = append(out, n.schedule.with(a))
	}
	return out
}

// next lists the acts that can continue schedule s, whose run had outcome o: first acts on the
// packet of the last act, and then acts on later packets, in their order, as far as the setup
// allows. An act that changes the switch's rules takes effect between two steps of the switch. If
// several packets come between the same two steps, next lists such an act only for the first of
// them.
func (x *searcher) next(s schedule, o *outcomeOf) []act {
	limit := cmp.Or(x.setup.perHalf, defaultPerHalf)
	var out []act
	if n := len(s.acts); n > 0 {
		for _, a := range x.setup.acts() {
			a.half, a.index = s.acts[n-1].half, s.acts[n-1].index
			if a.joins(s.acts[n-1]) {
				out = append(out, a)
			}
		}
	}
	for i, p := range o.entered[o.reached:] {
		if int(p.index) > limit || x.setup.halves != nil && !slices.Contains(x.setup.halves, int(p.half)) {
			continue
		}
		same := i > 0 && p.step == o.entered[o.reached+i-1].step
		for _, a := range x.setup.acts() {
			if a.kind != newRules || !same {
				a.half, a.index = int(p.half), int(p.index)
				out = append(out, a)
			}
		}
	}
	return out
}

// run runs the schedules of list on all processors, as far as the budget allows, and handles their
// outcomes in the order of list. If more is true, run returns a node for each of these schedules
// that can be continued.
func (x *searcher) run(list []schedule, more bool) (nodes []*node) {
	list = list[:max(0, min(len(list), x.budget-x.ran))]
	inOrder(len(list), x.ended, func(i int) *outcomeOf { return x.alone(list[i]) }, func(i int, o *outcomeOf) {
		if n := x.take(list[i], o); n != nil && more {
			n.next = x.next(list[i], o)
			nodes = append(nodes, n)
		}
	})
	return nodes
}

// alone runs schedule s in an environment of its own, so that schedules can run in parallel.
func (x *searcher) alone(s schedule) *outcomeOf {
	e := newEnv(Scenario{}, x.env.seed, Options{Cancelled: x.env.opt.Cancelled, Wrap: x.env.opt.Wrap})
	out := x.setup.judged(e, s)
	e.finish()
	out.events, out.virtual = e.report.Events, e.report.Virtual
	return out
}

// take counts outcome o of schedule s. It returns a node if s can be continued, otherwise nil.
func (x *searcher) take(s schedule, o *outcomeOf) *node {
	x.ran++
	x.env.report.Events += o.events
	x.env.report.Virtual += o.virtual
	if x.env.opt.Hash {
		x.env.report.Hash = (x.env.report.Hash ^ o.digest) * digestPrime
	}
	switch {
	case o.err != nil:
		if len(x.findings) < maxFindings {
			x.findings = append(x.findings, finding{s, o.err, x.ran})
		}
		return nil
	case o.excused:
		x.excused++
		return nil
	}
	n := &node{schedule: s}
	for t := range o.seen {
		if _, ok := x.covered[t]; !ok {
			x.covered[t] = struct{}{}
			n.novelty++
		}
	}
	if _, ok := x.digests[o.digest]; ok {
		x.pruned++
		return nil
	}
	x.digests[o.digest] = struct{}{}
	return n
}
