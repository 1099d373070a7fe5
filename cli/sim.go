package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/sim/hugepages"
	"github.com/rdmalab/rdmalab/sim/scenario"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

type simFlags struct {
	seed, first uint64
	seeds       int
	verbose     bool
	pcap        string
	cost        string
	recovery    string // of the NICs' queue pairs
	fabric      string // leaves x spines; "": one switch
	congestion  scenario.Congestion
	params      scenario.Params
	every       time.Duration // the interval between lines of progress
}

func simCmd() *cobra.Command {
	f := simFlags{every: 5 * time.Second}
	cmd := &cobra.Command{
		Use:               "sim [SCENARIO]",
		Short:             "Run a scenario in virtual time, replayable from a seed",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: everyArgument(scenarioNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listScenarios(cmd)
			}
			s, err := scenario.Find(args[0])
			if err != nil {
				return asUse(err)
			}
			if s, err = s.Vary(f.params); err != nil {
				return asUse(err)
			}
			if s, err = s.Recovering(f.recovery); err != nil {
				return asUse(err)
			}
			if s, err = s.Congested(f.congestion); err != nil {
				return asUse(err)
			}
			if s, err = s.Over(f.fabric); err != nil {
				return asUse(err)
			}
			return f.run(cmd, s)
		},
	}
	fs := cmd.Flags()
	fs.Uint64Var(&f.seed, "seed", 1, "the seed of a single run")
	fs.IntVar(&f.seeds, "seeds", 0, "run this many seeds, from --first on, on all processors (default: one run, with --seed)")
	fs.Uint64Var(&f.first, "first", 1, "with --seeds: the first seed")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "with one seed: print every packet as it enters a link")
	fs.StringVar(&f.pcap, "pcap", "", "with one seed: write every packet to this capture file")
	writesFile(cmd, "pcap")
	f.vary(cmd)
	cmd.MarkFlagsMutuallyExclusive("seed", "seeds")
	cmd.MarkFlagsMutuallyExclusive("seeds", "verbose")
	cmd.MarkFlagsMutuallyExclusive("seeds", "pcap")
	costFlag(cmd, &f.cost, "")
	fs.StringVar(&f.recovery, "recovery", selective.GoBackN.String(), "how queue pairs of reliable connections recover from losses: "+strings.Join(selective.Kinds(), ", ")+", or any: the seed chooses")
	complete(cmd, "recovery", scenario.Recoveries()...)
	fs.StringVar(&f.congestion.Algorithm, "congestion", "", "give links a rate, queues marks and NICs congestion control: "+strings.Join(congestion.Algorithms(), ", ")+", or any: the seed chooses (default: no queues)")
	complete(cmd, "congestion", scenario.Algorithms()...)
	fs.StringVar(&f.congestion.PFC, "pfc", "", "with --congestion: whether full queues pause hosts instead of dropping packets: on, off or any (default any)")
	complete(cmd, "pfc", scenario.PFCs...)
	fs.StringVar(&f.fabric, "fabric", "", "leaves x spines, such as 2x2: the rack has several switches, and the seed cuts and raises trunks between them (default: one switch)")
	cmd.Flag("cost").Usage += " (default: only links take time)"
	outputFlag(cmd)
	cmd.AddCommand(allToAllCmd(), calibrateCmd(), costCmd(), retired("fig10", "cas-one-word", "contention"),
		retired("collapse", "write-contention`, and `sim collapse --table` is `rdmalab experiment steering-gain"),
		retired("treeload", "one-lock`, `rdmalab experiment tree-operations` and `rdmalab experiment tree-locks"))
	return cmd
}

