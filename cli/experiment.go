package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/hugepages"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

func experimentCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "experiment [NAME]",
		Short: "Repeat measurements of papers, in the simulator or on the rack",
		Long: "experiment NAME makes the measurements of one experiment and prints a table, with the paper's numbers in\n" +
			"parentheses. Without NAME it lists the experiments. Each experiment has flags of its own: `rdmalab experiment NAME\n" +
			"--help` explains the measurements, the columns and the flags.\n\n" +
			"With --on sim, the default, an experiment runs in the simulator, in virtual time, and needs neither a rack nor\n" +
			"root. There, hardware takes the times that --cost chooses. With --on rack an experiment runs on the rack that is\n" +
			"up, at the speed of this machine. Only experiments with a time for \"rack\" below can do that. If you press\n" +
			"control-C, or a measurement fails, an experiment prints the results so far, and the exit status is not 0.\n\n" +
			"SwordBox is a switch that understands RDMA. Some experiments compare two versions of its rules: published rules\n" +
			"work as in the SwordBox paper, and hardened rules are without the paper's holes (ways in which its design loses data,\n" +
			"hangs or is slow; swordbox/HOLES.md). A switch that steers sends requests of the key-value store Clover to the newest\n" +
			"version of their key. Sherman is a B+tree in the memory of servers; FG+ is the baseline of its paper.\n\n" +
			experimentList(),
		Example: "  rdmalab experiment\n" +
			"  rdmalab experiment cas-one-word\n" +
			"  rdmalab experiment one-lock --on rack --series host,switch --clients 1,16\n" +
			"  rdmalab experiment write-contention --steer both --quick -o csv",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wantJSON(cmd) {
				return printJSON(cmd, listedExperiments())
			}
			_, err := io.WriteString(cmd.OutOrStdout(), experimentList())
			return err
		},
	}
	outputFlag(cmd)
	for _, e := range experiment.All() {
		cmd.AddCommand(newExperimentRun(e).command())
	}
	// The text Long lists the experiments, so the usage must not list them again as subcommands.
	cmd.SetUsageTemplate(plainUsage(strings.Replace(cmd.UsageTemplate(), "{{if .HasAvailableSubCommands}}{{$cmds", "{{if false}}{{$cmds", 1)))
	return cmd
}

func experimentList() string {
	var b strings.Builder
	for _, e := range experiment.All() {
		b.WriteString(listed(e.Name, 17, e.Short) + listed("", 17, "reproduces: "+e.Figure) + listed("", 17, "takes: "+takes(e)))
	}
	return b.String()
}

type listedExperiment struct {
	Name   string `json:"name"`
	Short  string `json:"short"`
	Figure string `json:"figure"`
	// Takes says, by platform, how long the experiment takes.
	Takes map[string]string `json:"takes"`
}

func listedExperiments() (out []listedExperiment) {
	for _, e := range experiment.All() {
		l := listedExperiment{Name: e.Name, Short: e.Short, Figure: e.Figure, Takes: map[string]string{}}
		for _, on := range platforms(e) {
			l.Takes[on] = e.Takes(on)
		}
		out = append(out, l)
	}
	return out
}

// experimentRun is the command of one experiment with its flags as typed.
type experimentRun struct {
	experiment.Experiment
	body         experiment.Body
	on, cost     string
	place        rackPlace
	out          string // directory for the files of the report; "" means none
	quick, quiet bool
}

func newExperimentRun(e experiment.Experiment) *experimentRun {
	return &experimentRun{Experiment: e, body: e.New()}
}

func platforms(e experiment.Experiment) []string {
	return slices.DeleteFunc([]string{experiment.OnSim, experiment.OnRack}, func(on string) bool { return e.Takes(on) == "" })
}

func takes(e experiment.Experiment) string {
	var list []string
	for _, on := range platforms(e) {
		list = append(list, on+" "+e.Takes(on))
	}
	return strings.Join(list, "; ")
}

func (x *experimentRun) examples() string {
	call := "  rdmalab experiment " + x.Name
	list := []string{call, call + " --quick -o json"}
	for _, flags := range x.Examples {
		list = append(list, call+" "+flags)
	}
	return strings.Join(list, "\n")
}

func (x *experimentRun) long() string {
	long := x.Long()
	if b, ok := x.body.(interface{ Explain() string }); ok {
		long += "\n\n" + b.Explain()
	}
	return strings.TrimRight(long, "\n") + "\n\nReproduces: " + x.Figure + ".\nTakes: " + takes(x.Experiment) + "."
}

