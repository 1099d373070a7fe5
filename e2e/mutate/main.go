// Command mutate measures what the tests of packages notice. It makes one change at a time in a
// package (of a condition, a bound, a constant, a statement), runs the tests, and prints the
// changes that the tests did not notice, and the share of the changes that they noticed. The tests
// are built once with all changes; an environment variable switches one change on, and only tests
// that reach it are run. A change that cannot have a switch, like the length of an array, is built
// alone. Changes are overlays of the build (go build -overlay), so no source file is modified. The
// command fails if the share is below -min.
//
// An argument is the folder of a package, or PACKAGE=TESTS,TESTS if its tests are in other
// packages. A seed chooses the sample. Changes that no test can notice are in known.txt, each with
// its reason, and do not count.
//
// With -planted it tries a list of bugs, each with the test or the scenario that must notice it.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	n := flag.Int("n", 0, "how many changes of each package to try; 0: all")
	seed := flag.Uint64("seed", 1, "decides which ones")
	limit := flag.Duration("timeout", 5*time.Minute, "how long the tests may take for one change, at most; six times what they take without a change is less")
	short := flag.Bool("short", true, "run the tests with -short")
	least := flag.Int("min", 0, "fail when the tests of a package notice less than this share, in percent")
	bugs := flag.String("planted", "", "try the bugs of the folder planted whose names contain this instead; all: all of them")
	flag.Parse()
	var known map[string]string
	var err error
	if *bugs != "" {
		err = plant(*bugs, *limit)
	} else if known, err = readKnown(filepath.Join("e2e", "mutate", "known.txt")); err == nil {
		err = mutateAll(flag.Args(), *n, *seed, *least, runner{limit: *limit, short: *short}, known)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

// mutateAll tests the packages one after the other. The working directory must be the root of the
// module.
func mutateAll(targets []string, n int, seed uint64, least int, r runner, known map[string]string) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r.dir = dir
	poor := 0
	for _, target := range targets {
		pkg, tests, _ := strings.Cut(target, "=")
		if tests == "" {
			tests = pkg
		}
		r.tests = strings.Split(tests, ",")
		score, err := mutatePackage(pkg, n, seed, r, known)
		if err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		if score < least {
			poor++
		}
	}
	if poor > 0 {
		return fmt.Errorf("the tests of %d packages notice less than %d %%", poor, least)
	}
	return nil
}

// mutatePackage prints the survivors of one package and returns its score in percent.
func mutatePackage(pkg string, n int, seed uint64, r runner, known map[string]string) (int, error) {
	all, err := find(pkg)
	if err != nil {
		return 0, err
	}
	c, err := newChecker(pkg)
	if err != nil {
		return 0, err
	}
	b, err := r.buildSwitched(c, pkg, all)
	if err != nil {
		return 0, err
	}
	counts := map[outcome]int{}
	tried, accepted := 0, 0
	for _, i := range rand.New(rand.NewPCG(seed, 0)).Perm(len(all)) {
		if n > 0 && tried == n {
			break
		}
		m := &all[i]
		if known[m.key()] != "" {
			accepted++
			continue
		}
		what := invalid // the outcome if the change does not compile
		if c.compiles(m) {
			what = b.test(m)
		}
		counts[what]++
		if what == invalid {
			continue
		}
		tried++
		if what == survived {
			fmt.Printf("%v%s\n", m, map[bool]string{false: " (no test reaches it)"}[b.reached(m)])
		}
	}
	score := 100
	if tried > 0 {
		score = 100 * (counts[killed] + counts[hung]) / tried
	}
	fmt.Printf("%s: %d %% noticed: %d of %d (%d by time), seed %d, %d changes in all, %d known\n", pkg, score, counts[killed]+counts[hung], tried, counts[hung], seed, len(all), accepted)
	return score, nil
}

// readKnown reads the list of changes that do not count. Each line has the key of a change (see
// mutant.key), a tab, and the reason.
func readKnown(path string) (map[string]string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	known := map[string]string{}
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, ok := strings.Cut(line, "\t")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s:%d: want what survives, a tab, and why", path, i+1)
		}
		known[key] = reason
	}
	return known, nil
}
