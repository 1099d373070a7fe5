package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"
)

// Nodes says what became of a store's nodes in a stretch of time.
type Nodes struct {
	// All is the number of nodes. FreeFirst and FreeSecond are how many were free on average in the
	// first and in the second half. At one moment the number says little: superseded nodes become free
	// by the thousand, when the directory is written.
	All, FreeFirst, FreeSecond uint64
	// Taken is how many nodes clients got, Freed how many became free.
	Taken, Freed uint64
}

// A run is in steady state if it could go on like this for ever. Its two halves then have the same
// number of operations, but for halfMargin of it, and the second half has as many free nodes as the
// first one, but for nodeMargin of all nodes. halfNoise is how many operations more or fewer are no sign of
// anything: three standard deviations of a count with as many operations.
const (
	halfMargin = 0.10
	nodeMargin = 0.02
)

func halfNoise(n float64) float64 { return 3 * math.Sqrt(n) }

// unsteady returns why a run was not in steady state, or "" if it was.
func (r *StoreResult) unsteady() string {
	switch {
	case r.Total() == 0:
		return "no operation succeeded"
	case r.Restless:
		return ""
	}
	a, b := float64(r.Halves[0]), float64(r.Halves[1])
	if d := math.Abs(a - b); a+b > 0 && d > halfMargin*max(a, b) && d > halfNoise(a+b) {
		return fmt.Sprintf("%.0f operations in the first half, %.0f in the second", a, b)
	}
	n := r.Nodes
	if n == nil {
		return ""
	}
	if float64(n.FreeFirst)-float64(n.FreeSecond) > nodeMargin*float64(n.All) {
		return fmt.Sprintf("of %d nodes %d are free on average in the first half, %d in the second; %d were taken, %d freed",
			n.All, n.FreeFirst, n.FreeSecond, n.Taken, n.Freed)
	}
	return ""
}

// judge makes the report fail if operations of a row have failed, if no order of them explains the answers, or if
// its run was not in steady state. A run with --quick is too short to be in steady state.
func (r *StoreResult) judge(rep *Report, quick bool, row string) {
	switch why := r.unsteady(); {
	case r.failures() > 0:
		rep.fail("%s: %d operations failed: %s", row, r.failures(), cmp.Or(r.FirstError, "no value, or a wrong one"))
	case r.Unexplained != "":
		rep.fail("%s: of %d operations: %s", row, r.Checked, r.Unexplained)
	case why != "" && !quick:
		rep.fail("%s: not steady: %s", row, why)
	}
}

// times are how long a load of Clover runs before operations are counted, and while they are.
type times struct{ warm, run time.Duration }

func (t *times) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&t.warm, "warm", 0, fmt.Sprintf("how long clients work before operations are counted (default %v; on a rack 500ms)", DefaultWarm))
	fs.DurationVar(&t.run, "for", 0, fmt.Sprintf("how long operations are counted (default %v; on a rack 2s)", DefaultRun))
}

func (t *times) check() error {
	if t.warm < 0 || t.run < 0 {
		return errors.New("--warm and --for: want a time like 200ms")
	}
	return nil
}

// The default times of a load of Clover in the simulator. In the first milliseconds clients still
// know the newest node of each key, and no node is used a second time. At 30 million writes a second
// each node of the pool was used nearly twice after DefaultWarm. Loads in which
// clients lose most races vary by several percent from one DefaultRun to the next.
const (
	DefaultWarm = 20 * time.Millisecond
	DefaultRun  = 40 * time.Millisecond
	rackWarm    = 500 * time.Millisecond
	rackRun     = 2 * time.Second
)

// set puts the times into a load.
func (t *times) set(l *Clover, on string) {
	l.Warm, l.Run = cmp.Or(t.warm, DefaultWarm), cmp.Or(t.run, DefaultRun)
	if on == OnRack {
		l.Warm, l.Run = cmp.Or(t.warm, rackWarm), cmp.Or(t.run, rackRun)
	}
}
