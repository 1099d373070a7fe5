// Command suites runs tests for the Makefile, and prints a summary of what `go test -json` says: a line for each package, the whole
// output of failed tests, every skip with its reason, and a last line "N passed, N failed, N skipped", which counts tests and Ginkgo
// specs. It fails if a test failed, if no test ran, or if more tests were skipped than -skips allows; skips whose reason matches -expect
// do not count. Its argument is `test`, for all tests that need no packages of a distribution, or the name of a row of the table in
// table.go.
//
// It ends the processes that it has started when it gets a signal.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// options is what the flags say.
type options struct {
	skips  int
	expect *regexp.Regexp
	focus  string
	runs   []string
	few    int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE, syscall.SIGTERM)
	defer stop()
	name, o, err := parse(os.Args[1:])
	if err == nil {
		err = run(ctx, name, o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "suites:", err)
		stop()
		os.Exit(1)
	}
}

func parse(args []string) (name string, o options, err error) {
	flags := flag.NewFlagSet("suites", flag.ContinueOnError)
	flags.IntVar(&o.skips, "skips", -1, "fail when more than this many tests and specs were skipped; -1 allows any number")
	expect := flags.String("expect", "^$", "regular expression of reasons for which a skip is expected")
	flags.StringVar(&o.focus, "focus", "", "regular expression of the specs to run; empty: all")
	again := flags.String("runs", "", "the runs of a suite that runs again, separated by spaces: what the switch does (forward if empty), a colon, the suite")
	flags.IntVar(&o.few, "few", 0, "with test: how many seeds of each scenario run; 0: no scenario runs")
	if err := flags.Parse(args); err != nil {
		return "", o, err
	}
	o.runs = strings.Fields(*again)
	if o.expect, err = regexp.Compile(*expect); err != nil {
		return "", o, fmt.Errorf("-expect: %w", err)
	}
	if flags.NArg() != 1 {
		return "", o, fmt.Errorf("want one suite: test or one of %s", strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
	}
	return flags.Arg(0), o, nil
}

// run runs a suite. All errors but its own are printed before it returns.
func run(ctx context.Context, name string, o options) error {
	if name == "test" {
		return whole(ctx, o)
	}
	s, ok := suites[name]
	if !ok {
		return fmt.Errorf("no suite %q: want test or one of %s", name, strings.Join(slices.Sorted(maps.Keys(suites)), ", "))
	}
	return s.run(ctx, o)
}