func (f *simFlags) vary(cmd *cobra.Command) {
	fs, p := cmd.Flags(), &f.params
	fs.StringVar(&p.Steer, "steer", "", "clover: which requests the switch steers to the newest node of their key: write (appends), read, both, or any: the seed chooses one of these (default: the switch only forwards)")
	fs.BoolVar(&p.ShareQP, "share-qp", false, "clover: all clients of a host share one queue pair to each memory server")
	fs.IntVar(&p.Replicas, "replicas", 0, "clover: how many copies each node has, on as many memory servers, 1 to 3; more than 1 not with --steer (default 1)")
	fs.IntVar(&p.Threads, "threads", 0, "clover: how many threads of the metadata server take requests, 0 to 16 (default 0: its only thread does everything)")
	fs.StringVar(&p.Mix, "mix", "", "clover, sherman: mixes of the list above, joined by commas, or none (default: drawn from the seed)")
	fs.StringVar(&p.Program, "program", "", "locks: what the switch does: forward, track (it follows connections and "+
		"changes nothing) or swordbox (default; it replaces atomics); forward and track not with --mode and --move")
	fs.StringVar(&p.Change, "change", "", "locks, buffer: what an operator changes on the switch at random: rules (hardened rules and, in locks, the program) or modes (published rules, too) (default: nothing); not with --program, --mode and --move")
	fs.BoolVar(&p.Move, "move", false, "locks: the switch sends every request that it can on its own connections, and replaces no atomic by a WRITE; not with --mode published")
	fs.StringVar(&p.Mode, "mode", "", "locks, buffer, lookup, redn, sherman, fusee: published or hardened (default hardened); published runs report what breaks, and do not fail")
	fs.BoolVar(&p.Torn, "torn", false, "sherman: inject no fault but torn copies (a READ or WRITE copies memory in parts); with --mode published this is always so; not with --mix and --locks switch")
	fs.StringVar(&p.Step, "step", "", "sherman: design (see rdmalab sherman start --help): "+strings.Join(scenario.Choices["step"], ", ")+" (default sherman); not with --mode, --mix and --locks")
	fs.StringVar(&p.Locks, "locks", "", "sherman: what serves lock words: nic or switch (default nic)")
	fs.StringVar(&p.Setup, "setup", "", "planned: search only this setup of the list above (default: all)")
	fs.IntVar(&p.Depth, "depth", 0, "planned: a schedule has at most this many of the events above, like a lost packet or a change of the rules (default 2)")
	fs.IntVar(&p.Schedules, "schedules", 0, "planned: how many schedules to run at most (default 4000)")
	fs.StringVar(&p.Plan, "plan", "", "planned: the only schedule to run, in the form that a failed run prints (default: search); not with --setup, --depth and --schedules")
	for name, list := range scenario.Choices {
		complete(cmd, name, list...)
	}
}

// mixes says what each value of --mix does, for the help text.
var mixes = [][2]string{
	{"sizes", "other lengths of values, and of sherman's pages"},
	{"wear", "so little memory that it is used again and again: in clover until the versions of nodes are used up"},
	{"keys", "many keys, anywhere in the range of 64 bits"},
	{"format", "clover: nodes without a checksum, in some runs also without their key; sherman: the published layout; no copy is torn, because these formats would not show it"},
	{"late", "packets are up to 15 ms late, so that requesters give up their connections"},
	{"faults", "two or three faults, which may overlap"},
	{"hangs", "a fault is a hang of a NIC, a host or the switch"},
	{"after", "each further fault begins 2 to 4 leases (sherman: 1 to 4) after the end of the fault before it"},
	{"locks", "sherman: a CAS of a lock word or a WRITE of a page is lost, and the client's NIC or host hangs for longer than a lease, so that others take the lock over"},
	{"lazy", "clover: a client reads a key's shortcut only if the node that it has read is not the newest"},
	{"cache", "clover: the clients of a host share a location cache"},
	{"merge", "clover: the clients of a host report their appends together"},
	{"turns", "clover: the clients of a host take turns to update a key"},
	{"chase", "clover: after a lost race a client tries again at the node that won"},
	{"spread", "clover: a client appends nodes of any memory server, not of one for each key"},
	{"crowd", "clover: many clients write one or two keys"},
	{"rules", "clover with --steer: steering rules are removed and added"},
	{"balance", "clover: the metadata server gives out nodes by the free room and the speed of memory servers"},
	{"services", "clover: a memory service hangs"},
}

func scenarioList() string {
	return listedAll(12, scenario.All(), func(s scenario.Scenario) (name, text string) { return s.Name, s.Doc })
}

func pairsList(width int, list [][2]string) string {
	return listedAll(width, list, func(p [2]string) (name, text string) { return p[0], p[1] })
}

// listScenarios prints the scenarios. It returns an error if a flag for a run was given.
func listScenarios(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "output" && f.Name != "rack" {
			err = badUse("--%s is for a scenario: write its name behind sim; `rdmalab sim` lists the scenarios", f.Name)
		}
	})
	if err != nil {
		return err
	}
	if !wantJSON(cmd) {
		_, err = io.WriteString(cmd.OutOrStdout(), scenarioList())
		return err
	}
	list := make([]struct {
		Name string `json:"name"`
		Doc  string `json:"doc"`
	}, len(scenario.All()))
	for i, s := range scenario.All() {
		list[i].Name, list[i].Doc = s.Name, s.Doc
	}
	return printJSON(cmd, list)
}

func scenarioNames(*cobra.Command) (names []string) {
	for _, s := range scenario.All() {
		names = append(names, s.Name+"\t"+s.Doc)
	}
	return names
}

func (f *simFlags) run(cmd *cobra.Command, s scenario.Scenario) error {
	m, err := loadCost(f.cost)
	if err != nil {
		return err
	}
	hugepages.Reserve()
	s = s.With(f.cost, m)
	switch {
	case f.seeds < 0 || f.seeds == 0 && cmd.Flags().Changed("seeds"):
		return badUse("--seeds %d: want a positive number", f.seeds)
	case f.seeds > 0:
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(sweepGC)
		}
		return f.sweep(cmd, s)
	}
	return f.single(cmd, s)
}

