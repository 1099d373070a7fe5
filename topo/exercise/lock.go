package exercise

import (
	"context"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// contendedLock measures a lock that many clients want. The learner makes the switch let a CAS wait until the
// lock is free.
var contendedLock = Exercise{Name: "contended-lock", check: checkLock}

// lockClients share the lock of contendedLock. Without help, each of them tries again and again, and about one
// of lockClients CAS takes the lock. maxTries is how many CAS a lock may cost when the switch helps.
const (
	lockClients = 16
	maxTries    = 8
)

func checkLock(ctx context.Context, l *Lab, r *Report) error {
	res, err := l.run(ctx, perf.Config{Test: "locks", To: l.Server, OneWord: perf.OneWord{Clients: lockClients}})
	switch {
	case err != nil:
		return err
	case res.Locks == nil || res.Locks.Acquired == 0:
		r.add(false, "", fmt.Sprintf("%d clients of %s took the lock on %s not once in a second", lockClients, l.Client, l.Server))
		return nil
	}
	tries := float64(res.Locks.Attempts) / float64(res.Locks.Acquired)
	text := fmt.Sprintf("%d clients took the lock on %s %d times in a second, with %.1f CAS each time", lockClients, l.Server, res.Locks.Acquired, tries)
	r.add(tries <= maxTries, text, fmt.Sprintf("%s; at most %d are wanted", text, maxTries))
	return nil
}
