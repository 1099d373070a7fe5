package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// searcher searches for schedules of one setup that do damage.
//
// It runs level by level: first the schedules of one act, then those of two. An act is on a later
// packet than the acts before it, or on the same packet if that makes a difference (act.joins). The
// simulator repeats a run exactly up to the packet of the act that is added. So the levels contain
// all schedules with the setup's acts on the packets that the setup chooses. A run is not continued
// if it delivers the same packets in the same order as an earlier one, even at other times, or if a
// client dies in it.
//
// Within a level, the searcher first continues the schedules that have shown new transitions of the
// state tables. The others take turns, in an order that the seed draws. Each is continued first
// with the acts nearest to its last act, because acts that have an effect together are mostly near
// each other.
type searcher struct {
	env      *env
	setup    *smallSetup
	depth    int
	budget   int // how many schedules may run
	ran      int
	pruned   int // runs that were equal to earlier ones
	excused  int
	findings []finding
	digests  map[uint64]struct{}
	covered  map[transition]struct{}
	whole    bool // all schedules up to the depth were tried
}

const (
	// maxFindings is the number of findings after which the search of a setup ends; more would add
	// little.
	maxFindings = 3
	// turnLength is how many continuations of one schedule are tried before the next schedule's turn.
	turnLength = 8
	// batchLength is how many schedules run before the next ones are chosen.
	batchLength = 256
)

// finding is a schedule that does damage.
type finding struct {
	schedule schedule
	err      error
	after    int // number of schedules that ran before
}

// node is a schedule that has run and can be continued.
type node struct {
	schedule schedule
	// next are the acts that can follow, the nearest first.
	next    []act
	novelty int // number of transitions that it was the first to show
	turn    int // how many turns it has had
}

// String is the summary of the search.
func (x *searcher) String() string {
	why := "all up to the depth"
	switch {
	case len(x.findings) >= maxFindings:
		why = "ended by the findings"
	case !x.whole:
		why = "as many as may run"
	}
	return fmt.Sprintf("%-12s %6d schedules, %s; %d were the same as others, in %d a client may die; %d transitions; %d findings",
		x.setup.name, x.ran, why, x.pruned, x.excused, len(x.covered), len(x.findings))
}

// search tries the schedules.
func (x *searcher) search() {
	x.digests, x.covered = make(map[uint64]struct{}), make(map[transition]struct{})
	level := x.run([]schedule{{setup: x.setup.name}}, x.depth > 0)
	for d := range x.depth {
		level = x.extend(level, d+1 < x.depth)
	}
	x.whole = !x.ended()
}

// extend tries the schedules of a level with one more act. It returns the next level if more is
// set.
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

// ended reports whether no more schedules may run.
func (x *searcher) ended() bool {
	return x.ran >= x.budget || len(x.findings) >= maxFindings || x.env.cancelled()
}

// turn returns the next continuations of a node, those whose act is nearest to the last one first.
// If the node has shown something new, it returns all.
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

// next lists the acts that can follow a run, the nearest first: on the packet of the last act and
// on later packets, as far as the setup allows. A change of rules comes between two steps of the
// switch, so one of several packets between the same steps is enough.
func (x *searcher) next(s schedule, o *outcomeOf) []act {
	limit := x.setup.perHalf
	if limit == 0 {
		limit = defaultPerHalf
	}
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

// run runs schedules on all processors and handles their outcomes in order. If more is set, it
// returns those that can be continued.
func (x *searcher) run(list []schedule, more bool) (nodes []*node) {
	list = list[:max(0, min(len(list), x.budget-x.ran))]
	inOrder(list, x.ended, x.alone, func(s schedule, o *outcomeOf) {
		if n := x.take(s, o); n != nil && more {
			n.next = x.next(s, o)
			nodes = append(nodes, n)
		}
	})
	return nodes
}

// alone runs a schedule in its own environment.
func (x *searcher) alone(s schedule) *outcomeOf {
	e := newEnv(Scenario{}, x.env.seed, Options{Cancelled: x.env.opt.Cancelled, Wrap: x.env.opt.Wrap})
	out := judged(e, x.setup, s)
	e.finish()
	out.events, out.virtual = e.report.Events, e.report.Virtual
	return out
}

// take counts an outcome; it returns a node if the schedule can be continued.
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
