package scenario

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
)

// maxFailures is the number of failed seeds after which a sweep ends; more would tell little.
const maxFailures = 10

// Summary is the outcome of a sweep, the runs of many seeds.
type Summary struct {
	Scenario string        `json:"scenario"`
	First    uint64        `json:"first"`
	Seeds    int           `json:"seeds"` // number of seeds that ran
	Events   uint64        `json:"events"`
	Virtual  time.Duration `json:"virtualNs"`
	Took     time.Duration `json:"tookNs"`
	// GaveUp counts the runs that ended because a client rightly reached its retry limit.
	GaveUp int `json:"gaveUp"`
	// Damage counts the runs that did damage (see Report.Damage), by the kind of damage.
	Damage map[string]int `json:"damage,omitempty"`
	// Failures are the reports of the first few failed seeds, in the order of the seeds.
	Failures []Report          `json:"failures,omitempty"`
	Counters metrics.NIC       `json:"-"`
	Activity map[string]uint64 `json:"counters,omitempty"`
	Links    simnet.LinkStats  `json:"links"`
}

// Sweep runs n seeds, from first on, on all processors. each, if not nil, is called for every
// report, in the order of the seeds. Several goroutines call cancelled at intervals. When it
// returns true the sweep ends, and runs that are not complete are not counted.
func (s Scenario) Sweep(first uint64, n int, cancelled func() bool, each func(*Report)) Summary {
	begun := wallNow()
	sum := Summary{Scenario: s.Name, First: first}
	inOrder(n, func() bool { return len(sum.Failures) >= maxFailures || cancelled() }, func(i int) Report {
		return s.Run(first+uint64(i), Options{Cancelled: cancelled})
	}, func(_ int, r Report) {
		if cancelled() { // so the run may not be complete
			return
		}
		sum.add(&r)
		if each != nil {
			each(&r)
		}
	})
	sum.Activity = nonZero(&sum.Counters)
	sum.Took = wallNow().Sub(begun)
	return sum
}

func (s *Summary) add(r *Report) {
	s.Seeds++
	if r.GaveUp {
		s.GaveUp++
	}
	if r.Damage != "" {
		if s.Damage == nil {
			s.Damage = make(map[string]int)
		}
		s.Damage[r.Damage]++
	}
	s.Events += r.Events
	s.Virtual += r.Virtual
	addCounters(&s.Counters, &r.Counters)
	addCounters(&s.Links, &r.Links)
	if r.Err != nil && len(s.Failures) < maxFailures {
		s.Failures = append(s.Failures, *r)
	}
}

// maxAhead bounds, for each processor, how many numbers inOrder has handed to the function `do`
// while their results were not handed to the function `done` yet. While one number takes long, the
// results of later numbers wait in memory.
const maxAhead = 16

// inOrder calls `do` for the numbers 0 to n-1, on all processors. The calling goroutine hands each
// result to `done`, in the order of the numbers. If `ended` returns true after that, inOrder begins
// no further call of `do`, waits for the calls in progress and drops their results.
func inOrder[R any](n int, ended func() bool, do func(i int) R, done func(i int, r R)) {
	type result struct {
		i int
		r R
	}
	workers := min(runtime.GOMAXPROCS(0), n)
	results := make(chan result, workers)
	ahead := make(chan struct{}, maxAhead*workers) // has an element for each number for which do was called, until its result was passed to done
	stopped := make(chan struct{})
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				select {
				case <-stopped:
					return
				case ahead <- struct{}{}:
				}
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				results <- result{i, do(i)}
			}
		})
	}
	go func() {
		wg.Wait()
		close(results)
	}()
	early, turn, over := make(map[int]R), 0, false // early has results that wait for those of earlier numbers
	for x := range results {
		early[x.i] = x.r
		for r, ok := early[turn]; ok && !over; r, ok = early[turn] {
			delete(early, turn)
			done(turn, r)
			turn++
			<-ahead
			if over = ended(); over {
				close(stopped)
			}
		}
	}
}

// wallNow returns the time of this machine. It is used only to report how long a run took, so runs
// do not depend on it.
func wallNow() time.Time { return time.Now() }
