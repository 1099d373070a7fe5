package scenario

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// swaps loads the program that replaces atomics into a switch that forwards, and unloads it again
// when that is possible.
type swaps struct {
	t *testing.T
	e *env
	// loads counts how often the program was loaded. bound counts how often it could not be
	// unloaded. former counts how many flows of its earlier incarnations it found.
	loads, bound, former int
}

// swapEvery is the time between two changes, swapRounds their number. Each eighth program stays for
// swapRest, because the switch replaces no atomics in the first 10 ms after a change (serialize's
// Transit).
const (
	swapEvery  = 400 * time.Microsecond
	swapRest   = 14 * time.Millisecond
	swapRounds = 80
)

func (s *swaps) rules() (*rules.Set, error) {
	var list []rules.Rule
	for _, name := range []string{"ms0", "ms1"} {
		h := s.e.rack.Host(name).Spec
		r := rules.Rule{ID: name, Server: h.IPv4, Action: rules.Atomics, Shards: 2, Service: switchService, Misses: s.e.missesIn()}
		if h.IPv6.IsValid() {
			r.Also = []netip.Addr{h.IPv6}
		}
		list = append(list, r)
	}
	return rules.NewSet(list)
}

func (s *swaps) swap(set *rules.Set) {
	rack, name := s.e.rack, rackfile.ProgramSwordBox
	if p, ok := rack.Program().(*swordbox.Program); ok {
		if p.Bound() > 0 {
			s.bound++
			return
		}
		name, set = rackfile.ProgramForward, nil
	}
	if err := rack.LoadProgram(name, set); err != nil {
		s.t.Error(err)
	}
	if p, ok := rack.Program().(*swordbox.Program); ok {
		s.loads++
		s.former += len(p.Own().Former().Flows())
	}
}

// The program is loaded and unloaded while clients hold locks and wait for them, with all faults of
// these histories. No lock is lost, and no program takes over flows that it did not move.
func TestLocksWhileProgramsChange(t *testing.T) {
	t.Parallel()
	s := swaps{t: t}
	for seed := uint64(1); seed <= 6; seed++ {
		run := func(e *env) error {
			r := &lockRun{env: e, mode: modeForward, plan: new(lockPlan).draw(e), stamps: make(map[uint64]holder)}
			if err := r.build(); err != nil {
				return err
			}
			s.e, r.mode = e, recordedHardened // makes servers offer the service that the switch dials
			set, err := s.rules()
			if err != nil {
				return err
			}
			at := e.rack.Now()
			for i := range swapRounds {
				at = at.Add(swapEvery)
				if i%8 == 1 {
					at = at.Add(swapRest)
				}
				e.rack.At(at, func() { s.swap(set) })
			}
			r.arm()
			for _, srv := range r.servers {
				srv.boot()
			}
			for i := range lockClients {
				r.start(i%lockHosts, r.plan.rounds)
			}
			return e.complete(r, nil)
		}
		if r := (Scenario{Name: "locks-swaps", run: run}).Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		}
	}
	if t.Logf("%d loads, %d times the program was bound", s.loads, s.bound); s.loads < 100 || s.bound == 0 || s.former > 0 {
		t.Errorf("%d loads, %d times bound, %d flows of former incarnations", s.loads, s.bound, s.former)
	}
}
