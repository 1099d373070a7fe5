package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// suite is a row of the table: tests that one target of the Makefile runs.
type suite struct {
	// packages returns what is tested; nil means packages of e2e/ that have the names in `of`.
	packages func(ctx context.Context) ([]string, error)
	of       []string
	// dir is the folder of the module; "" means this one.
	dir string
	// timeout bounds a package, and specs all of its specs, so that one that hangs says where it is
	// before the package ends. 0 means no bound, and defaultSpecs.
	timeout, specs time.Duration
	// noRace leaves the race detector out; alone runs one package at a time, random its specs in random
	// order. unit means that the packages have no specs.
	noRace, alone, random, unit bool
	// args are more flags of go test, and label the specs to run by their label.
	args  []string
	label string
	// env is more of the environment.
	env []string
	// again is what is special about all runs of a suite that runs others once more (see -runs); "" means
	// that the suite is none of these.
	again string
}

// defaultSpecs bounds the specs of a package whose row has no other bound.
const defaultSpecs = 13 * time.Minute

// suites is the table.
var suites = map[string]suite{
	"unit": {packages: units, timeout: 20 * time.Minute, unit: true},
	"race": {packages: virtual, timeout: 60 * time.Minute, unit: true},
	"e2e":  {packages: onRacks, timeout: 15 * time.Minute, alone: true, random: true},

	"kube":     {packages: kubeUnits, dir: kubeModule, timeout: 20 * time.Minute, noRace: true, unit: true},
	"kube-e2e": {packages: kubeSuites, dir: kubeModule, timeout: 60 * time.Minute, noRace: true, unit: true, alone: true, args: []string{"-count=1"}},

	"cni":      {of: []string{"cni"}, timeout: 10 * time.Minute, label: "cni"},
	"machines": {of: []string{"machines"}, timeout: 10 * time.Minute},
	"verbs":    {of: []string{"verbs"}, timeout: 25 * time.Minute, specs: 24 * time.Minute},
	"apps":     {of: []string{"apps"}, timeout: 60 * time.Minute, specs: 59 * time.Minute},
	"interop":  {of: []string{"interop"}, timeout: 20 * time.Minute},
	"web":      {of: []string{"web"}, timeout: 10 * time.Minute, noRace: true, args: []string{"-tags", "chromium"}},
	"endure":   {of: []string{"endure"}, specs: 100 * time.Hour, noRace: true},
	"docker":   {of: []string{"container", "smoke", "transport", "chaos"}, timeout: 25 * time.Minute, alone: true, random: true},
	"long":     {of: []string{"transport"}, timeout: 25 * time.Minute, env: []string{"RDMALAB_E2E_LONG=1"}},

	"transparency": {again: "through a switch that does"},
	"singleframes": {again: "without super-frames", env: []string{"RDMALAB_E2E_GSO=off"}},
	"memorylinks":  {again: "over memory links", env: []string{"RDMALAB_E2E_CABLE=memory"}},
	"compact":      {again: "on compact racks", env: []string{"RDMALAB_E2E_DAEMONS=shared", "RDMALAB_APPS=short"}},
	"fabric":       {again: "over a fabric", env: []string{"RDMALAB_E2E_FABRIC=leaves"}},
	"trunk":        {again: "over a trunk of datagrams", env: []string{"RDMALAB_E2E_FABRIC=trunk"}},
}

// run runs the suite, or what -runs names with its environment.
func (s suite) run(ctx context.Context, o options) error {
	if s.again == "" {
		return s.once(ctx, o)
	}
	if len(o.runs) == 0 {
		return errors.New("-runs names no run")
	}
	for _, r := range o.runs {
		does, of, ok := strings.Cut(r, ":")
		if !ok {
			return fmt.Errorf("-runs: %q has no colon", r)
		}
		t := newTally(os.Stdout, o.expect)
		t.now(s.again + ": " + r)
		one := suite{of: []string{of}, timeout: 25 * time.Minute, alone: true, env: append([]string{"RDMALAB_E2E_SWITCH=" + does}, s.env...)}
		if err := one.counted(ctx, o, t); err != nil {
			return err
		}
	}
	return nil
}

func (s suite) once(ctx context.Context, o options) error {
	return s.counted(ctx, o, newTally(os.Stdout, o.expect))
}

// counted runs the suite, and ends t.
func (s suite) counted(ctx context.Context, o options, t *tally) error {
	packages, err := s.tested(ctx)
	if err != nil {
		return err
	}
	if err := s.command(o, packages).run(ctx, t, nil); err != nil {
		return err
	}
	if o.focus != "" {
		return t.endFocused()
	}
	return t.end(o.skips)
}

// tested returns the packages of the suite.
func (s suite) tested(ctx context.Context) (list []string, err error) {
	if s.packages != nil {
		return s.packages(ctx)
	}
	for _, name := range s.of {
		list = append(list, "./e2e/"+name)
	}
	return list, nil
}

// command returns the go command that tests packages as the suite says.
func (s suite) command(o options, packages []string) goTest {
	c := goTest{dir: s.dir, race: !s.noRace, env: s.env, args: append([]string{"-timeout", s.timeout.String()}, s.args...)}
	if s.alone {
		c.args = append(c.args, "-p", "1")
	}
	if s.unit {
		c.args = append(c.args, "-shuffle=on")
		c.args = append(c.args, packages...)
		return c
	}
	c.env = append(c.env, builtProgram()...)
	c.args = append(c.args, "-count=1")
	c.args = append(c.args, packages...)
	c.args = append(c.args, "-args", "-ginkgo.no-color", "-ginkgo.poll-progress-after=150s", "-ginkgo.timeout="+cmp.Or(s.specs, defaultSpecs).String())
	if s.random {
		c.args = append(c.args, "-ginkgo.randomize-all")
	}
	if s.label != "" {
		c.args = append(c.args, "-ginkgo.label-filter="+s.label)
	}
	if o.focus != "" {
		c.args = append(c.args, "-ginkgo.focus="+o.focus)
	}
	if os.Getenv("RDMALAB_WRITE") != "" {
		c.args = append(c.args, "-write")
	}
	return c
}
