package scenario

import (
	"errors"
	"strings"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/topo/scenario/history"
)

// runLocksPaper runs a seed of the lock histories under rules of mode paper. What breaks is no failure of the run: it is
// told, with the holes that it can come from. In every other seed words are changed by atomics only: WRITEs to them do
// their damage so soon that others have no time.
func runLocksPaper(e *env) error {
	var r *lockRun
	err := runLocksWith(e, modePaper, func(run *lockRun) { r, run.polite = run, e.seed%2 == 0 })
	if err == nil {
		return nil
	}
	if e.rack == nil {
		return err // it never began
	}
	e.report.Damage = r.holesHit(err)
	e.note("%s", err)
	return nil
}

// holesHit names what an error under mode paper is, and the holes that do that. The counters of the paper's machine tell
// some apart.
func (r *lockRun) holesHit(err error) string {
	count := r.paperCounters()
	var broken *history.BrokenError
	var changed *history.ChangedError
	switch {
	case strings.Contains(err.Error(), "mutual exclusion"):
		return "S: two clients inside of a lock, or a node torn (holes 15 to 19)"
	case errors.As(err, &changed):
		return "S: a word got a value that nobody asked for at that time (holes 15, 16, 18, 43)"
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

func (r *lockRun) paperCounters() map[string]uint64 {
	out := make(map[string]uint64)
	p, ok := r.env.rack.Program().(*serialize.Program)
	if !ok {
		return out
	}
	for _, m := range p.Report(r.env.rack.Now()).Machines {
		if m.Mode.String() == modePaper {
			for _, c := range m.Counters {
				out[c.Name] = c.Value
			}
		}
	}
	return out
}
