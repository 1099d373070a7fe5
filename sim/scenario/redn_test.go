package scenario

import "testing"

// Queues that are managed answer every lookup; in queues that are not, the NIC has read the answers
// before they are changed: the published stale fetch.
func TestRednPublished(t *testing.T) {
	damaged := 0
	for seed := range uint64(10) {
		if r := runNamed(t, "redn", Params{}, seed+1); r.Damage != "" {
			t.Errorf("seed %d: %s", seed+1, r.Damage)
		}
		if r := runNamed(t, "redn", Params{Mode: modePublished}, seed+1); r.Damage != "" {
			damaged++
		}
	}
	if damaged < 5 {
		t.Errorf("%d seeds with damage under published queues", damaged)
	}
}

// A server whose process was killed answers.
func TestRednKilled(t *testing.T) {
	for seed := range uint64(20) {
		s, err := Find("redn")
		if err != nil {
			t.Fatal(err)
		}
		var answered int
		s.run = func(e *env) error {
			p := new(chainPlan).draw(e)
			p.fault, p.when = chainKill, 0
			r, err := p.begin(e)
			if err = e.complete(r, err); r != nil {
				answered += r.unserved
			}
			return err
		}
		if r := s.Run(seed+1, Options{}); r.Err != nil {
			t.Errorf("seed %d: %v", seed+1, r.Err)
		}
		if answered == 0 {
			t.Errorf("seed %d: no request was answered after the death of the process", seed+1)
		}
	}
}

// runNamed runs a variant of a scenario.
func runNamed(t *testing.T, name string, p Params, seed uint64) Report {
	t.Helper()
	s, err := Find(name)
	if err == nil {
		s, err = s.Vary(p)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := s.Run(seed, Options{})
	if r.Err != nil {
		t.Errorf("%s, seed %d: %v", s.Name, seed, r.Err)
	}
	return r
}
