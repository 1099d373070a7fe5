// Command benchrack measures a rack on this machine: rates, bandwidths and latencies beside those
// of the same frames without RDMA, and operations of the stores. A round runs all measures in turn,
// and rounds repeat, so that a change of the machine's speed affects both sides of a ratio. The
// command prints medians with their spread, and writes every value to a file, which benchstat
// compares with that of another commit. With -rxe it compares the NIC with that of a stock kernel
// in virtual machines instead. With -guide it profiles the daemons for the compiler.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// rackName is the name of the rack that is brought up. A rack of this name that is up is taken
// down.
const rackName = "benchrack"

func main() {
	program := flag.String("program", "bin/rdmalab", "the program to measure")
	rounds := flag.Int("rounds", 5, "how many rounds")
	file := flag.String("o", "out/bench-rack.txt", "file for all values, in the format of Go benchmarks")
	rxe := flag.Bool("rxe", false, "compare with the NIC of a stock kernel, in virtual machines")
	boot := flag.String("init", "out/guest", "with -rxe: e2e/interop/guest, built without cgo")
	kvm := flag.Bool("kvm", false, "with -rxe: let KVM run the processors of the virtual machines")
	cpus := flag.Int("cpus", defaultCPUs, "with -rxe: how many processors each virtual machine has")
	guide := flag.String("guide", "", "measure nothing, but write profiles of the daemons to this file, for the compiler (default.pgo)")
	only := flag.String("only", ".", "regular expression of the measures to run, like ^default/")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	pick, err := regexp.Compile(*only)
	switch {
	case err != nil:
		err = fmt.Errorf("-only: %w", err)
	case *rounds < 1:
		err = errors.New("-rounds: at least 1 is needed")
	case *cpus < 1:
		err = errors.New("-cpus: at least 1 is needed")
	case flag.NArg() > 0:
		err = fmt.Errorf("%q: only flags are taken", flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchrack:", err)
		os.Exit(2)
	}
	b := bench{program: *program, pick: pick}
	stages := b.stages()
	if *rxe {
		stages, err = newLab(ctx, b, *boot, *cpus, *kvm)
	}
	switch {
	case err != nil:
	case *guide != "":
		err = b.guide(ctx, *guide)
	default:
		err = run(ctx, stages, *rounds, *file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchrack:", err)
		stop()
		os.Exit(1)
	}
}

// stage is a part of a round: run brings up what is measured, adds the values to t, and takes it
// down. Files go to dir.
type stage struct {
	name string
	run  func(ctx context.Context, dir string, t *tally) error
}

// stages are the racks of which a measure is picked.
func (b bench) stages() (all []stage) {
	for _, r := range racks {
		if len(b.picked(r)) == 0 {
			continue
		}
		all = append(all, stage{r.name, func(ctx context.Context, dir string, t *tally) error { return b.rack(ctx, dir, r, t) }})
	}
	return all
}

// run runs the rounds, and prints and writes the results, also when a round was interrupted.
func run(ctx context.Context, stages []stage, rounds int, file string) error {
	dir, err := os.MkdirTemp("", "benchrack")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var t tally
	for i := range rounds {
		for _, s := range stages {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", i+1, rounds, s.name)
			if err = s.run(ctx, dir, &t); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	t.print(os.Stdout)
	if len(t.rows) > 0 {
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, t.benchmarks(), 0o644))
	}
	return err
}

// bench runs measures with the program rdmalab.
type bench struct {
	program string
	pick    *regexp.Regexp // selects measures by name
}

// picked are the measures of a rack that run.
func (b bench) picked(r rack) (ms []measure) {
	for _, m := range r.measures {
		if b.pick.MatchString(r.name + "/" + m.name) {
			ms = append(ms, m)
		}
	}
	return ms
}

// rack runs the measures of a rack that are picked.
func (b bench) rack(ctx context.Context, dir string, r rack, t *tally) error {
	ms := b.picked(r)
	if p := missing(); p != "" && slices.ContainsFunc(ms, func(m measure) bool { return m.server != nil }) {
		fmt.Fprintf(os.Stderr, "%s is left out: %s is not installed (package perftest)\n", r.name, p)
		return nil
	}
	return b.on(ctx, dir, r, func() error {
		for _, m := range ms {
			out, err := b.measure(ctx, m)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", r.name, m.name, err)
			}
			v, err := m.read(out)
			if err != nil {
				return fmt.Errorf("%s/%s: %w", r.name, m.name, err)
			}
			base := ""
			if m.base != "" {
				base = r.name + "/" + m.base
			}
			t.add(r.name+"/"+m.name, m.unit, base, v)
		}
		return nil
	})
}

// on brings a rack up, calls do, and takes the rack down. Its rack file is in dir.
func (b bench) on(ctx context.Context, dir string, r rack, do func() error) (err error) {
	file := filepath.Join(dir, r.name+".yaml")
	if err := os.WriteFile(file, []byte(r.file), 0o644); err != nil {
		return err
	}
	if _, err := b.rdmalab(ctx, "up", "-f", file); err != nil {
		return err
	}
	defer func() {
		_, down := b.rdmalab(context.WithoutCancel(ctx), "down")
		err = errors.Join(err, down)
	}()
	return do()
}

// measure runs the command of a measure, together with the command of the other end if the measure
// has one. It returns the output of the first.
func (b bench) measure(ctx context.Context, m measure) ([]byte, error) {
	if m.server != nil {
		return pair(ctx, b.command(m.server), b.command(m.args))
	}
	return b.rdmalab(ctx, m.args...)
}

// command is a command on the rack.
func (b bench) command(args []string) command {
	return func(ctx context.Context) ([]byte, error) { return b.rdmalab(ctx, args...) }
}

// commandLimit bounds one command.
const commandLimit = 2 * time.Minute

// rdmalab runs a command on the rack and returns what it printed.
func (b bench) rdmalab(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.program, append([]string{"--rack", rackName}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // the command can clean up, which it could not after SIGKILL
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("rdmalab %v: %w", args, context.Cause(ctx))
	case errors.As(err, &exit):
		return nil, fmt.Errorf("rdmalab %v: %w: %s%s", args, err, exit.Stderr, out)
	}
	return out, err
}
