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
		return func(e *env) error { return searchPlanned(e, p) }, err
	}
	if p.Depth != 0 || p.Schedules != 0 {
		return nil, errors.New("--plan is one schedule: --depth and --schedules are for a search")
	}
	if p.Setup != "" {
		return nil, errors.New("--plan names its setup: --setup is for a search")
	}
	s, err := parseSchedule(p.Plan)
	return func(e *env) error { return replayPlanned(e, s) }, err
}

func replayPlanned(e *env, s schedule) error {
	e.report.Plan = s.String()
	setup, err := findSetup(s.setup)
	if err != nil {
		return err
	}
	return judged(e, setup, s).err
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

// judged runs schedule s on e. If a client dies, judged runs s again with a switch without rules,
// to see whether the client may die.
func judged(e *env, setup *smallSetup, s schedule) *outcomeOf {
	r, err := once(e, setup, s, false)
	out := &outcomeOf{
		err: err, digest: r.adv.digest, entered: r.adv.entered, reached: r.adv.reached, seen: r.cover.seen,
	}
	if err == nil && r.adv.done < len(s.acts) {
		out.err = fmt.Errorf("%d of %d acts were done: the run has no such packet", r.adv.done, len(s.acts))
	}
	var dead *deadClientError
	if errors.As(err, &dead) {
		bare := newEnv(Scenario{}, e.seed, Options{Cancelled: e.opt.Cancelled})
		if _, err := once(bare, setup, s, true); errors.As(err, &dead) {
			out.err, out.excused = nil, true
		}
		bare.finish()
	}
	return out
}

// once runs a schedule; with forward, the switch has no rules.
func once(e *env, setup *smallSetup, s schedule, forward bool) (*smallRun, error) {
	r := &smallRun{env: e, setup: setup, forward: forward}
	r.adv.acts = s.acts
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

// searchPlanned searches all setups, or the setup of p, within the bounds of p. If a test has set
// Options.Short or Options.Hash, only a tenth of the schedules runs. The digest of the whole search
// covers all schedules in the order in which they were planned.
func searchPlanned(e *env, p Params) error {
	depth, left := cmp.Or(p.Depth, defaultDepth), cmp.Or(p.Schedules, defaultSchedules)
	if e.opt.Short || e.opt.Hash {
		left /= 10
	}
	setups := smallSetups()
	if p.Setup != "" {
		setups = slices.DeleteFunc(setups, func(s smallSetup) bool { return s.name != p.Setup })
	}
	e.report.Plan = fmt.Sprintf("schedules of up to %d acts on %d setups, at most %d", depth, len(setups), left)
	var found []finding
	for i := range setups {
		x := &searcher{env: e, setup: &setups[i], depth: depth, budget: left / (len(setups) - i)}
		x.search()
		left -= x.ran
		e.note("%s", x)
		found = append(found, x.findings...)
		if e.cancelled() {
			return simnet.ErrCancelled
		}
	}
	return e.showFindings(found)
}

// showFindings returns the findings as the error of the run. If a capture is wanted, it runs the
// first finding's schedule again, or one without acts if there is no finding.
func (e *env) showFindings(found []finding) error {
	var errs []error
	for _, f := range found {
		errs = append(errs, fmt.Errorf("after %d schedules: %w\n  replay: rdmalab sim planned --plan %s --seed %d -v", f.after, f.err, f.schedule, e.seed))
	}
	show := schedule{setup: smallSetups()[0].name}
	if len(found) > 0 {
		show = found[0].schedule
	}
	if setup, err := findSetup(show.setup); err == nil && e.opt.Pcap != nil {
		judged(e, setup, show)
	}
	return errors.Join(errs...)
}

func (e *env) cancelled() bool { return e.opt.Cancelled != nil && e.opt.Cancelled() }
