package scenario

import "testing"

// A schedule takes one or two milliseconds, so tens of thousands run in a minute.
func BenchmarkSchedule(b *testing.B) {
	s, err := parseSchedule("rules/drop@ms0-down.1/rules1@cn1-up.1")
	if err != nil {
		b.Fatal(err)
	}
	x := &searcher{env: newEnv(Scenario{}, 1, Options{})}
	if x.setup, err = findSetup(s.setup); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if o := x.alone(s); o.reached == 0 {
			b.Fatal(o)
		}
	}
}
