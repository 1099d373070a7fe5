package layering

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// settings are lines of a Makefile that set a variable for all goals.
	settings = regexp.MustCompile(`(?m)^([A-Za-z_][A-Za-z0-9_]*)[ \t]*(:?:?=|!=)`)
	// phonies are lines that name goals.
	phonies = regexp.MustCompile(`(?m)^\.PHONY:(.*)$`)
)

// setTwice returns the variables that a Makefile sets in more than one line. The last line counts for all uses, before and behind it.
func setTwice(makefile string) (twice []string) {
	lines := map[string]int{}
	for _, m := range settings.FindAllStringSubmatch(makefile, -1) {
		if lines[m[1]]++; lines[m[1]] == 2 {
			twice = append(twice, m[1])
		}
	}
	return twice
}

func TestMakefileSetsEachVariableOnce(t *testing.T) {
	if twice := setTwice("A = 1\nB := 2\nrule:\n\tC=3; A=4\nA := 5\nB ?= 6\n"); len(twice) != 1 || twice[0] != "A" {
		t.Fatalf("a Makefile that sets A twice: found %q", twice)
	}
	if twice := setTwice(string(read(t, "Makefile"))); len(twice) > 0 {
		t.Errorf("Makefile sets %s more than once: the last line counts for all goals", strings.Join(twice, ", "))
	}
}

// TestGoalsAreShellScripts has a shell read what each goal would run, without running it.
func TestGoalsAreShellScripts(t *testing.T) {
	if err := shellReads(t, "for run in ; do echo $run; done virtual & x"); err == nil {
		t.Fatal("the shell reads a line that is none")
	}
	root := filepath.Join("..", "..")
	for _, m := range phonies.FindAllStringSubmatch(string(read(t, "Makefile")), -1) {
		for goal := range strings.FieldsSeq(m[1]) {
			t.Run(goal, func(t *testing.T) {
				show := exec.Command("make", "-n", "--no-print-directory", "-C", root, goal)
				show.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
				script, err := show.Output()
				if err != nil {
					t.Fatalf("make -n %s: %v", goal, err)
				}
				if err := shellReads(t, string(script)); err != nil {
					t.Errorf("what make %s would run is no shell script: %v", goal, err)
				}
			})
		}
	}
}

// shellReads returns what sh has against a script, which it does not run.
func shellReads(t *testing.T, script string) error {
	t.Helper()
	sh := exec.Command("sh", "-n")
	sh.Stdin = strings.NewReader(script)
	if said, err := sh.CombinedOutput(); err != nil {
		t.Logf("%s", said)
		return err
	}
	return nil
}

// TestSuitesGetTheirVariables runs the last line of a goal with a program in place of the suites that prints its environment.
func TestSuitesGetTheirVariables(t *testing.T) {
	root := filepath.Join("..", "..")
	for _, c := range []struct{ goal, variable, want string }{
		{"e2e-apps", "APPS=short", "RDMALAB_APPS=short"},
		{"e2e-docker", "PLUG=outside", "RDMALAB_E2E_RUNTIME=docker:outside"},
		{"endure", "LASTS=2m", "RDMALAB_ENDURE=2m"},
	} {
		t.Run(c.goal, func(t *testing.T) {
			show := exec.Command("make", "-n", "--no-print-directory", "-C", root, c.goal, c.variable)
			show.Env = append(os.Environ(), "MAKEFLAGS=", "MFLAGS=")
			script, err := show.Output()
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(script)), "\n")
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "out"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "out", "suites"), []byte("#!/bin/sh\nenv\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			run := exec.Command("sh", "-c", lines[len(lines)-1])
			run.Dir = dir
			said, err := run.CombinedOutput()
			if err != nil || !strings.Contains("\n"+string(said), "\n"+c.want+"\n") {
				t.Errorf("%v: no %s in the environment of\n%s:\n%s", err, c.want, lines[len(lines)-1], said)
			}
		})
	}
}
