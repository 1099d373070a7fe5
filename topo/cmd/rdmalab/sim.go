package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/wire/dump"
	"github.com/rdmalab/rdmalab/topo/scenario"
)

// simFlags are the flags of sim as typed.
type simFlags struct {
	seed, first uint64
	seeds       int
	verbose     bool
	pcap        string
	cost        string
}

// simCmd runs scenarios in virtual time.
func simCmd() *cobra.Command {
	var f simFlags
	var list strings.Builder
	for _, s := range scenario.All() {
		fmt.Fprintf(&list, "  %-10s %s\n", s.Name, s.Doc)
	}
	cmd := &cobra.Command{
		Use:   "sim SCENARIO",
		Short: "Run a scenario in virtual time, replayable from a seed",
		Long: "sim runs a whole rack in memory: the same NICs, switch, faults and applications as on a real one, in\n" +
			"virtual time, without privileges. A seed decides everything that happens.\n\n" + list.String() +
			"\nIt exits 1 if a check fails, and prints the command that replays the seed.",
		Example: "  rdmalab sim transport --seeds 1000\n" +
			"  rdmalab sim transport --seed 291 -v\n" +
			"  rdmalab sim soak\n" +
			"  rdmalab sim transport --seed 291 --pcap seed291.pcapng && rdmalab dump seed291.pcapng",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeScenarios,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := scenario.Find(args[0])
			if err != nil {
				return asUse(err)
			}
			return f.run(cmd, s)
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&f.seed, "seed", 1, "the seed to run")
	fs.IntVar(&f.seeds, "seeds", 0, "run so many seeds, on all processors")
	fs.Uint64Var(&f.first, "first", 1, "with --seeds: the first one")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "with one seed: print every packet as it enters a link")
	fs.StringVar(&f.pcap, "pcap", "", "with one seed: write every packet to this capture file")
	cmd.MarkFlagsMutuallyExclusive("seed", "seeds")
	cmd.MarkFlagsMutuallyExclusive("seeds", "verbose")
	cmd.MarkFlagsMutuallyExclusive("seeds", "pcap")
	costFlag(cmd, &f.cost, "")
	outputFlag(cmd)
	cmd.AddCommand(calibrateCmd(), costCmd(), contentionCmd(), collapseCmd(), treeloadCmd())
	return cmd
}

func completeScenarios(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, s := range scenario.All() {
		names = append(names, s.Name+"\t"+s.Doc)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (f *simFlags) run(cmd *cobra.Command, s scenario.Scenario) error {
	asJSON, err := wantJSON(cmd)
	if err == nil {
		var m *cost.Model
		m, err = loadCost(f.cost)
		s = s.With(f.cost, m)
	}
	switch {
	case err != nil:
		return err
	case f.seeds < 0 || f.seeds == 0 && cmd.Flags().Changed("seeds"):
		return badUse("--seeds %d: want a positive number", f.seeds)
	case f.seeds > 0:
		return f.sweep(cmd, s, asJSON)
	}
	return f.single(cmd, s, asJSON)
}

// single runs one seed.
func (f *simFlags) single(cmd *cobra.Command, s scenario.Scenario, asJSON bool) error {
	var opt scenario.Options
	var writers []io.Writer
	if f.pcap != "" {
		file, err := os.Create(f.pcap)
		if err != nil {
			return err
		}
		defer file.Close() // what matters of its errors shows in the writes
		writers = append(writers, file)
	}
	printed := func() error { return nil }
	if f.verbose {
		var w io.WriteCloser
		if w, printed = printPackets(cmd); w != nil {
			writers = append(writers, w)
		}
	}
	if len(writers) > 0 {
		opt.Pcap = io.MultiWriter(writers...)
	}
	r := s.Run(f.seed, opt)
	if err := printed(); err != nil {
		return err
	}
	if asJSON {
		if err := printJSON(cmd, &r); err != nil {
			return err
		}
	} else if err := printReport(cmd, &r); err != nil {
		return err
	}
	return outcome(cmd, s, r)
}

// printPackets prints the capture that is written to w, while it is written. done waits for the last line.
func printPackets(cmd *cobra.Command) (w io.WriteCloser, done func() error) {
	d, err := dump.New(cmd.OutOrStdout(), dump.Config{})
	if err != nil {
		return nil, func() error { return err }
	}
	r, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := d.Dump("sim", r)
		_ = r.CloseWithError(err) // the run ends with this error too
		ended <- err
	}()
	return pw, func() error { return errors.Join(pw.Close(), <-ended) }
}

func printReport(cmd *cobra.Command, r *scenario.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s seed %d: %s\n", r.Scenario, r.Seed, r.Plan)
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "  %s\n", n)
	}
	if r.Damage != "" {
		fmt.Fprintf(&b, "  damage: %s\n", r.Damage)
	}
	fmt.Fprintf(&b, "  %d events, %v of virtual time in %v\n", r.Events, r.Virtual.Round(time.Microsecond), r.Took.Round(time.Millisecond))
	appendActivity(&b, &r.Counters)
	_, err := io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}

