package scenario

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/topo/sim"
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
	// Damage counts the runs under published rules that did damage, by its kind.
	Damage map[string]int `json:"damage,omitempty"`
	// Failures are the reports of the first few failed seeds, in the order of the seeds.
	Failures []Report          `json:"failures,omitempty"`
	Counters metrics.NIC       `json:"-"`
	Activity map[string]uint64 `json:"counters,omitempty"`
	Links    sim.LinkStats     `json:"links"`
}

// Sweep runs n seeds, from first on, on all processors. each, if not nil, is called for every
// report, in the order of the seeds. Several goroutines call cancelled at intervals. When it
// returns true the sweep ends, and runs that are not complete are not counted.
func (s Scenario) Sweep(first uint64, n int, cancelled func() bool, each func(*Report)) Summary {
	begun := wallNow()
	sum := Summary{Scenario: s.Name, First: first}
	var next atomic.Uint64
	reports := make(chan Report, runtime.GOMAXPROCS(0))
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !stop.Load() && !cancelled() {
				i := next.Add(1) - 1
				if i >= uint64(n) {
					return
				}
				r := s.Run(first+i, Options{Cancelled: cancelled})
				if cancelled() {
					return
				}
				reports <- r
			}
		})
	}
	go func() {
		wg.Wait()
		close(reports)
	}()
	early := make(map[uint64]Report) // reports that wait for those of earlier seeds; at most one for each worker
	turn := first
	for r := range reports {
		early[r.Seed] = r
		for r, ok := early[turn]; ok; r, ok = early[turn] {
			delete(early, turn)
			turn++
			sum.add(&r)
			if each != nil {
				each(&r)
			}
		}
		if len(sum.Failures) >= maxFailures {
			stop.Store(true)
		}
	}
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

// inOrder calls do for all items of list, on all processors. The calling goroutine hands each
// result to done, in the order of list. If ended returns true after that, inOrder returns and drops
// the other results.
func inOrder[T, R any](list []T, ended func() bool, do func(T) R, done func(T, R)) {
	workers := min(runtime.GOMAXPROCS(0), len(list))
	results := make([]chan R, workers)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		results[w] = make(chan R, 16)
		wg.Go(func() {
			for i := w; i < len(list); i += workers {
				select {
				case <-stop:
					return
				case results[w] <- do(list[i]):
				}
			}
		})
	}
	for i := range list {
		done(list[i], <-results[i%workers])
		if ended() {
			break
		}
	}
	close(stop)
	wg.Wait()
}

// wallNow returns the time of this machine. It is used only to report how long a run took, so runs
// do not depend on it.
func wallNow() time.Time { return time.Now() }

func panicError(p any) error { return fmt.Errorf("panic: %v\n%s", p, debug.Stack()) }
