package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// slowFrom returns when counting begins, in Unix nanoseconds: at the time `from` or, if a host began
// later, when the last host began. If this was after `latest`, the error is errSlowLate.
func slowFrom(results []perf.LoadResult, from, latest time.Time) (int64, error) {
	at := from.UnixNano()
	for i := range results {
		at = max(at, results[i].Began)
	}
	if at > latest.UnixNano() {
		return 0, errSlowLate
	}
	return at, nil
}

// slowTotal counts the READs of all hosts of a load that ended while the load was measured. `until`
// and `last` are the parameters of slowSum.
type slowTotal struct {
	took  []time.Duration // of READs that succeeded and ended before `last`
	moved int             // READs that succeeded and ended before `until`
	span  time.Duration   // how long moved was counted
	// all counts the READs that ended, and failed those of them that ended with an error. dispatch
	// counts the failed READs that ended with a dispatch time-out, or were never begun
	// (perf.LoadShed). retried counts additional tries.
	all, failed, dispatch, retried int
	// broken is the first error that is no effect of the load, such as that of a connection that has
	// ended; "" means none.
	broken string
}

// overloads are the errors that READs have if there are too many of them.
var overloads = []string{nic.NACK.String(), nic.Timeout.String(), nic.DispatchTimeout.String(), perf.LoadShed, verbs.ErrTimeout.Error()}

// slowSum counts the READs that ended between `from` and `last`, and collects their times. Only READs
// that ended before `until` count for the goodput (moved), because no READ begins after `until`.
func slowSum(results []perf.LoadResult, from, until, last int64) (s slowTotal) {
	s.span = time.Duration(until - from)
	for i := range results {
		for _, x := range results[i].Samples {
			if x.At < from || x.At >= last {
				continue
			}
			s.all++
			s.retried += x.Retries
			if x.Status != "" {
				s.failed++
				if x.Status == nic.DispatchTimeout.String() || x.Status == perf.LoadShed {
					s.dispatch++
				}
				if !slices.Contains(overloads, x.Status) {
					s.broken = cmp.Or(s.broken, x.Status)
				}
				continue
			}
			s.took = append(s.took, x.Took)
			if x.At < until {
				s.moved++
			}
		}
	}
	return s
}

// fill sets the fields of a result from the counted READs; times become those of the paper's testbed.
// It fails if READs had other errors than those of an overload.
func (r *slowRun) fill(s *slowTotal, out *experiment.OneRMAResult) error {
	if s.broken != "" {
		return fmt.Errorf("READs have failed: %s", s.broken)
	}
	for i := range s.took {
		s.took[i] = r.testbed(s.took[i])
	}
	out.Times(s.took)
	all := float64(max(1, s.all+s.retried))
	out.Goodput = float64(s.moved*onerma.MaxOp*8) / s.span.Seconds() / r.line()
	out.Retried, out.Dispatch = float64(s.failed+s.retried)/all, float64(s.dispatch)/all
	out.Rack.InTrip = float64(s.moved) / (float64(s.span) / float64(r.rtt))
	return nil
}

// moved returns how many READs of a result succeeded between two times.
func moved(l *perf.LoadResult, from, until int64) (n int) {
	for _, x := range l.Samples {
		if x.Status == "" && x.At >= from && x.At < until {
			n++
		}
	}
	return n
}

// lineAfter returns after how many round trips a flow has the line rate. It returns 0 if the flow
// does not have the line rate before the time `until`.
func (r *slowRun) lineAfter(l *perf.LoadResult, until int64) float64 {
	return r.after(l.Began, until, experiment.OneRMALineStep, func(from, at int64) bool {
		bits := float64(moved(l, from, at) * onerma.MaxFrame * 8)
		return bits/r.times(experiment.OneRMALineStep).Seconds()/r.line() >= experiment.OneRMALine
	})
}

// fairAfter returns how many round trips after the begin of the second flow the rates of both flows
// are about equal (experiment.OneRMAFair). It returns 0 if they are not about equal before the time
// `until`.
func (r *slowRun) fairAfter(flows []perf.LoadResult, until int64) float64 {
	return r.after(flows[1].Began, until, experiment.OneRMAFairStep, func(from, at int64) bool {
		return experiment.OneRMAFair(float64(moved(&flows[0], from, at)), float64(moved(&flows[1], from, at)))
	})
}

// after divides the time from `began` to `until` into steps of `trips` round trips, and calls done
// for one step after the other until done returns true. It returns how many round trips after
// `began` that step ended; 0 if done returns true for no step.
func (r *slowRun) after(began, until int64, trips int, done func(from, at int64) bool) float64 {
	step := int64(r.times(float64(trips)))
	for n := int64(1); began+n*step <= until; n++ {
		if at := began + n*step; done(at-step, at) {
			return float64(n * int64(trips))
		}
	}
	return 0
}
