package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store"
)

type sweep struct {
	out    string
	over   []string
	rounds int
	resume bool
}

// ownFlags lists flags of a run that do not change what is measured.
var ownFlags = []string{"csv", "output", "quiet", "help", "spans", "spans-each"}

func sweepCmd() *cobra.Command {
	var s sweep
	cmd := &cobra.Command{
		Use:   "sweep --over FLAG=VALUE,VALUE… -w FILE",
		Short: "Run a workload with all combinations of some flags' values",
		Args:  cobra.NoArgs,
	}
	var base runFlags
	run := base.command().Flags()
	run.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(ownFlags, f.Name) {
			cmd.Flags().AddFlag(f)
		}
	})
	fs := cmd.Flags()
	fs.StringArrayVar(&s.over, "over", nil, "a flag of rdmalab run ycsb and its values, in the form `FLAG=VALUE,VALUE`, like clients=1,4,16 (repeatable; required)")
	fs.StringVarP(&s.out, "write", "w", "", "file to which the results are appended; without --resume it must have no results yet (required)")
	writesFile(cmd, "write")
	fs.IntVar(&s.rounds, "rounds", 1, "number of rounds; each round runs every combination once")
	fs.BoolVar(&s.resume, "resume", false, "run only the combinations and rounds whose results the file lacks")
	_ = errors.Join(cmd.MarkFlagRequired("over"), cmd.MarkFlagRequired("write")) // the flags exist
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var typed []string
		fs.Visit(func(f *pflag.Flag) {
			if run.Lookup(f.Name) != nil {
				typed = append(typed, "--"+f.Name+"="+f.Value.String())
			}
		})
		return s.run(cmd, typed)
	}
	return cmd
}

// combinations returns the arguments of all runs. The values of the first --over change most
// slowly.
func combinations(over []string) (list [][]string, err error) {
	list = [][]string{nil}
	for _, text := range over {
		name, values, ok := strings.Cut(text, "=")
		name = strings.TrimPrefix(name, "--")
		if !ok || name == "" || values == "" {
			return nil, fmt.Errorf("--over %.40q: want a flag and values, like clients=1,4,16", text)
		}
		separator := ","
		if strings.Contains(values, ";") {
			separator = ";"
		}
		var next [][]string
		for _, args := range list {
			for v := range strings.SplitSeq(values, separator) {
				next = append(next, append(slices.Clone(args), "--"+name+"="+strings.TrimSpace(v)))
			}
		}
		list = next
	}
	return list, nil
}

func runOf(args []string) (f *runFlags, values map[string]string, err error) {
	f = new(runFlags)
	cmd := f.command()
	if err := cmd.Flags().Parse(args); err != nil {
		return nil, nil, err
	}
	f.set(cmd.Flags())
	if err := f.check(); err != nil {
		return nil, nil, err
	}
	values = map[string]string{}
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if !slices.Contains(ownFlags, fl.Name) {
			values[fl.Name] = fl.Value.String()
		}
	})
	values["value-size"] = f.value
	return f, values, nil
}

func (s *sweep) run(cmd *cobra.Command, typed []string) error {
	list, err := combinations(s.over)
	if err != nil {
		return asUse(err)
	}
	if s.rounds < 1 {
		return badUse("--rounds %d: want at least 1", s.rounds)
	}
	var stores []string
	for _, args := range list { // a mistake is reported before the first run
		f, _, err := runOf(append(slices.Clone(typed), args...))
		if err != nil {
			return badUse("%s: %w", strings.Join(args, " "), err)
		}
		if f.place.on == experiment.OnRack && !slices.Contains(stores, f.store) {
			stores = append(stores, f.store)
		}
	}
	have, err := s.open()
	if err != nil {
		return asUse(err)
	}
	failed, n, former := 0, 0, (*runFlags)(nil)
	told := newPace(cmd, false, 0)
	for round := 1; round <= s.rounds; round++ {
		for _, args := range list {
			n++
			f, values, err := runOf(append(slices.Clone(typed), args...))
			if err != nil {
				return err
			}
			rec := record{Round: round, Flags: values}
			if have[rec.key()] {
				continue
			}
			told.tell("run %d of %d: %s", n, s.rounds*len(list), strings.Join(args, " "))
			f.out.quiet = true
			rec.At, rec.Build = time.Now().UTC(), readVersion()
			if f.place.on == experiment.OnRack {
				err = changeStore(cmd, stores, f, f.otherStore(former))
				former = f
			}
			f.place.seed += uint64(round - 1)
			if err == nil {
				rec.Report, err = f.measure(cmd)
			}
			if ended := cmd.Context().Err(); ended != nil {
				return fmt.Errorf("the sweep was interrupted: %d of %d runs are in %s, and --resume goes on", n-1, s.rounds*len(list), s.out)
			}
			if err == nil && rec.Report.Failed+rec.Report.Wrong > 0 {
				err = fmt.Errorf("%d failed, %d wrong values: %s", rec.Report.Failed, rec.Report.Wrong, rec.Report.FirstError)
			}
			if err != nil {
				failed++
				rec.Error = err.Error()
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "run %d, %s: %v\n", n, strings.Join(args, " "), err)
			}
			if err := s.append(&rec); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d runs failed; %s has their errors, and --resume tries them again", failed, n, s.out)
	}
	return say(cmd, "%d runs are in %s", n, s.out)
}

// otherStore reports whether the run needs a store with other sizes of values or other start flags
// than the former run of the sweep. It is false with --no-load. former is nil for the first run.
func (f *runFlags) otherStore(former *runFlags) bool {
	return !f.noLoad && (former == nil || f.value != former.value || f.start != former.start)
}

// changeStore makes the store for the next run ready. If another store of the sweep is up,
// changeStore stops it and makes the next one empty, because the memory still holds the former
// store. If afresh is true, it makes the next one empty in any case.
func changeStore(cmd *cobra.Command, stores []string, next *runFlags, afresh bool) error {
	changed := afresh
	var own *store.Call // of the store for the next run, which is one of stores
	for _, name := range stores {
		desc, err := store.Find(name)
		if err != nil {
			return err
		}
		call, err := storeCall(cmd, desc, "")
		if err != nil {
			return err
		}
		if name == next.store {
			own = call
			if !afresh {
				continue
			}
		}
		hosts, err := desc.Places(call.Rack)
		status := statusOf(cmd)
		for _, h := range hosts {
			if hasStore(status(h), name) {
				changed = true
				err = errors.Join(err, call.Post(h, desc.Path(store.PathStop), nil, nil))
			}
		}
		if err != nil {
			return err
		}
	}
	if !changed {
		return nil
	}
	return next.startStore(own, true)
}

// open prepares the file, and returns the runs that it has. If an earlier sweep was killed while it
// wrote a line, open removes this incomplete line.
func (s *sweep) open() (have map[string]bool, err error) {
	data, err := os.ReadFile(s.out)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, os.WriteFile(s.out, nil, 0o644)
	case err != nil:
		return nil, err
	case len(data) > 0 && !s.resume:
		return nil, fmt.Errorf("%s has results already: --resume runs what the file lacks; or choose another file", s.out)
	}
	whole := data[:strings.LastIndexByte(string(data), '\n')+1]
	list, err := parseRecords(s.out, whole)
	if err != nil {
		return nil, err
	}
	have = map[string]bool{}
	for i := range list {
		if list[i].Error == "" {
			have[list[i].key()] = true
		}
	}
	return have, os.Truncate(s.out, int64(len(whole)))
}

func (s *sweep) append(rec *record) error {
	line, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(s.out, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}