// sweepGC is the GOGC value with which `rdmalab sim --seeds` runs, unless the environment sets GOGC.
// A run keeps little memory and makes much garbage: with Go's default of 100, the collector takes a
// sixth of the time.
const sweepGC = 400

func (f *simFlags) single(cmd *cobra.Command, s scenario.Scenario) error {
	opt := scenario.Options{Cancelled: func() bool { return cmd.Context().Err() != nil }}
	var writers []io.Writer
	if f.pcap != "" {
		file, err := os.Create(f.pcap)
		if err != nil {
			return err
		}
		defer file.Close() // the writes report the errors that matter
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
	if cmd.Context().Err() != nil {
		return errInterrupted
	}
	if err := show(cmd, &r, printReport); err != nil {
		return err
	}
	return outcome(cmd, s, r)
}

// printPackets prints the packets of the capture that is written to w, while it is written. done
// waits until the last line is printed.
func printPackets(cmd *cobra.Command) (w io.WriteCloser, done func() error) {
	d, err := dump.New(cmd.OutOrStdout(), dump.Config{})
	if err != nil {
		return nil, func() error { return err }
	}
	r, pw := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := d.Dump("sim", r)
		_ = r.CloseWithError(err) // the run ends with this error, too
		ended <- err
	}()
	return pw, func() error { return errors.Join(pw.Close(), <-ended) }
}

func printReport(out io.Writer, r *scenario.Report) error {
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
	_, err := io.WriteString(out, b.String())
	return err
}

// activityCounters are the counters that show how NICs recover from faults.
var activityCounters = []string{
	"roce_retrans_pkts", "packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "rcvd_rnr_err", "duplicate_ack",
	"duplicate_request", "out_of_seq_request", "read_tail_retry", "replayed_atomics", "replayed_reads",
	"rx_icrc_encapsulated", "torn_copies", "np_cnp_sent", "rp_cnp_handled",
}

func appendActivity(b *strings.Builder, c *metrics.NIC) {
	for _, s := range metrics.Samples(c) {
		if s.Value > 0 && slices.Contains(activityCounters, s.Name) {
			fmt.Fprintf(b, "  %-24s %12d\n", s.Name, s.Value)
		}
	}
}

func outcome(cmd *cobra.Command, s scenario.Scenario, failed ...scenario.Report) (err error) {
	for _, r := range failed {
		if r.Err != nil {
			again := hintsOf(cmd).named("rdmalab sim " + s.Args(r.Seed) + " -v")
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "FAIL %s seed %d: %v\n  replay: %s\n", s.Name, r.Seed, r.Err, again) // the exit status says so, too
			err = exitCode(1)
		}
	}
	return err
}

func (f *simFlags) sweep(cmd *cobra.Command, s scenario.Scenario) error {
	ctx := cmd.Context()
	told := newPace(cmd, false, f.every)
	done := 0
	sum := s.Sweep(f.first, f.seeds, func() bool { return ctx.Err() != nil }, func(*scenario.Report) {
		done++
		told.tell("%d of %d seeds", done, f.seeds)
	})
	if err := show(cmd, &sum, printSummary); err != nil {
		return err
	}
	if err := outcome(cmd, s, sum.Failures...); err != nil {
		return err
	}
	return ctx.Err()
}

func printSummary(out io.Writer, sum *scenario.Summary) error {
	var b strings.Builder
	verdict := "ok"
	if n := len(sum.Failures); n > 0 {
		verdict = fmt.Sprintf("%d FAILED", n)
	}
	fmt.Fprintf(&b, "%s: %d seeds from %d: %s\n", sum.Scenario, sum.Seeds, sum.First, verdict)
	fmt.Fprintf(&b, "  %d events, %v of virtual time in "+
		"%v\n", sum.Events, sum.Virtual.Round(time.Millisecond), sum.Took.Round(10*time.Millisecond))
	l := &sum.Links
	fmt.Fprintf(&b, "  %d frames: %d lost by faults, %d by full queues, %d doubled, %d delayed, %d corrupted\n",
		l.Sent, l.LostFault, l.LostQueue, l.Duplicated, l.Delayed, l.Corrupted)
	if l.Pauses > 0 {
		fmt.Fprintf(&b, "  %d pause frames\n", l.Pauses)
	}
	if sum.GaveUp > 0 {
		fmt.Fprintf(&b, "  %d seeds ended at a retry limit that was reached as promised: run them alone for the packet\n", sum.GaveUp)
	}
	for _, what := range slices.Sorted(maps.Keys(sum.Damage)) {
		fmt.Fprintf(&b, "  %d seeds with damage: %s\n", sum.Damage[what], what)
	}
	appendActivity(&b, &sum.Counters)
	_, err := io.WriteString(out, b.String())
	return err
}
