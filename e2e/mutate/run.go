package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// outcome is the result of running the tests with a change.
type outcome int

const (
	survived outcome = iota // no test has failed
	killed                  // a test has failed
	hung                    // the tests did not end in time
	invalid                 // the changed package does not compile
)

var outcomes = [...]string{"no test fails", "a test fails", "the tests do not end in time", "it does not compile"}

// String says what happened.
func (o outcome) String() string { return outcomes[o] }

// runner builds and runs the tests.
type runner struct {
	dir   string // for the binaries that it builds
	tests []string
	limit time.Duration
	short bool
}

// test runs the tests with a change; nil means no change.
func (r runner) test(m *mutant) outcome {
	build := []string{"test", "-vet=off", "-ldflags=-s -w", "-c"}
	if m != nil {
		overlay, err := r.overlay(m)
		if err != nil {
			return invalid
		}
		build = append(build, "-overlay", overlay)
	}
	for i, pkg := range r.tests {
		bin := filepath.Join(r.dir, fmt.Sprintf("%d.test", i))
		if err := exec.Command("go", append(build, "-o", bin, "./"+pkg)...).Run(); err != nil {
			return invalid
		}
		if _, err := os.Stat(bin); err != nil {
			continue // the package has no tests
		}
		if o := r.run(bin, pkg); o != survived {
			return o
		}
	}
	return survived
}

// overlay writes the file with which `go build -overlay` sees the change.
func (r runner) overlay(m *mutant) (string, error) {
	return r.overlays("changed", map[string][]byte{m.file: m.source()})
}

// overlays writes the file with which `go build -overlay` sees other contents of some files. name
// begins the names of the files that it writes.
func (r runner) overlays(name string, files map[string][]byte) (string, error) {
	replace := map[string]string{}
	for file, src := range files {
		abs, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[abs] = filepath.Join(r.dir, name+"-"+filepath.Base(file))
		if err := os.WriteFile(replace[abs], src, 0o644); err != nil {
			return "", err
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(r.dir, name+".json")
	return overlay, os.WriteFile(overlay, b, 0o644)
}

// run runs the tests of one package.
func (r runner) run(bin, pkg string) outcome {
	return r.tested(bin, pkg, nil)
}

// tested runs the tests of a package with more flags, and with env added to the environment.
func (r runner) tested(bin, pkg string, flags []string, env ...string) outcome {
	args := append([]string{"-test.failfast", "-test.timeout", (2 * r.limit).String()}, flags...)
	if r.short {
		args = append(args, "-test.short")
	}
	return r.fails(func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Dir, cmd.Env = pkg, append(os.Environ(), env...)
		return cmd
	})
}
