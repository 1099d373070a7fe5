package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// experimentSwitch controls the switch of a rack during an experiment. It loads the program and
// rules that each measurement needs, and restores the former ones at the end.
type experimentSwitch struct {
	cmd  *cobra.Command
	was  program // what restore loads: the program and rules from before the experiment
	now  program // what the switch runs now
	read bool    // true: the fields was and now have been read from the switch
	free func()  // ends the protection against signals; nil: the switch was not changed
}

// set loads the program and the rules that a measurement needs: for each of the servers a rule, to
// whose text `more` is appended. It waits until the switch has the connections that the rules need.
func (x *experimentSwitch) set(ctx context.Context, s *experiment.Switch, servers []string, more string) error {
	if !x.read {
		now, was, err := runningProgram(x.cmd)
		if err != nil {
			return err
		}
		x.now, x.was, x.read = now, was, true
	}
	want := x.want(s, servers, more)
	if want.name == x.now.name && slices.Equal(want.rules, x.now.rules) {
		return nil
	}
	x.protect()
	if err := putProgram(x.cmd, want); err != nil {
		return fmt.Errorf("the switch does not accept %v: %w", want, err)
	}
	x.now = want
	if s.Action != experiment.ReplaceAtomics && s.Action != experiment.Move || s.Mode == experiment.Published {
		return nil
	}
	return x.connected(ctx)
}

// protect keeps the command running after an interrupt, until restore is called.
func (x *experimentSwitch) protect() {
	if x.free == nil {
		x.free = outlive(x.cmd)
	}
}

func (x *experimentSwitch) want(s *experiment.Switch, servers []string, more string) program {
	if s.Action == experiment.AsIs {
		return x.was
	}
	out := x.was.without(rules.Steer, rules.Atomics, rules.Move)
	out.name = x.now.name // a change of rules alone keeps connections
	if s.Action == "" || s.Action == experiment.Forward {
		return out
	}
	out.name = rackfile.ProgramSwordBox
	for _, server := range servers {
		id := steerPrefix + server
		text := fmt.Sprintf("id=%s server=%s action=%s mode=%s%s", id, server, s.Action, s.Mode0(), more)
		if s.Misses != "" {
			text += " misses=" + s.Misses
		}
		if s.Action == experiment.Steer {
			text += " steer=" + s.Steer
			if s.Hot > 0 {
				text += " keys=" + s.Keys()
			}
		}
		out.rules, out.ids = append(out.rules, text), append(out.ids, id)
	}
	return out
}

const (
	// dialPatience is how long the switch may take to connect to the memory servers, which takes longer on a rack in
	// slow motion; dialEvery is the interval of the checks.
	dialPatience = 30 * time.Second
	dialEvery    = 20 * time.Millisecond
)

// connected waits until the switch's connections to the memory servers are established. If a
// client's connection began earlier, the switch would not move its requests.
func (x *experimentSwitch) connected(ctx context.Context) error {
	for until := time.Now().Add(dialPatience); time.Now().Before(until); {
		var report swordbox.Report
		if err := askBox(x.cmd, http.MethodGet, "/connections", nil, &report); err != nil {
			return err
		}
		down := func(d switchconn.Info) bool { return d.State != switchconn.Up }
		if len(report.Dialed) > 0 && !slices.ContainsFunc(report.Dialed, down) {
			return nil
		}
		if err := pause(ctx, dialEvery); err != nil {
			return err
		}
	}
	return errors.New("the switch has no connection to the memory servers; see `rdmalab switch connections`")
}

// restorePatience is how long the switch may take to notice that the clients' connections have
// ended.
const restorePatience = 500 * time.Millisecond

// restore restores the switch's former program and rules, also after an interrupt. While
// connections with moved requests may be open, the switch must keep the program swordbox. Then
// restore loads only the rules of the former program into swordbox. If that program had no rules,
// the switch only forwards the packets of new connections.
func (x *experimentSwitch) restore() (err error) {
	if x.free == nil {
		return nil
	}
	defer x.free()
	if x.now.name == x.was.name && slices.Equal(x.now.rules, x.was.rules) {
		return nil
	}
	for until := time.Now().Add(restorePatience); time.Now().Before(until); time.Sleep(dialEvery) {
		if err = putProgram(x.cmd, x.was); err == nil {
			return nil
		}
	}
	kept := x.was
	kept.name = rackfile.ProgramSwordBox
	var answer *control.Error
	if errors.As(err, &answer) && answer.Status == http.StatusConflict && x.was.name != kept.name && putProgram(x.cmd, kept) == nil {
		_, _ = fmt.Fprintf(x.cmd.ErrOrStderr(), "the switch has its rules back and keeps program %s: %v\n", kept.name, err) // a note for the user; restore has succeeded even if the note is lost
		return nil
	}
	return fmt.Errorf("the switch still has %v: %w; `rdmalab switch program %s` loads the former program", x.now, err, x.was.name)
}

func atOnce(hosts []string, f func(i int, host string) error) error {
	errs := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, h := range hosts {
		wg.Go(func() { errs[i] = f(i, h) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// wordsTotal combines the results of n clients on several hosts. It adds rates and not counts,
// because the hosts did not begin and end at the same time. executed is the number of atomics that
// the server's NIC has executed.
func wordsTotal(results []*perf.Result, n int, executed uint64) (out experiment.WordsResult, err error) {
	var waits *hdrhistogram.Histogram
	asked := 0.0
	for _, r := range results {
		switch sec := r.Elapsed.Seconds(); {
		case r.BW != nil:
			out.CAS += r.BW.MsgRate * 1e6
			out.Succeeded += float64(r.Swapped) / sec
			asked += float64(r.BW.Iters)
		case r.Locks != nil:
			h, err := r.Locks.Histogram()
			if err != nil {
				return out, err
			}
			if waits == nil {
				waits = h
			} else {
				waits.Merge(h)
			}
			out.CAS += float64(r.Locks.Attempts) / sec
			out.Succeeded += float64(r.Locks.Acquired) / sec
			asked += float64(r.Locks.Attempts + r.Locks.Freed)
		}
	}
	if waits != nil {
		out.P50, out.P99 = time.Duration(waits.ValueAtPercentile(50)), time.Duration(waits.ValueAtPercentile(99))
	}
	if asked > 0 {
		out.Replaced = max(0, 1-float64(executed)/asked)
	}
	if out.CAS > 0 {
		out.Mean = time.Duration(float64(n) / out.CAS * 1e9)
	}
	return out, nil
}
