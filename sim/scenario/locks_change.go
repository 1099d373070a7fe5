package scenario

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/history"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Values of Params.Change: what an operator changes during lock histories.
const (
	// changeRules: the operator changes hardened rules and the switch program.
	changeRules = "rules"
	// changeModes: the operator also sets published rules. Errors of such a run are reported as
	// damage and are not a failure.
	changeModes = "modes"
)

// operator changes the switch's rules and program during lock histories, at random times. For each
// server it draws rules that replace atomics, move requests or only track. They are for all
// addresses or a range of words, with one or several shared connections. Sometimes a server gets no
// rule.
type operator struct {
	run   *lockRun
	draw  *draw
	modes bool          // some rules are published
	most  time.Duration // the longest time between two changes
	first string        // mode or program of the switch before the first change
	// changes counts the changes that the operator has made. programs counts those in which it has
	// replaced the switch's program. published: true if a published rule has been in force.
	changes, programs int
	published         bool
	loaded            clock.Time // when the program was last replaced
	moved, replaced   uint64     // requests and atomics that the switch's earlier programs have counted as moved and as replaced
}

// programRest is the least time for which a switch program stays loaded. A program that begins
// drops requests to a server until the earlier connections of the switch to this server have ended.
// Changes in quick succession would use up the retries of the NICs, which last for at least 33 ms.
const programRest = 100 * time.Millisecond

// watch makes one run of lock histories while the operator changes the switch. After a published
// rule, an error is reported as damage.
func (o *operator) watch(e *env) error {
	err := new(lockRun).runWith(e, modeHardened, func(r *lockRun) {
		o.run, o.draw = r, newDraw(e.draw.Uint64())
		o.most = one(o.draw, 300*time.Microsecond, 5*time.Millisecond, 50*time.Millisecond)
		o.first = one(o.draw, modeForward, modeTrack, modeMove, modeHardened)
		r.operator = o
	})
	if e.rack != nil {
		o.collect()
	}
	e.note("the operator changed the rules %d times, %d times with the program; %d requests have moved, %d atomics were replaced", o.changes, o.programs, o.moved, o.replaced)
	if !o.published {
		return err
	}
	return e.asDamage(err, o.run.holesHit)
}

// next schedules a change at a random time after now, and then the next one, until lockPatience.
func (o *operator) next(now clock.Time) {
	at := now.Add(o.draw.span(20*time.Microsecond, o.most))
	if at < lockPatience {
		o.run.env.rack.At(at, func() {
			if !o.run.switchDown {
				o.change()
			}
			o.next(at)
		})
	}
}

// change changes the rules or, sometimes, the switch program.
func (o *operator) change() {
	rack := o.run.env.rack
	o.changes++
	box, ok := rack.Program().(*swordbox.Program)
	rest := o.programs > 0 && rack.Now() < o.loaded.Add(programRest)
	var err error
	switch {
	case !ok && rest:
		return
	case !ok:
		o.programs++
		o.loaded = rack.Now()
		err = rack.LoadProgram(rackfile.ProgramSwordBox, o.rules())
	case !rest && o.draw.chance(0.5) && box.Bound() == 0: // a real switch refuses to replace a program if flows would break (see Bound), such as those with moved requests
		o.programs++
		o.loaded = rack.Now()
		o.collect()
		err = rack.LoadProgram(rackfile.ProgramForward, &rules.Set{})
	default:
		if err = box.SetRules(o.rules()); err == nil {
			rack.StepSwitch(func(c *pipeline.Ctx) { box.Tick(c) })
		}
	}
	if err != nil {
		o.run.env.fail("change %d of the switch: %w", o.changes, err)
	}
}

