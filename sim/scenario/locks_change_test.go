package scenario

import "testing"

// In these seeds every action of the operator has an effect: requests move, atomics are replaced,
// programs are exchanged, and published rules come into force and do damage.
func TestOperatorsReachEveryAction(t *testing.T) {
	t.Parallel()
	var moved, replaced uint64
	programs, published, damaged := 0, 0, 0
	for seed := uint64(1); seed <= 8; seed++ {
		for _, change := range []string{changeRules, changeModes} {
			s := mustFind(t, "locks-change")
			var o *operator
			s.run = func(e *env) error {
				o = &operator{modes: change == changeModes}
				return o.watch(e)
			}
			r := s.Run(seed, Options{})
			if r.Err != nil {
				t.Errorf("seed %d, %s: %v", seed, change, r.Err)
			}
			moved, replaced, programs = moved+o.moved, replaced+o.replaced, programs+o.programs
			if o.published {
				published++
			}
			if r.Damage != "" {
				damaged++
			}
			if change == changeRules && (o.published || r.Damage != "") {
				t.Errorf("seed %d: published rules without --change modes", seed)
			}
		}
	}
	t.Logf("%d moved, %d replaced, %d programs, %d seeds with published rules, %d damaged", moved, replaced, programs, published, damaged)
	if moved < 1000 || replaced < 100 || programs < 4 || published < 4 || damaged == 0 {
		t.Error("too little")
	}
}