// activityCounters are those that say how trouble was healed.
var activityCounters = []string{
	"roce_retrans_pkts", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "rcvd_rnr_err", "duplicate_ack",
	"duplicate_request", "out_of_seq_request", "read_tail_retry", "replayed_atomics", "replayed_reads",
	"rx_icrc_encapsulated", "torn_copies",
}

func appendActivity(b *strings.Builder, c *metrics.NIC) {
	for _, s := range metrics.Samples(c) {
		if s.Value > 0 && slices.Contains(activityCounters, s.Name) {
			fmt.Fprintf(b, "  %-24s %12d\n", s.Name, s.Value)
		}
	}
}

// outcome prints a failure with the command that replays it.
func outcome(cmd *cobra.Command, s scenario.Scenario, failed ...scenario.Report) error {
	any := false
	for _, r := range failed {
		if r.Err == nil {
			continue
		}
		any = true
		_, err := fmt.Fprintf(cmd.ErrOrStderr(), "FAIL %s seed %d: %v\n  replay: rdmalab sim %s -v\n", s.Name, r.Seed, r.Err, s.Args(r.Seed))
		if err != nil {
			return err
		}
	}
	if any {
		return exitCode(1)
	}
	return nil
}

// sweep runs many seeds.
func (f *simFlags) sweep(cmd *cobra.Command, s scenario.Scenario, asJSON bool) error {
	ctx := cmd.Context()
	last := time.Now()
	done := 0
	sum := s.Sweep(f.first, f.seeds, func() bool { return ctx.Err() != nil }, func(*scenario.Report) {
		done++
		if time.Since(last) >= 5*time.Second {
			last = time.Now()
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%d of %d seeds\n", done, f.seeds) // it is a courtesy
		}
	})
	if asJSON {
		if err := printJSON(cmd, &sum); err != nil {
			return err
		}
	} else if err := printSummary(cmd, &sum); err != nil {
		return err
	}
	if err := outcome(cmd, s, sum.Failures...); err != nil {
		return err
	}
	return ctx.Err()
}

func printSummary(cmd *cobra.Command, sum *scenario.Summary) error {
	var b strings.Builder
	verdict := "ok"
	if n := len(sum.Failures); n > 0 {
		verdict = fmt.Sprintf("%d FAILED", n)
	}
	fmt.Fprintf(&b, "%s: %d seeds from %d: %s\n", sum.Scenario, sum.Seeds, sum.First, verdict)
	fmt.Fprintf(&b, "  %d events, %v of virtual time in %v\n", sum.Events, sum.Virtual.Round(time.Millisecond), sum.Took.Round(10*time.Millisecond))
	l := &sum.Links
	fmt.Fprintf(&b, "  %d frames: %d lost by faults, %d by full queues, %d doubled, %d delayed, %d corrupted\n",
		l.Sent, l.LostFault, l.LostQueue, l.Duplicated, l.Delayed, l.Corrupted)
	if sum.GaveUp > 0 {
		fmt.Fprintf(&b, "  %d seeds ended at a retry limit that was reached as promised: run them alone for the packet\n", sum.GaveUp)
	}
	for _, what := range slices.Sorted(maps.Keys(sum.Damage)) {
		fmt.Fprintf(&b, "  %d seeds with damage: %s\n", sum.Damage[what], what)
	}
	appendActivity(&b, &sum.Counters)
	_, err := io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}
