package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
)

// planted is a bug, and the test that must notice it. Such bugs leave out a protection, check something
// wrongly, or do a step too early. They are bugs of the stores, of the switch's use of servers' memory, and
// of both kinds of NICs.
type planted struct {
	name string
	file string
	// was is a text that occurs once in the file. To plant the bug, it is replaced by the text is.
	was, is string
	// by says what must notice the bug: a package and a test of it ("clover TestSettle"), or a
	// scenario with the arguments of `rdmalab sim` ("sim clover --mix wear"), of whose first 1,000
	// seeds at least one must fail. A text after a colon must be in the message of the failure, as in
	// "sim clover --mix wear: not linearizable".
	by string
}

const (
	// plantedStep is how many seeds one run of `rdmalab sim` tries for a planted bug.
	plantedStep = 50
	// plantedMost is the number of seeds after which the scenario counts as not noticing the bug.
	plantedMost = 1000
)

// mutant returns the bug as a change of its file.
func (p *planted) mutant() (*mutant, error) {
	src, err := os.ReadFile(p.file)
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(src), p.was); n != 1 {
		return nil, fmt.Errorf("%s: %q is there %d times", p.file, p.was, n)
	}
	at := strings.Index(string(src), p.was)
	return &mutant{file: p.file, src: src, begin: at, end: at + len(p.was), text: p.is}, nil
}

// plant tries the bugs whose names contain a text, and returns an error if one is not noticed.
func plant(part string, limit time.Duration) error {
	bugs, err := readBugs(bugsFolder)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, missed := runner{dir: dir, limit: limit}, 0
	for i := range bugs {
		p := &bugs[i]
		if part != "all" && !strings.Contains(p.name, part) {
			continue
		}
		m, err := p.mutant()
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		var what outcome
		by := p.by
		if args, ok := strings.CutPrefix(p.by, "sim "); ok {
			what, by = r.seeds(m, args)
		} else {
			what = r.named(m, p.by)
		}
		fmt.Printf("%-60s %v (%s)\n", p.name, what, by)
		if what != killed {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d planted bugs are not noticed", missed)
	}
	return nil
}

// named runs one test of a package with the bug.
func (r runner) named(m *mutant, by string) outcome {
	pkg, test, _ := strings.Cut(by, " ")
	bin, ok := r.built(m, []string{"test", "-vet=off", "-c"}, pkg)
	if !ok {
		return invalid
	}
	return r.fails(func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, bin, "-test.failfast", "-test.run", test)
		cmd.Dir = pkg
		return cmd
	})
}

// seeds runs a scenario with the change until a seed fails as expected, and says which seeds were
// tried.
func (r runner) seeds(m *mutant, by string) (outcome, string) {
	args, text, _ := strings.Cut(by, ": ")
	bin, ok := r.built(m, []string{"build"}, filepath.Join("cmd", "rdmalab"))
	if !ok {
		return invalid, "sim " + args
	}
	for first := 1; first <= plantedMost; first += plantedStep {
		var out strings.Builder
		what := r.fails(func(ctx context.Context) *exec.Cmd {
			list := append([]string{"sim"}, strings.Fields(args)...)
			cmd := exec.CommandContext(ctx, bin, append(list, "--seeds", fmt.Sprint(plantedStep), "--first", fmt.Sprint(first))...)
			cmd.Stderr = &out
			return cmd
		})
		if what == killed && !caught(out.String(), text) {
			what = survived
		}
		if what != survived {
			return what, fmt.Sprintf("sim %s, seeds %d to %d", args, first, first+plantedStep-1)
		}
	}
	return survived, fmt.Sprintf("sim %s, seeds 1 to %d", args, plantedMost)
}

// caught reports whether one of the failures that `rdmalab sim` has printed shows the bug: the
// failure contains text. A failure with kv.ErrUndecided does not count: the check of a history gave
// up without a result.
func caught(printed, text string) bool {
	for _, failure := range strings.Split("\n"+printed, "\nFAIL ")[1:] {
		if strings.Contains(failure, text) && !strings.Contains(failure, kv.ErrUndecided.Error()) {
			return true
		}
	}
	return false
}

// built builds a package with the change; it returns false if it does not compile.
func (r runner) built(m *mutant, build []string, pkg string) (bin string, ok bool) {
	overlay, err := r.overlay(m)
	if err != nil {
		return "", false
	}
	bin = filepath.Join(r.dir, "planted")
	return bin, exec.Command("go", append(build, "-overlay", overlay, "-o", bin, "./"+pkg)...).Run() == nil
}

// fails runs a command with the time limit of the runner. The outcome is killed if the command
// fails, and survived if it succeeds.
func (r runner) fails(command func(ctx context.Context) *exec.Cmd) outcome {
	ctx, cancel := context.WithTimeout(context.Background(), r.limit)
	defer cancel()
	cmd := command(ctx)
	cmd.WaitDelay = time.Second
	switch err := cmd.Run(); {
	case ctx.Err() != nil:
		return hung
	case err != nil:
		return killed
	}
	return survived
}
