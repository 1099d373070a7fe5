package scenario

import (
	"errors"
	"strings"

	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/scenario/history"
)

// runLocksPublished makes one run of lock histories under published rules. The report has the holes
// that may cause its damage. With every second seed, clients change words by atomics alone, because
// WRITEs to words do damage so early that it would hide all other damage.
func runLocksPublished(e *env) error {
	var r *lockRun
	err := runLocksWith(e, recordedPublished, func(run *lockRun) { r, run.polite = run, e.seed%2 == 0 })
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
