package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// standIn takes the place of the go command.
func standIn(t *testing.T, script string) {
	t.Helper()
	path := t.TempDir() + "/go"
	if out, err := exec.Command("sh", "-c", `printf '#!/bin/sh\n%s\n' "$1" >"$2"; chmod +x "$2"`, "sh", script, path).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	t.Setenv("GO", path)
}

// A go command can die without an event that says so.
func TestCommandThatFails(t *testing.T) {
	standIn(t, `echo '{"Action":"pass","Package":"q","Test":"TestA"}'; echo '{"Action":"pass","Package":"q"}'; echo "go: cannot find GOROOT directory" >&2; exit 2`)
	var out strings.Builder
	tl := newTally(&out, regexp.MustCompile("^$"))
	if err := (goTest{}).run(t.Context(), tl, nil); err != nil {
		t.Fatal(err)
	}
	if err := tl.end(-1); !errors.Is(err, errTests) || !strings.Contains(out.String(), "cannot find GOROOT") || !strings.Contains(out.String(), "exit status 2") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// With the context end all processes of the command, also one that it has started and that ignores the signal.
func TestEndsTheWholeGroup(t *testing.T) {
	standIn(t, `(trap "" INT; exec sleep 1000) & echo $!; wait`)
	r, w := io.Pipe()
	tl := newTally(w, regexp.MustCompile("^$"))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (goTest{}).run(ctx, tl, nil) }()
	var pid int
	line := make([]byte, 16)
	n, err := r.Read(line)
	for _, c := range strings.TrimSpace(string(line[:n])) {
		pid = pid*10 + int(c-'0')
	}
	if err != nil || pid == 0 {
		t.Fatal(pid, err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for deadline := time.Now().Add(time.Minute); alive(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d goes on", pid)
		}
	}
}

// alive reports whether a process has not ended; a zombie has.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// A regular expression that matches no spec is a mistake, although the Go test that runs the specs passes.
func TestFocusThatMatchesNothing(t *testing.T) {
	for passed, ok := range map[string]bool{"0": false, "1": true} {
		standIn(t, `echo '{"Action":"output","Package":"q","Test":"TestS","Output":"`+passed+` Passed | 0 Failed | 0 Pending | 9 Skipped"}'
echo '{"Action":"pass","Package":"q","Test":"TestS"}'; echo '{"Action":"pass","Package":"q"}'`)
		_, o, err := parse([]string{"-skips", "0", "-focus", "x", "verbs"})
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), "verbs", o); (err == nil) != ok {
			t.Errorf("%s specs passed: %v", passed, err)
		}
	}
}

func TestArguments(t *testing.T) {
	_, o, err := parse([]string{"-skips", "0", "-focus", "a b", "-expect", "x", "-expect", "y|z", "verbs"})
	if err != nil || o.skips != 0 || o.expect.String() != "y|z" {
		t.Fatal(o, err)
	}
	got := strings.Join(suites["verbs"].command(o, []string{"./e2e/verbs"}).args, "|")
	want := "-timeout|25m0s|-count=1|./e2e/verbs|-args|-ginkgo.no-color|-ginkgo.poll-progress-after=150s|-ginkgo.timeout=24m0s|-ginkgo.focus=a b"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, args := range [][]string{{}, {"test", "unit"}, {"-expect", "(", "unit"}} {
		if _, _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if err := run(t.Context(), "nothing", o); err == nil {
		t.Error("a suite that is in no table runs")
	}
	if err := run(t.Context(), "compact", options{expect: o.expect}); err == nil {
		t.Error("no run is taken for success")
	}
	if err := run(t.Context(), "test", o); err == nil {
		t.Error("all tests take a focus")
	}
	again := options{runs: []string{"transport"}, expect: o.expect}
	if err := run(t.Context(), "compact", again); err == nil {
		t.Error("a run without a colon is taken")
	}
}
