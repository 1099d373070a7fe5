package cli

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// line runs a command line as Main does, and adds its result to the JUnit file of the environment.
func line(t *testing.T, args ...string) error {
	t.Helper()
	root := rootCmd(commands()...)
	root.SetArgs(args)
	root.SetOut(&strings.Builder{})
	root.SetErr(&strings.Builder{})
	return inJUnit(root, args, 1500*time.Millisecond, execute(t.Context(), root))
}

// Commands that check something add their result to the file of RDMALAB_JUNIT; report makes a table of it.
func TestJUnit(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "new", "junit.xml")
	t.Setenv(junitEnv, file)
	t.Setenv(rackEnv, missingRack)
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "a|b.yaml")
	for name, text := range map[string]string{good: "hosts: [{name: cn0, role: compute}]\n", bad: "name: a\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := line(t, "validate", good); err != nil {
		t.Error(err)
	}
	if err := line(t, "validate", bad); !isUse(err) {
		t.Errorf("%v, want a mistake in a file", err)
	}
	if err := line(t, "exec", "cn0", "--", "sh", "-h", "-c", "a 'b'"); err == nil || isUse(err) {
		t.Errorf("%v, want a rack that is not up", err)
	}
	for _, other := range [][]string{{"version"}, {"exec", "--help"}, {"faults"}, {"nosuch"}} {
		_ = line(t, other...) // no check: adds nothing
	}

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var f junitFile
	if err := xml.Unmarshal(text, &f); err != nil || len(f.Suites) != 1 {
		t.Fatalf("%v in\n%s", err, text)
	}
	s := f.Suites[0]
	if s.Tests != 3 || s.Failures != 1 || s.Errors != 1 || s.Time != "4.500" || s.Cases[0].Class != "rdmalab."+missingRack {
		t.Errorf("%+v", s)
	}
	if c := s.Cases[2]; c.Name != `exec cn0 -- sh -h -c 'a '\''b'\'''` || c.Failure == nil || !strings.Contains(c.Failure.Message, "is not up") {
		t.Errorf("%+v", c)
	}

	out, err := run(t, "report")
	if err != nil || !strings.Contains(out, "| ok | `validate "+good+"` | 1.500 |  |\n") || !strings.Contains(out, `a\|b.yaml`) ||
		!strings.HasSuffix(out, "\n2 of 3 failed.\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A result is not added to what is no file, and not to the results of another program.
func TestJUnitOfOthers(t *testing.T) {
	dir := t.TempDir()
	pipe, other := filepath.Join(dir, "pipe"), filepath.Join(dir, "other.xml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	const theirs = `<testsuites><testsuite name="theirs"><testcase name="a"><skipped/></testcase></testsuite></testsuites>`
	if err := os.WriteFile(other, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{pipe: "is no file", "/dev/null": "is no file", "/dev/zero": "is no file", other: "of another program"} {
		if err := addJUnit(name, &junitCase{Name: "x"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one about %q", name, err, want)
		}
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != theirs {
		t.Errorf("%s, %v", text, err)
	}
}

// Processes add results at the same time; a file that is none is left as it is.
func TestJUnitTogether(t *testing.T) {
	file := filepath.Join(t.TempDir(), "junit.xml")
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := addJUnit(file, &junitCase{Name: "x"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := readJUnit(text); err != nil || f.Suites[0].Tests != 20 {
		t.Errorf("%v, %+v", err, f)
	}
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := addJUnit(file, &junitCase{Name: "x"}); err == nil || !strings.Contains(err.Error(), "no JUnit file") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadFile(file); err != nil || string(left) != "mine" {
		t.Errorf("%q, %v", left, err)
	}
}

// Without a file there is nothing to report, and the answer says what to write.
func TestReportRefusals(t *testing.T) {
	t.Setenv(junitEnv, "")
	for want, args := range map[string][]string{
		"which file? Name it, or set RDMALAB_JUNIT": {"report"},
		"no such file":  {"report", "nosuch.xml"},
		"no JUnit file": {"report", "junit_test.go"},
	} {
		if _, err := run(t, args...); !isUse(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
