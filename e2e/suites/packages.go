package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// packagesVirtual names the packages whose code and tests run in virtual time: all tests run them without
// the race detector, which makes them some fifteen times as slow, and `race` with it. `go test
// ./e2e/layering -write` keeps the list.
//
//go:embed virtual.txt
var packagesVirtual string

var (
	// readers only read files or build programs: there is nothing that could race either.
	readers = []string{"e2e/console", "e2e/coverage", "e2e/suites", "compose/examples"}
	// checked is run by make check, which goes before all tests.
	checked = []string{"e2e/layering"}
	// longest are those of the packages in virtual time that take longest. They run first: at the end no
	// processor waits for a single package.
	longest = []string{"sim/scenario", "experiment/insim", "swordbox/serialize", "fusee", "sherman", "clover", "softrnic/transport", "sim/simrack", "e2e/console"}
	// apart are packages of specs that have rows of their own in the table, because they need more than
	// root.
	apart = []string{"e2e/interop", "e2e/container", "e2e/cni", "e2e/machines", "e2e/verbs", "e2e/apps"}
)

// noRaceTests matches the tests that the race detector would falsify, because it allocates, and long ones
// in virtual time.
const noRaceTests = "Alloc|LargestRead|SimCalibrate|InVirtualTime"

// testsWithoutRace matches the line with which such a test begins.
var testsWithoutRace = regexp.MustCompile(`(?m)^func (Test|Fuzz|Example)[A-Za-z0-9_]*(` + noRaceTests + `)`)

// listed is a package as `go list` prints it.
type listed struct {
	Dir, ImportPath           string
	Module                    struct{ Path string }
	TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles []string
}

// name returns the path of the package in the module.
func (p *listed) name() string { return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/") }

// specs reports whether the tests of the package are Ginkgo specs.
func (p *listed) specs() bool {
	return slices.ContainsFunc(append(p.TestImports, p.XTestImports...), func(i string) bool { return strings.Contains(i, "ginkgo") })
}

// list returns the packages that match a pattern in the module of a folder; "" is this one.
func list(ctx context.Context, dir, pattern string) (all []*listed, err error) {
	cmd := exec.CommandContext(ctx, goCommand(), "list", "-json=Dir,ImportPath,Module,TestImports,XTestImports,TestGoFiles,XTestGoFiles", pattern)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", pattern, err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

// folders makes arguments of go test from names.
func folders(names []string) (list []string) {
	for _, n := range names {
		list = append(list, "./"+n)
	}
	return list
}

// selected returns the names of the packages of this module below pattern for which keep is true.
func selected(ctx context.Context, pattern string, keep func(*listed) bool) ([]string, error) {
	return selectedIn(ctx, "", pattern, keep)
}

// selectedIn is selected for the module of a folder.
func selectedIn(ctx context.Context, dir, pattern string, keep func(*listed) bool) ([]string, error) {
	all, err := list(ctx, dir, pattern)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range all {
		if keep(p) {
			names = append(names, p.name())
		}
	}
	return folders(names), nil
}

// units are all packages without specs.
func units(ctx context.Context) ([]string, error) {
	return selected(ctx, "./...", func(p *listed) bool { return !p.specs() })
}

// virtual are the packages in virtual time.
func virtual(context.Context) ([]string, error) { return folders(strings.Fields(packagesVirtual)), nil }

// plain are the packages that need no race detector, those that take longest first.
func plain() []string {
	rest := slices.DeleteFunc(append(strings.Fields(packagesVirtual), readers...), func(n string) bool { return slices.Contains(longest, n) })
	return folders(append(slices.Clone(longest), rest...))
}

// raced are the packages without specs that have the race detector.
func raced(ctx context.Context) ([]string, error) {
	others := slices.Concat(strings.Fields(packagesVirtual), readers, checked)
	return selected(ctx, "./...", func(p *listed) bool { return !p.specs() && !slices.Contains(others, p.name()) })
}

// unraced are the packages of raced with tests that run without the race detector.
func unraced(ctx context.Context) ([]string, error) {
	var failed error
	names, err := selected(ctx, "./...", func(p *listed) bool {
		if slices.Contains(strings.Fields(packagesVirtual), p.name()) {
			return false
		}
		for _, file := range append(p.TestGoFiles, p.XTestGoFiles...) {
			text, err := os.ReadFile(filepath.Join(p.Dir, file))
			failed = errors.Join(failed, err)
			if testsWithoutRace.Match(text) {
				return true
			}
		}
		return false
	})
	return names, errors.Join(err, failed)
}

// onRacks are the packages of specs that have no row of their own.
func onRacks(ctx context.Context) ([]string, error) {
	return selected(ctx, "./e2e/...", func(p *listed) bool { return p.specs() && !slices.Contains(apart, p.name()) })
}

// kubeModule is the folder of the module whose libraries of Kubernetes this one does not have.
const kubeModule = "kube"

// kubeUnits are the packages of that module which need no programs of Kubernetes.
func kubeUnits(ctx context.Context) ([]string, error) {
	return selectedIn(ctx, kubeModule, "./...", func(p *listed) bool { return p.name() != "e2e" && !strings.HasPrefix(p.name(), "e2e/") })
}

// kubeSuites are those that need them: a cluster, and an API server.
func kubeSuites(ctx context.Context) ([]string, error) {
	return selectedIn(ctx, kubeModule, "./e2e/...", func(p *listed) bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 })
}
