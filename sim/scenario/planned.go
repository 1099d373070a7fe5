package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
)

// Bounds of the planned search, if Params have none.
const (
	defaultSchedules = 4000
	defaultDepth     = 2
)

// plannedVariant returns a function that runs the search with the bounds of p. If p.Plan names a
// schedule, the function runs that schedule instead.
func plannedVariant(p Params) (func(*env) error, error) {
	if p.Plan == "" {
		var err error
		if p.Setup != "" {
			_, err = findSetup(p.Setup)
		}
		if p.Depth < 0 || p.Schedules < 0 {
			err = errors.New("--depth and --schedules are positive numbers")
		}
		return func(e *env) error { return newPlannedSearch(p, e.opt).run(e) }, err
	}
	if p.Depth != 0 || p.Schedules != 0 {
		return nil, errors.New("--plan is one schedule: --depth and --schedules are for a search")
	}
	if p.Setup != "" {
		return nil, errors.New("--plan names its setup: --setup is for a search")
	}
	s, err := parseSchedule(p.Plan)
	return func(e *env) error { return s.replay(e) }, err
}

func (s schedule) replay(e *env) error {
	e.report.Plan = s.String()
	setup, err := findSetup(s.setup)
	if err != nil {
		return err
	}
	return setup.judged(e, s).err
}

// outcomeOf is the result of the run of one schedule.
type outcomeOf struct {
	err error // the damage of the schedule; nil means that it does none
	// excused: true if a client failed, and also fails under the same schedule when the switch only
	// forwards. Then the failure is no finding.
	excused bool
	// digest, entered and reached are those of the adversary after the run. seen has the
	// transitions that the coverage has recorded.
	digest  uint64
	entered []place
	reached int
	seen    map[transition]struct{}
	// events and virtual are those of the run's report. Only searcher.alone sets them.
	events  uint64
	virtual time.Duration
}

// judged runs a schedule on e. If a client dies, judged runs it again with a switch without rules,
// to see whether the client may die.
func (s *smallSetup) judged(e *env, plan schedule) *outcomeOf {
	r, err := s.once(e, plan, false)
	out := &outcomeOf{
		err: err, digest: r.adv.digest, entered: r.adv.entered, reached: r.adv.reached, seen: r.cover.seen,
	}
	if err == nil && r.adv.done < len(plan.acts) {
		out.err = fmt.Errorf("%d of %d acts were done: the run has no such packet", r.adv.done, len(plan.acts))
	}
	var dead *deadClientError
	if errors.As(err, &dead) {
		bare := newEnv(Scenario{}, e.seed, Options{Cancelled: e.opt.Cancelled})
		if _, err := s.once(bare, plan, true); errors.As(err, &dead) {
			out.err, out.excused = nil, true
		}
		bare.finish()
	}
	return out
}

// once runs a schedule; with forward, the switch has no rules.
func (s *smallSetup) once(e *env, plan schedule, forward bool) (*smallRun, error) {
	r := &smallRun{env: e, setup: s, forward: forward}
	r.adv.acts = plan.acts
	rack, err := smallSpec()
	if err == nil {
		err = e.guarded(func(*env) error { return r.play(rack) })
	}
	return r, err
}

// smallSpec returns the rack of all small setups, which is parsed only once. smallRun.setRules gives
// the switch its rules.
var smallSpec = sync.OnceValues(func() (*rackfile.Rack, error) {
	return rackfile.Parse([]byte(clientRack(2, 1) + "switch: {program: swordbox}\n"))
})

// plannedSearch is a search of several setups.
type plannedSearch struct {
	setups    []smallSetup
	depth     int // the most acts of a schedule
	schedules int // the most schedules that run
	found     []finding
}

// newPlannedSearch returns the search of all setups, or of the setup of p, within the bounds of p. If a
// test has set Options.Short or Options.Hash, only a tenth of the schedules runs.
func newPlannedSearch(p Params, opt Options) *plannedSearch {
	s := &plannedSearch{setups: smallSetups(), depth: cmp.Or(p.Depth, defaultDepth), schedules: cmp.Or(p.Schedules, defaultSchedules)}
	if opt.Short || opt.Hash {
		s.schedules /= 10
	}
	if p.Setup != "" {
		s.setups = slices.DeleteFunc(s.setups, func(x smallSetup) bool { return x.name != p.Setup })
	}
	return s
}

// run makes the search. The digest of the whole search covers all schedules in the order in which they
// were planned.
func (s *plannedSearch) run(e *env) error {
	left := s.schedules
	e.report.Plan = fmt.Sprintf("schedules of up to %d acts on %d setups, at most %d", s.depth, len(s.setups), left)
	for i := range s.setups {
		x := &searcher{env: e, setup: &s.setups[i], depth: s.depth, budget: left / (len(s.setups) - i)}
		x.search()
		left -= x.ran
		e.note("%s", x)
		s.found = append(s.found, x.findings...)
		if e.cancelled() {
			return simnet.ErrCancelled
		}
	}
	return s.show(e)
}

// show returns the findings as the error of the run. If a capture is wanted, it runs the first finding's
// schedule again, or one without acts if there is no finding.
func (s *plannedSearch) show(e *env) error {
	var errs []error
	for _, f := range s.found {
		errs = append(errs, fmt.Errorf("after %d schedules: %w\n  replay: rdmalab sim planned --plan %s --seed %d -v", f.after, f.err, f.schedule, e.seed))
	}
	show := schedule{setup: smallSetups()[0].name}
	if len(s.found) > 0 {
		show = s.found[0].schedule
	}
	if setup, err := findSetup(show.setup); err == nil && e.opt.Pcap != nil {
		setup.judged(e, show)
	}
	return errors.Join(errs...)
}

func (e *env) cancelled() bool { return e.opt.Cancelled != nil && e.opt.Cancelled() }
