package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// turns are the largest durations of the tests that are run in the first, the second and the third
// turn. Slower tests are run only if no quicker test has noticed the change.
var turns = []time.Duration{30 * time.Millisecond, 300 * time.Millisecond, time.Hour}

// switched has the tests of a package in which all changes are compiled in (see switches).
type switched struct {
	r     runner
	s     *switches
	tests []measured
}

// measured is a test, with its duration and the changes that it reaches, both measured while no
// change is switched on.
type measured struct {
	bin, pkg, name string
	took           time.Duration
	hits           []byte // hits[i] is not 0 if the test reaches change number i
}

// buildSwitched builds the tests and measures each of them.
func (r runner) buildSwitched(c *checker, pkg string, all []mutant) (*switched, error) {
	s, err := c.newSwitches(pkg, all)
	if err != nil {
		return nil, err
	}
	b := &switched{r: r, s: s}
	overlay, err := r.overlays("switched", s.files)
	if err != nil {
		return nil, err
	}
	for i, in := range r.tests {
		bin := filepath.Join(r.dir, fmt.Sprintf("switched%d.test", i))
		if out, err := exec.Command("go", "test", "-vet=off", "-c", "-overlay", overlay, "-o", bin, "./"+in).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("with switches: %w: %s", err, out)
		}
		if _, err := os.Stat(bin); err != nil {
			continue // the package has no tests
		}
		if err := b.measure(bin, in, len(all)+1); err != nil {
			return nil, err
		}
	}
	limit := 10 * time.Second
	for _, t := range b.tests {
		limit += 6 * t.took
	}
	b.r.limit = min(r.limit, limit)
	return b, nil
}

// measure runs each test of a package alone, while no change is switched on. A test that fails even
// then is left out: it tests something that the switches themselves alter, such as allocations.
func (b *switched) measure(bin, in string, n int) error {
	list := exec.Command(bin, "-test.list", ".")
	list.Dir = in
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("%s: list of tests: %w", in, err)
	}
	hits := filepath.Join(b.r.dir, "hits")
	for _, name := range strings.Fields(string(out)) {
		if strings.HasPrefix(name, "Benchmark") {
			continue
		}
		if err := os.WriteFile(hits, make([]byte, n), 0o644); err != nil {
			return err
		}
		t := measured{bin: bin, pkg: in, name: name}
		begin := time.Now()
		what := b.run([]measured{t}, b.r.limit, "MUTANT_HITS="+hits)
		t.took = time.Since(begin)
		if what != survived {
			fmt.Printf("%s: %s is left out: without a change %v\n", in, name, what)
			continue
		}
		if t.hits, err = os.ReadFile(hits); err != nil {
			return err
		}
		b.tests = append(b.tests, t)
	}
	return nil
}

// reached reports whether a test reaches a change. The change of a bound (like < to <=) counts as
// reached only if the compared values were equal once.
func (b *switched) reached(m *mutant) bool {
	id := b.s.ids[m]
	return id == 0 || slices.ContainsFunc(b.tests, func(t measured) bool { return t.hits[id] != 0 })
}

// test switches a change on and runs the tests that reach it, the quick ones first.
func (b *switched) test(m *mutant) outcome {
	id := b.s.ids[m]
	if id == 0 {
		return b.r.test(m)
	}
	least := time.Duration(0)
	for _, most := range turns {
		for _, in := range b.r.tests {
			var some []measured
			limit := 2 * time.Second
			for _, t := range b.tests {
				if t.hits[id] != 0 && t.pkg == in && t.took > least && t.took <= most {
					some = append(some, t)
					limit += 6 * t.took
				}
			}
			if len(some) == 0 {
				continue
			}
			if what := b.run(some, min(limit, b.r.limit), fmt.Sprintf("MUTANT=%d", id)); what != survived {
				return what
			}
		}
		least = most
	}
	return survived
}

// run runs tests of one package.
func (b *switched) run(tests []measured, limit time.Duration, env string) outcome {
	var names []string
	for _, t := range tests {
		names = append(names, t.name)
	}
	r := b.r
	r.limit = limit
	return r.tested(tests[0].bin, tests[0].pkg, []string{"-test.run", "^(" + strings.Join(names, "|") + ")$"}, env)
}
