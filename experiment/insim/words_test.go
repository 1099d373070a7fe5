package insim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/store/kv"
)

func model(t *testing.T, name string) *cost.Model {
	t.Helper()
	m, err := costs.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// named returns the experiment with a name.
func named(name string) experiment.Experiment {
	all := experiment.All()
	return all[slices.IndexFunc(all, func(e experiment.Experiment) bool { return e.Name == name })]
}

// ran runs an experiment at the pace of its cost model. flags are its flags by name.
func ran(t *testing.T, name string, flags map[string]string) *experiment.Report {
	t.Helper()
	e := named(name)
	r, err := runWith(context.Background(), &e, &Sim{Cost: model(t, e.Cost)}, experiment.Place{On: experiment.OnSim}, flags)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := r.WriteTable(&b); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	return r
}

func cell(w experiment.Row, key string) float64 { c := w.Cell(key); return c.Value }

// Each series begins at the throughput of one client, and ends at the limit that the paper gives
// for it.
func TestCASHasThePapersShape(t *testing.T) {
	r := ran(t, "cas-one-word", nil)
	var first experiment.Row
	for _, w := range r.Rows {
		if cell(w, "clients") == 1 {
			first = w
		}
		if cell(w, "clients") != 64 {
			continue
		}
		name, limit := w.Cell("series").Text, cell(w, "limit")
		most, one := cell(w, "mops"), cell(first, "mops")
		if most < 0.93*limit || most > 1.03*limit || one > limit/2 {
			t.Errorf("%s: %.2f Mops with one client, %.2f with 64, want %.2f at the end", name, one, most, limit)
		}
		if won := cell(w, "succeededMops"); won == 0 || won > most {
			t.Errorf("%s: %.2f Mops succeeded of %.2f", name, won, most)
		}
		share := cell(w, "replaced")
		if replaced := strings.Contains(name, "→"); replaced != (share > 99) || !replaced && share > 1 {
			t.Errorf("%s: %.0f%% replaced", name, share)
		}
	}
	if len(r.Rows) != 5*7 {
		t.Errorf("%d rows", len(r.Rows))
	}
}

// The limit of each series is the number of the model after which the limit is named: if that
// number is doubled, the series ends higher.
func TestLimitsAreWhatTheyAreCalled(t *testing.T) {
	for _, c := range []struct {
		name   string
		box    experiment.Switch
		double func(*cost.Model)
	}{
		{"the word", experiment.Switch{}, func(m *cost.Model) { m.NIC.Atomic.Word.Host *= 2 }},
		{"a core of the middlebox", experiment.Switch{Action: experiment.ReplaceAtomics}, func(m *cost.Model) { m.Switch.Rewrite *= 2 }},
	} {
		load := experiment.Words{Clients: 64, Switch: c.box}
		m := model(t, "connectx5-dpdk")
		before, err := (&Sim{Cost: m}).Words(t.Context(), load)
		if err != nil {
			t.Fatal(err)
		}
		c.double(m)
		after, err := (&Sim{Cost: m}).Words(t.Context(), load)
		if err != nil {
			t.Fatal(err)
		}
		if after.CAS < 1.7*before.CAS {
			t.Errorf("%s twice as fast: %.2f Mops, before %.2f", c.name, after.CAS/1e6, before.CAS/1e6)
		}
	}
}

// The CAS rate of one lock depends on the lock's place and is as published; through the switch it
// is the rate of WRITEs.
func TestLocksAsPublished(t *testing.T) {
	for _, w := range ran(t, "one-lock", map[string]string{"clients": "64"}).Rows {
		name, limit, got, locks := w.Cell("series").Text, cell(w, "limit"), cell(w, "mops"), cell(w, "acquiredMops")
		if limit > 0 && (got < 0.9*limit || got > 1.05*limit) {
			t.Errorf("%s: %.2f Mops with 64 clients, want %.3g", name, got, limit)
		}
		if pairs := w.Cell("acquiredMops").Paper; strings.Contains(name, "without delay") && (locks < pairs*0.95 || locks > pairs*1.1) {
			t.Errorf("%s: %.3g M locks a second, want %.3g M as published", name, locks, pairs)
		}
		behind := !strings.HasPrefix(name, "CAS")
		if locks == 0 || behind != (cell(w, "replaced") > 99) {
			t.Errorf("%s: %.3g M locks a second, %.0f%% replaced", name, locks, cell(w, "replaced"))
		}
	}
}

// processorTime returns the processor time of this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Error(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// An experiment whose context ends during a measurement returns the context's error within a
// second. The second is one of processor time, because other programs may keep the processors busy.
func TestCancelledWithinASecond(t *testing.T) {
	load := experiment.Clover{Clients: 240, Writes: 50, Zipf: 0.99, Switch: experiment.Switch{Action: experiment.Steer, Steer: "both"}}
	tree := experiment.Sherman{Clients: 64, Zipf: 0.99, Workload: kv.Workload{Read: 1}, Run: time.Second}
	p := &Sim{Cost: model(t, "connectx5")}
	for name, measure := range map[string]func(context.Context) error{
		"clover":  func(ctx context.Context) error { _, err := p.Clover(ctx, load); return err },
		"sherman": func(ctx context.Context) error { _, err := p.Sherman(ctx, tree); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan time.Duration, 1)
		time.AfterFunc(300*time.Millisecond, func() { ended <- processorTime(t); cancel() })
		err := measure(ctx)
		if took := processorTime(t) - <-ended; !errors.Is(err, context.Canceled) || took > time.Second {
			t.Errorf("%s: %v, %v after the end", name, err, took)
		}
	}
}

// runWith runs an experiment on a platform, with flags by name. The report has the rows measured
// before a failure, too.
func runWith(ctx context.Context, e *experiment.Experiment, p experiment.Platform, at experiment.Place, flags map[string]string) (*experiment.Report, error) {
	body, fs := e.New(), pflag.NewFlagSet(e.Name, pflag.ContinueOnError)
	body.Flags(fs)
	for name, value := range flags {
		if err := fs.Set(name, value); err != nil {
			return nil, err
		}
	}
	r := e.Report(p)
	if err := body.Check(at); err != nil {
		return r, err
	}
	return r, body.Run(ctx, p, r)
}