func (o *operator) rules() *rules.Set {
	d := o.draw
	var list []rules.Rule
	for i, s := range o.run.servers {
		mode := "hardened"
		if o.modes && d.chance(0.25) {
			mode, o.published = "published", true
		}
		use := fmt.Sprintf("server=ms%d mode=%s shards=%d service=%s", i, mode, d.between(1, 3), switchService)
		all, part := "", ""
		if len(s.words) > 0 {
			if w := s.words[d.IntN(len(s.words))]; w.mr != nil {
				at := w.mr.Addr() + uint64(w.base) + wordOff
				part = fmt.Sprintf(" range=%#x-%#x", at, at+uint64(one(d, 8, 16, 1024)))
			}
		}
		misses := " misses=" + rules.Answerer(d.IntN(3)).String()
		if mode == "published" {
			misses = ""
		}
		switch d.IntN(6) {
		case 0:
		case 1:
			all = " action=track"
			use = fmt.Sprintf("server=ms%d", i)
		case 2:
			if all = " action=move"; mode == "published" {
				all = " action=atomics"
			}
		case 3:
			all = " action=atomics" + misses
		case 4:
			list = o.add(list, use+part+" action=atomics"+misses)
		case 5:
			if list = o.add(list, use+part+" action=atomics"+misses); part != "" && mode != "published" {
				all = " action=move"
			}
		}
		if all != "" {
			list = o.add(list, use+all)
		}
	}
	set, err := rules.NewSet(list)
	if err != nil {
		o.run.env.fail("drawn rules: %w", err)
		return &rules.Set{}
	}
	return set
}

func (o *operator) add(list []rules.Rule, text string) []rules.Rule {
	rule, err := o.run.env.rack.Rule(fmt.Sprintf("id=r%d %s", len(list), text))
	if err != nil {
		o.run.env.fail("%s: %w", text, err)
		return list
	}
	if o.run.env.congested != nil && rule.Moves() && rule.Mode == rules.Hardened {
		rule.SetSlowed(rules.Slowed(o.changes % len(rules.Slows())))
	}
	return append(list, rule)
}

// collect adds the present program's counters of moved requests and replaced atomics to the sums.
func (o *operator) collect() {
	box, ok := o.run.env.rack.Program().(*swordbox.Program)
	if !ok {
		return
	}
	for _, h := range box.Report(o.run.env.rack.Now()).Handlers {
		for _, c := range h.Counters {
			switch c.Name {
			case "moved":
				o.moved += c.Value
			case "replaced":
				o.replaced += c.Value
			}
		}
	}
}

// runPublished makes one run of lock histories under published rules. The report names the
// holes that may have caused the damage of the run. With every second seed, clients change words by
// atomics alone, because WRITEs to words do damage so early that all other damage would be hidden.
func (r *lockRun) runPublished(e *env) error {
	err := r.runWith(e, recordedPublished, func(*lockRun) { r.polite = e.seed%2 == 0 })
	return e.asDamage(err, r.holesHit)
}

// holesHit names the damage that an error under published rules shows (S: of safety, L: of
// liveness), and the holes that may cause it. The counters of the published program distinguish
// some of them.
func (r *lockRun) holesHit(err error) string {
	count := countersOf(r.env.handler(rules.Published))
	var broken *history.BrokenError
	var changed *history.ChangedError
	switch {
	case strings.Contains(err.Error(), "mutual exclusion"):
		return "S: two clients inside of a lock, or a node torn (holes 15 to 19)"
	case errors.As(err, &changed):
		return "S: a word got a value that no client asked for at that time (holes 15, 16, 18, 43)"
	case errors.As(err, &broken), strings.Contains(err.Error(), "release by CAS"):
		return "S: answers that no order explains (holes 15, 16, 18, 41)"
	case strings.Contains(err.Error(), "never free"):
		return "L: a lock that is free and never given (holes 15, 16)"
	case !strings.Contains(err.Error(), "queue pair"):
		return "other: " + err.Error()
	case count["overwritten"] > 0:
		return "L: a queue pair failed after a map entry was overwritten (hole 12)"
	case count["forgotten"] > 0:
		return "L: a queue pair failed, its retransmission had no map entry (holes 14, 41)"
	case r.plan.what == clientCrash:
		return "L: a queue pair failed after another client had died (holes 1, 4)"
	}
	return "L: a queue pair failed (holes 2, 4, 5, 10)"
}