// command makes the experiment's command. Its field Long is empty until its help is printed.
func (x *experimentRun) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     x.Name,
		Short:   strings.ToUpper(x.Short[:1]) + x.Short[1:],
		Example: x.examples(),
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return x.run(cmd) },
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Long = x.long()
		cmd.Parent().HelpFunc()(cmd, args)
	})
	fs := cmd.Flags()
	x.body.Flags(fs)
	where := "where it runs: sim (the simulator, in virtual time)"
	if x.Rack != "" {
		where += " or rack (the rack that is up)"
	}
	fs.StringVar(&x.on, "on", experiment.OnSim, where)
	complete(cmd, "on", platforms(x.Experiment)...)
	costFlag(cmd, &x.cost, x.Cost)
	if x.Rack != "" {
		fs.Lookup("cost").Usage = "with --on sim: " + fs.Lookup("cost").Usage
		x.place.flags(cmd, x.Target)
	}
	if fs.Lookup("steer") != nil {
		complete(cmd, "steer", steerChoices...)
	}
	if fs.Lookup("profile") != nil {
		complete(cmd, "profile", congestion.Profiles()...)
	}
	fs.BoolVar(&x.quick, "quick", false, "make fewer and shorter measurements, to try the experiment: it may leave out some values of flags that are lists, and the numbers are less exact")
	quietFlag(cmd, &x.quiet)
	fs.StringVar(&x.out, "out", "", "also write the results into this folder, which is made if it does not exist: as table, CSV and JSON, and each figure as pictures (SVG and PDF)")
	writesFolder(cmd, "out")
	formatFlag(cmd, "table", "json", "csv")
	return cmd
}

// run runs the experiment, and prints its measurements even if some are missing.
func (x *experimentRun) run(cmd *cobra.Command) error {
	if !slices.Contains(platforms(x.Experiment), x.on) {
		return badUse("--on %.40q: %s%s runs on %s", x.on, nearest.Meant(x.on, platforms(x.Experiment)), x.Name, strings.Join(platforms(x.Experiment), " and "))
	}
	at := experiment.Place{On: x.on, Quick: x.quick, Hosts: rackfile.MaxHosts}
	if err := x.body.Check(at); err != nil { // finds mistakes that need no rack
		return asUse(err)
	}
	platform, end, err := x.platform(cmd)
	if err != nil {
		return err
	}
	if p, ok := platform.(*rackPlatform); ok {
		at.Hosts, at.Slow = len(p.hosts), p.rack.OneRMA != nil && slowFit(p.rack.OneRMA) == nil
	}
	if err := x.body.Check(at); err != nil {
		return asUse(err)
	}
	if x.out != "" {
		if err := os.MkdirAll(x.out, 0o755); err != nil {
			return asUse(err)
		}
	}
	if b, ok := x.body.(interface{ LeftOut(on string) string }); ok && b.LeftOut(x.on) != "" {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), b.LeftOut(x.on)) // a note for the user; the report has it, too
	}
	r := x.Report(platform)
	stop := func() {}
	if w := progressTo(cmd, x.quiet); w != nil {
		p := &progress{w: w}
		r.Watch = p
		stop = p.every(cmd.Context(), 5*time.Second)
	}
	err = x.body.Run(cmd.Context(), platform, r)
	stop()
	if cmd.Context().Err() != nil {
		err, r.Interrupted = errInterrupted, true
	}
	err = errors.Join(err, end())
	if err != nil && len(r.Rows)+len(r.Parts) == 0 {
		return err
	}
	if x.out != "" {
		err = errors.Join(err, writeReport(x.out, r))
	}
	return errors.Join(err, x.write(cmd, r), r.Err())
}

func (x *experimentRun) write(cmd *cobra.Command, r *experiment.Report) error {
	switch out := cmd.OutOrStdout(); cmd.Flag("output").Value.String() {
	case "json":
		return printJSON(cmd, r)
	case "csv":
		return r.WriteCSV(out)
	default:
		return r.WriteTable(out)
	}
}

func (x *experimentRun) platform(cmd *cobra.Command) (p experiment.Platform, end func() error, err error) {
	if x.on == experiment.OnRack {
		if cmd.Flags().Changed("cost") {
			return nil, nil, badUse("--cost is for the simulator: leave it out with --on rack")
		}
		return x.place.platform(cmd)
	}
	for _, name := range []string{"from", "to"} {
		if cmd.Flags().Changed(name) {
			return nil, nil, badUse("--%s chooses hosts of a rack: add --on rack", name)
		}
	}
	m, err := loadCost(x.cost)
	hugepages.Reserve()
	return &insim.Sim{Cost: m}, func() error { return nil }, err
}

// progress prints the result of each measurement when the measurement ends. For long measurements
// it also prints the time that they have taken so far.
type progress struct {
	w io.Writer

	mu      sync.Mutex // guards running
	running []*measurement
}

type measurement struct {
	what  string
	began time.Time
}

var _ experiment.Watcher = (*progress)(nil)

func (p *progress) Begin(what string, n, total int) (end func(result string)) {
	m := &measurement{fmt.Sprintf("%d/%d %s", n, total, what), time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, m)
	return func(result string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		_, _ = fmt.Fprintf(p.w, "%s: %s\n", m.what, result) // progress may be lost
		p.running = slices.DeleteFunc(p.running, func(o *measurement) bool { return o == m })
	}
}

// every prints the long measurements in progress at intervals of d, until stop is called or ctx
// ends.
func (p *progress) every(ctx context.Context, d time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.tell(d)
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

func (p *progress) tell(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.running {
		if took := time.Since(m.began); took >= d {
			_, _ = fmt.Fprintf(p.w, "%s: for %v so far\n", m.what, took.Round(time.Second)) // progress may be lost
		}
	}
}

// retired makes a hidden command whose error names the command that has replaced it.
func retired(name, now string, aliases ...string) *cobra.Command {
	return &cobra.Command{
		Use: name, Aliases: aliases, Hidden: true, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return badUse("`%s` is now `rdmalab experiment %s`; `rdmalab experiment` lists all experiments", cmd.CommandPath(), now)
		},
	}
}
