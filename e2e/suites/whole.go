package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// All tests, in this order: unit tests with the race detector; suites on racks. Tests in virtual time and the
// first seeds of the scenarios need no rack: they run at idle priority beside both. Suites run after the unit
// tests: each daemon of a rack has a scheduling group of its own where the kernel makes one for each session,
// and a switch that gets no processor for half a second costs connections.

// Suites that mostly wait, for timeouts and for hosts that come back: one of each runs at a time. Suites in
// neither list run alone, as smoke does, which brings up a hundred hosts at once.
var (
	firstOfTwo  = []string{"e2e/switch", "e2e/transport", "e2e/kvcs", "e2e/onerma", "e2e/sherman"}
	secondOfTwo = []string{"e2e/chaos", "e2e/clover", "e2e/docs", "e2e/fusee", "e2e/nictable", "e2e/endure"}
)

// outOf is where the tests in virtual time have their program: bin/rdmalab is built meanwhile.
const outOf = "out/test"

// whole runs all tests.
func whole(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.focus != "" {
		return errors.New("-focus picks specs of one suite: use make e2e FOCUS=…")
	}
	t := newTally(os.Stdout, o.expect)
	if !cc() {
		fmt.Println("no C compiler: the race detector is off")
	}
	if os.Getuid() != 0 {
		fmt.Println("not root: the tests that need namespaces are skipped")
	}
	if err := prepare(); err != nil {
		return err
	}
	t.now("packages are built") // once, as two compilations of one at the same time would take twice as long
	if err := built(ctx); err != nil {
		return err
	}
	calm := inVirtualTime(ctx, o, t)
	defer func() { cancel(); <-calm.done }()
	if err := unitTests(ctx, t); err != nil {
		return err
	}
	if err := suitesOnRacks(ctx, o, t); err != nil {
		return err
	}
	t.now("those in virtual time")
	calm.hurry()
	<-calm.done
	t.now("the end")
	err := errors.Join(calm.err, t.end(o.skips))
	_, copied := os.Stdout.Write(calm.said)
	return errors.Join(err, copied)
}

// prepare makes the folder outOf with a copy of the program.
func prepare() error {
	if err := errors.Join(os.RemoveAll(outOf), os.MkdirAll(outOf, 0o755)); err != nil {
		return err
	}
	from, err := os.Open("bin/rdmalab")
	if err != nil {
		return fmt.Errorf("%w: make build makes it", err)
	}
	defer from.Close()
	to, err := os.OpenFile(outOf+"/rdmalab", os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}

// built compiles all packages as their tests need them.
func built(ctx context.Context) error {
	args, env := []string{goCommand(), "build"}, os.Environ()
	if cc() {
		args, env = append(args, "-race"), append(env, "CGO_ENABLED=1")
	}
	cmd := group(ctx, true, env, append(args, "./..."))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	return ended(ctx, cmd)
}

// unitTests runs the tests that may race, and then those that the race detector would falsify.
func unitTests(ctx context.Context, t *tally) error {
	t.now("unit tests")
	names, err := raced(ctx)
	if err != nil {
		return err
	}
	if err := (goTest{race: true, args: append([]string{"-shuffle=on", "-timeout", "30m", "-skip", noRaceTests}, names...)}).run(ctx, t, nil); err != nil {
		return err
	}
	t.now("those without the race detector")
	if names, err = unraced(ctx); err != nil {
		return err
	}
	return (goTest{args: append([]string{"-run", noRaceTests}, names...)}).run(ctx, t, nil)
}

// suitesOnRacks runs the specs.
func suitesOnRacks(ctx context.Context, o options, t *tally) error {
	all, err := onRacks(ctx)
	if err != nil {
		return err
	}
	first, second := folders(firstOfTwo), folders(secondOfTwo)
	rest := slices.DeleteFunc(all, func(name string) bool { return slices.Contains(first, name) || slices.Contains(second, name) })
	s := suite{timeout: 15 * time.Minute, alone: true, random: true}
	t.now("suites that run two at a time")
	two, ended := errgroup.WithContext(ctx)
	for _, packages := range [][]string{first, second} {
		c := s.command(o, packages)
		two.Go(func() error { return c.run(ended, t, nil) })
	}
	if err := two.Wait(); err != nil {
		return err
	}
	t.now("other suites")
	return s.command(o, rest).run(ctx, t, nil)
}
