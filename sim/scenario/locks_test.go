package scenario

import (
	"strings"
	"testing"
)

// Nearly all seeds whose histories are linearizable in mode hardened show errors in mode published,
// so the histories are able to find errors.
func TestPaperIsDamaged(t *testing.T) {
	t.Parallel()
	const seeds = 12
	damaged := 0
	for seed := uint64(1); seed <= seeds; seed++ {
		r := mustFind(t, "locks-paper").Run(seed, Options{})
		if r.Err != nil {
			t.Errorf("seed %d: %v", seed, r.Err)
		}
		if r.Damage != "" {
			damaged++
		}
	}
	if damaged < seeds*3/4 {
		t.Errorf("%d of %d seeds were damaged", damaged, seeds)
	}
}

// Seeds that once failed succeed now.
func TestLocksSeedsThatFailed(t *testing.T) {
	t.Parallel()
	for seed, why := range map[uint64]string{
		4800000168: "an answer was damaged before the switch and restored behind it: the client had it, the switch waited for it",
	} {
		if r := mustFind(t, "locks").Run(seed, Options{}); r.Err != nil {
			t.Errorf("seed %d (%s): %v", seed, why, r.Err)
		}
	}
}

// Most atomics of the histories are replaced by WRITEs, so the histories do test this.
func TestHistoriesAreOfReplacedAtomics(t *testing.T) {
	t.Parallel()
	asked, executed := 0, uint64(0)
	for seed := uint64(1); seed <= 8; seed++ {
		s := mustFind(t, "locks")
		var run *lockRun
		s.run = func(e *env) error { return new(lockRun).runWith(e, recordedHardened, func(r *lockRun) { run = r }) }
		if r := s.Run(seed, Options{}); r.Err != nil {
			t.Fatalf("seed %d: %v", seed, r.Err)
		}
		asked += run.atomics
		for _, srv := range run.servers {
			executed += srv.host.Counters().RxAtomicRequests
		}
	}
	t.Logf("%d CAS and FETCH_ADD were asked for, the memory servers executed %d", asked, executed)
	if float64(executed) > 0.6*float64(asked) {
		t.Errorf("the memory servers executed %d of %d atomics as such", executed, asked)
	}
}

// The runner of holes returns an error unless a script does damage under published rules and none
// under hardened ones.
func TestHolesAreJudged(t *testing.T) {
	t.Parallel()
	quiet := hole{number: 99, title: "nothing happens", action: "atomics", params: holeParams, script: func(*holeRun) {}}
	open := quiet
	open.script = func(h *holeRun) { h.harm("always") }
	for _, h := range []hole{quiet, open} {
		if r := (Scenario{Name: "hole-99", run: h.run}).Run(1, Options{}); r.Err == nil {
			t.Errorf("%v", r.Notes)
		}
	}
}

// The attacks are effective: a switch that only forwards does not stop them.
func TestAttacksDoDamageWithoutTheProgram(t *testing.T) {
	s := mustFind(t, "hostile")
	s.run = func(e *env) error { return new(hostile).playIn(e, modeForward) }
	r := s.Run(1, Options{})
	if r.Err == nil || !strings.Contains(r.Err.Error(), "after: spoofed source") {
		t.Errorf("%v\n%s", r.Err, strings.Join(r.Notes, "\n"))
	}
}
