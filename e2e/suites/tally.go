package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// tally counts the results. Several goroutines may add to it.
type tally struct {
	mu                      sync.Mutex
	w                       io.Writer
	expect                  *regexp.Regexp      // reasons of expected skips
	expected                int                 // how many of the skipped tests match expect
	output                  map[string][]string // by package and test, until the test ends
	passed, failed, skipped int
	specsPassed             int // of passed, those that are specs
	reasons                 []string
	packages                int
	running                 map[string]bool // packages that have begun and not ended
	// exited is true if a go command has ended with an error. That also happens without a failed
	// test, for example if the command was killed.
	exited bool
}

func newTally(w io.Writer, expect *regexp.Regexp) *tally {
	return &tally{w: w, expect: expect, output: map[string][]string{}, running: map[string]bool{}}
}

// ginkgoSummary matches the numbers of specs that a Ginkgo suite prints at its end. Ginkgo writes
// the four parts one after another, so other output of the process may be between them.
var ginkgoSummary = regexp.MustCompile(`(?s)(\d+) Passed \|.*?(\d+) Failed \|.*?(\d+) Pending \|.*?(\d+) Skipped`)

// ginkgoBegin is what a suite prints before its first spec.
const ginkgoBegin = "Running Suite: "

// ansi is a terminal colour sequence.
var ansi = regexp.MustCompile("\x1b\\[[0-9;]*m")

func (t *tally) add(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if e.Action == "build-output" {
			key = "build " + e.ImportPath
			fmt.Fprint(t.w, e.Output)
		}
		t.output[key] = append(t.output[key], e.Output)
		if line := strings.TrimSpace(ansi.ReplaceAllString(e.Output, "")); strings.HasPrefix(line, "[SKIPPED]") {
			t.reasons = append(t.reasons, line)
		}
	case "start":
		t.running[e.Package] = true
	case "pass", "fail", "skip":
		if e.Test == "" {
			t.endPackage(e)
		} else {
			t.endTest(e, key)
		}
		delete(t.output, key)
	}
}

// message prints a line that is no event of `go test -json`: a message of the go command.
func (t *tally) message(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.w, line)
}

// now prints what begins, and the time.
func (t *tally) now(what string) {
	t.message(fmt.Sprintf("-- %s, at %s", what, time.Now().UTC().Format(time.TimeOnly)))
}

// commandFailed counts a go command that has failed: it may have died without an event that says so.
func (t *tally) commandFailed(exit error) {
	t.message(fmt.Sprintf("go test ended with %v", exit))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.exited = true
}

// specs counts the specs of a test that is a Ginkgo suite, by the last summary in its output. A
// suite without a readable summary counts as failed: its skips are unknown.
func (t *tally) specs(e event, lines []string) {
	text := ansi.ReplaceAllString(strings.Join(lines, ""), "")
	summaries := ginkgoSummary.FindAllStringSubmatch(text, -1)
	if len(summaries) > 0 {
		n := func(i int) int { v, _ := strconv.Atoi(summaries[len(summaries)-1][i]); return v } // the pattern has digits only
		t.passed += n(1)
		t.specsPassed += n(1)
		t.failed += n(2)
		t.skipped += n(3) + n(4)
	} else if e.Action == "pass" && strings.Contains(text, ginkgoBegin) {
		t.failed++
		fmt.Fprintf(t.w, "\n=== NO SUMMARY of the specs of %s %s\n%s", e.Package, e.Test, strings.Join(lines[max(0, len(lines)-cutOffLines):], ""))
	}
}

func (t *tally) endTest(e event, key string) {
	lines := t.output[key]
	t.specs(e, lines)
	switch e.Action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		reason := skipReason(lines)
		if t.expect.MatchString(reason) {
			t.expected++
			return
		}
		t.reasons = append(t.reasons, fmt.Sprintf("%s %s: %s", e.Package, e.Test, reason))
	case "fail":
		t.failed++
		fmt.Fprintf(t.w, "\n=== FAILED %s %s\n%s", e.Package, e.Test, strings.Join(lines, ""))
	}
}

// skipReason returns the text that a skipped test has logged.
func skipReason(lines []string) string {
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "===") && !strings.HasPrefix(l, "---") {
			return l
		}
	}
	return "no reason given"
}

func (t *tally) endPackage(e event) {
	t.packages++
	delete(t.running, e.Package)
	switch e.Action {
	case "pass":
		fmt.Fprintf(t.w, "ok    %s  %.1fs\n", e.Package, e.Elapsed)
	case "fail":
		t.failed++ // a package fails as a whole when it does not build, panics or times out
		fmt.Fprintf(t.w, "FAIL  %s  %.1fs\n%s", e.Package, e.Elapsed, strings.Join(t.output[e.Package+" "], ""))
		t.cutOff(e.Package)
	}
}

// cutOffLines bounds what is shown of a test that was running when its package ended.
const cutOffLines = 1500

// cutOff prints the end of the output of tests that did not end; these are stacks if the package
// ran out of time.
func (t *tally) cutOff(pkg string) {
	keys := slices.Sorted(maps.Keys(t.output))
	for _, key := range keys {
		test, ok := strings.CutPrefix(key, pkg+" ")
		if !ok || test == "" {
			continue
		}
		lines := t.output[key]
		fmt.Fprintf(t.w, "\n=== NEVER ENDED %s %s\n%s", pkg, test, strings.Join(lines[max(0, len(lines)-cutOffLines):], ""))
		delete(t.output, key)
	}
}

// endFocused is end for specs that were picked: the others count as skipped, and at least one must have passed.
func (t *tally) endFocused() error {
	if t.specsPassed == 0 {
		t.message("no spec passed: does the regular expression of -focus match one?")
		t.exited = true
	}
	return t.end(-1)
}

// errTests says that the report ends with the reason.
var errTests = errors.New("the tests have failed; the report above says why")

// end prints the end of the report. An error says that the run was not successful.
func (t *tally) end(allowedSkips int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.reasons {
		fmt.Fprintln(t.w, "skipped:", r)
	}
	for _, p := range slices.Sorted(maps.Keys(t.running)) {
		fmt.Fprintf(t.w, "\n=== NEVER ENDED %s\n", p)
		t.failed++
		t.cutOff(p)
	}
	ok := t.failed == 0 && !t.exited
	if t.packages == 0 || t.passed == 0 {
		fmt.Fprintln(t.w, "nothing ran: look at the lines above for what the go command said")
		ok = false
	}
	if n := t.skipped - t.expected; allowedSkips >= 0 && n > allowedSkips {
		fmt.Fprintf(t.w, "%d skipped, but only %d may be: install what is missing (reasons above)\n", n, allowedSkips)
		ok = false
	}
	if t.expected > 0 {
		fmt.Fprintf(t.w, "%d skips were expected (%v)\n", t.expected, t.expect)
	}
	fmt.Fprintf(t.w, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	if !ok {
		return errTests
	}
	return nil
}
