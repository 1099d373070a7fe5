package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/spans"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/switchd"
	"github.com/rdmalab/rdmalab/units"
)

type runFlags struct {
	place            runPlace
	out              runOutput
	store, value     string
	options          store.ClientOptions // share, cache, reporter and mode
	workload, mix    string
	popular, move    string
	steer, start     string
	clients          int
	noLoad, loadOnly bool
	trace            string
	limit            int
	ops              []kv.Op                // the operations of a trace; nil means that there is none
	typed            func(flag string) bool // reports whether a flag was typed
	config           kv.RunConfig
}

// runOutput is what a run writes besides the report.
type runOutput struct {
	csv, quiet bool
	spans      spanFlags
}

func runCmd() *cobra.Command {
	cmd := new(runFlags).command()
	cmd.AddCommand(sweepCmd(), compareCmd(), plotCmd(), convertCmd(), generateCmd())
	return cmd
}

// command returns the command rdmalab run, whose flags set f.
func (f *runFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:       "run ycsb",
		Short:     "Run a workload on a store and print throughput and latency",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"ycsb"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "ycsb" {
				return badUse("unknown workload family %q: %sthere is ycsb", args[0], nearest.Meant(args[0], cmd.ValidArgs))
			}
			f.set(cmd.Flags())
			return runWorkload(cmd, f)
		},
	}
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&f.store, "store", store.Default().Name, "the store: "+storeNotes())
	fs.StringVar(&f.place.on, "on", experiment.OnRack, "where the clients run: rack, or sim for the built-in rack, or that of --file, in virtual time (not for kvcs); with sim, the default of --warmup is "+
		simWarmup.String()+" and the default of --duration "+simDuration.String()+"; on a rack in slow motion they are "+slowWarmup.String()+" and "+slowDuration.String()+" by its clock")
	fs.StringVar(&f.place.file, "file", "", "with --on sim: rack file whose rack runs in virtual time (default: the built-in rack)")
	must(cmd.MarkFlagFilename("file", "yaml", "yml"))
	costFlag(cmd, &f.place.cost, "connectx5")
	fs.Lookup("cost").Usage = "with --on sim: " + fs.Lookup("cost").Usage + "; the key cost of a rack file in slow motion comes before this default"
	fs.Uint64Var(&f.place.seed, "seed", 1, "with --on sim: seed of the run; in a sweep it is the seed of the first round, and each further round adds 1")
	workersFlag(fs, &f.place.workers, "with --on sim and a rack file with the key fabric: ")
	fs.StringVar(&f.steer, "steer", "", "which requests of Clover the switch steers during the run: none, write (appends), read (READs) or both (default: as the rules of the switch say)")
	fs.IntVar(&f.clients, "clients", 16, "clients in all, spread over the compute hosts; each executes one operation at a time")
	fs.IntVar(&f.options.Share, "share-qp", 0, "how many clients of "+sharing()+" on a host share a queue pair to each memory "+
		"server, up to 256 (default: each client has its own)")
	fs.StringVar(&f.options.Cache, "cache", "", "how clients of "+sharing()+" cache the locations of keys: process (the clients of a host share "+
		"a cache) or client (each client has its own) (default process)")
	fs.StringVar(&f.options.Reporter, "reporter", "", "how the appends of "+sharing()+" are reported to the metadata server: client (each client "+
		"itself) or process (the clients of a host report together) (default client)")
	fs.StringVar(&f.options.Mode, "mode", "", "how clients of "+sharing()+" work: fast (clients of a host take turns to update a key, and one "+
		"append completes all updates of the key that wait on the host; a client reads a key's shortcut only if the node that it has read is not "+
		"the newest) or published (clients work as in the paper) (default fast)")
	fs.StringVar(&f.start, "start", "", "start the store with these flags of its start command, separated by spaces, like 'threads=4 replicas=2' for "+
		"Clover or step=fg+ for Sherman. If value is not among them, it gets the size of the run's largest value (default: a store that is not running is "+
		"started with its defaults; some stores get room for the run's keys or values). A store that runs keeps "+
		"the values with which it was made; for Clover, other values are an error. The flag fresh makes the store again; Clover and pdpm-central must be stopped before a run with fresh. Not with --no-load")
	f.keyFlags(fs)
	fs.Lookup("keys").Usage = "number of keys that are loaded and used; the first is 0"
	fs.Lookup("value-size").Usage += "; less than 16 counts as 16; sherman has 16 unless this flag is given"
	fs.StringVar(&f.trace, "trace", "", "replay the operations of this file (format: see rdmalab run convert --help), in place of a workload: not with "+
		"--"+strings.Join(notWithTrace, ", --")+". Client number C of the trace runs as client number C modulo --clients. "+
		"Keys are loaded only if --keys is given; a get or a delete of a key that is missing is no failure, and a put inserts the key")
	fs.Float64Var(&c.Pace, "pace", 0, "replay --trace at the recorded pace times this factor, 0.001 to 1e6. If the previous operation has not ended at the time of the next "+
		"one, the next one waits, and its latency includes the wait (default: a client begins its next operation when the one before has ended)")
	fs.IntVar(&f.limit, "limit", 0, "replay at most this many operations of --trace (default: all)")
	store.Renamed(fs, map[string]string{"value": "value-size", "patience": "op-timeout"})
	fs.DurationVar(&c.Warmup, "warmup", time.Second, "time in which clients work before operations are counted; without this flag, a run with --trace has none")
	fs.DurationVar(&c.Duration, "duration", 5*time.Second, "time in which operations are counted; 0 means no limit and needs --ops")
	fs.Uint64Var(&c.Ops, "ops", 0, "end each client after this many counted operations, or after --duration if that is earlier (default 0: only --duration ends it)")
	fs.Float64Var(&c.Rate, "rate", 0, "operations that each client starts per second, at regular times, 0.001 to 1e9. If the previous operation has not ended at such a time, "+
		"the next one waits, and its latency includes the wait (default: a client starts its next operation when the previous one has ended)")
	fs.BoolVar(&c.Verify, "verify", true, "verify every value that was read, except those of scans")
	fs.DurationVar(&c.Patience, "op-timeout", 30*time.Second, "an operation fails after this time; an attempt to connect fails after the same time, at least 5s")
	fs.BoolVar(&f.noLoad, "no-load", false, "do not load keys, because they exist already")
	fs.BoolVar(&f.loadOnly, "load-only", false, "load the keys and report on that, without running the workload")
	fs.BoolVar(&f.out.csv, "csv", false, "print the result as CSV, for plots: a line with names and a line with values; first_try is a share from 0 to 1, and names that end in _us are times in microseconds")
	f.out.spans.flags(cmd)
	quietFlag(cmd, &f.out.quiet)
	complete(cmd, "store", store.Names(nil)...)
	complete(cmd, "on", experiment.OnRack, experiment.OnSim)
	complete(cmd, "steer", steerChoices...)
	complete(cmd, "cache", store.OfProcess, store.OfClient)
	complete(cmd, "reporter", store.OfProcess, store.OfClient)
	complete(cmd, "mode", store.ModeFast, store.ModePublished)
	var names []string
	for _, w := range kv.Workloads() {
		names = append(names, w.Name+"\t"+w.Doc)
	}
	complete(cmd, "workload", names...)
	complete(cmd, "distribution", kv.ShapeZipf, kv.ShapeUniform, kv.ShapeLatest, kv.ShapeHotspot+":20%:80%")
	outputFlag(cmd)
	groupFlags(cmd, "what runs", "on", "file", "cost", "seed", "workers", "store", "clients", "share-qp", "cache", "reporter", "mode", "steer", "start")
	groupFlags(cmd, "operations", "workload", "mix", "keys", "distribution", "zipf", "scramble", "move", "value-size", "trace", "pace", "limit")
	groupFlags(cmd, "phases and times", "no-load", "load-only", "warmup", "duration", "ops", "rate", "op-timeout")
	groupFlags(cmd, "result", "verify", "csv", "output", "quiet", "spans", "spans-each")
	return cmd
}

// set notes which flags were typed. If --value-size was not typed, it takes the store's own default
// of the value size, if the store has one.
func (f *runFlags) set(fs *pflag.FlagSet) {
	f.typed = fs.Changed
	if s, err := store.Find(f.store); err == nil && s.Value > 0 && !fs.Changed("value-size") {
		f.value = strconv.Itoa(s.Value)
	}
}

// keyFlags adds the flags that say what the operations are, and which keys and sizes they have.
func (f *runFlags) keyFlags(fs *pflag.FlagSet) {
	c := &f.config
	fs.StringVar(&f.workload, "workload", "a", "workload of YCSB, a to f; w (only updates); or a number, which is the percentage of updates")
	fs.StringVar(&f.mix, "mix", "", "a workload of your own, in place of --workload: percentages of get, put, insert, delete, scan and rmw "+
		"(read-modify-write), which add up to 100, like get=70,put=20,insert=5,delete=5")
	fs.Uint64Var(&c.Keys, "keys", 1024, "number of keys; the first is 0")
	fs.StringVar(&f.value, "value-size", "100", "bytes of a value: a size, MIN-MAX (each size equally likely), zipf:THETA:MIN-MAX (smaller ones are more "+
		"frequent, by Zipf's exponent THETA, 0 to 1.5), or sizes with their shares like 64=50,1KiB=30,4KiB=20")
	fs.Float64Var(&c.Zipf, "zipf", 0.99, "Zipf's exponent of the popularity of keys, 0 (each key equally likely) to 1.5; not with --distribution uniform and hotspot")
	fs.BoolVar(&c.Scramble, "scramble", false, "spread popular keys over the key space (default: the smallest keys are the most popular); no effect with --distribution uniform and latest")
	fs.StringVar(&f.popular, "distribution", "", "which keys are used: zipf, uniform, latest (the keys inserted last are the most popular), or "+
		"hotspot:KEYS:OPERATIONS, like hotspot:20%:80% for a fifth of the keys that gets 80% of the operations (default zipf; latest for "+
		"workload d)")
	fs.StringVar(&f.move, "move", "", "how often other keys become the popular ones: a time, like 5s, or a number of operations of all clients together (default: never); not with --distribution uniform and latest")
}

func storeNotes() string {
	var out []string
	for _, s := range store.All() {
		if s.Note != "" {
			out = append(out, s.Name+" ("+s.Note+")")
		} else {
			out = append(out, s.Name)
		}
	}
	return strings.Join(out, ", ")
}

// storesThat lists the stores for which the function has returns true: "clover or sherman".
func storesThat(has func(s *store.Store) bool) string { return strings.Join(store.Names(has), " or ") }

// sharing lists the stores whose clients can share queue pairs.
func sharing() string {
	var out []string
	for _, s := range store.All() {
		if s.Shares {
			out = append(out, s.Title)
		}
	}
	return strings.Join(out, " or ")
}

func (f *runFlags) check() (err error) {
	c := &f.config
	for _, name := range []string{"pace", "limit"} {
		if f.trace == "" && f.typed(name) {
			return fmt.Errorf("--%s says how a trace is replayed: use it with --trace FILE", name)
		}
	}
	desc, err := store.Find(f.store)
	if err != nil {
		return fmt.Errorf("--store: %w", err)
	}
	if f.trace != "" {
		err = f.readTrace(f.typed)
	} else if f.limit, err = 0, f.checkKeys(); err == nil {
		err = f.checkSizes()
	}
	if err != nil {
		return err
	}
	c.Value, c.Clients = c.Sizes.Max, f.clients
	if c.Workload.Scan > 0 && !desc.Scans {
		return fmt.Errorf("workload %s scans, and %s has no order of keys; use --store %s", c.Workload.Name, desc.Name,
			storesThat(func(s *store.Store) bool { return s.Scans }))
	}
	if err := f.checkStart(desc); err != nil {
		return err
	}
	shared := storesThat(func(s *store.Store) bool { return s.Shares })
	switch {
	case f.noLoad && f.loadOnly:
		return errors.New("--no-load and --load-only leave nothing to do: use one of them")
	case f.clients < 1:
		return fmt.Errorf("--clients %d: want at least 1", f.clients)
	case f.options.Share > 1 && !desc.Shares:
		return fmt.Errorf("--share-qp %d: %s's clients have queue pairs of their own; use --store %s", f.options.Share, desc.Name, shared)
	case f.steer != "" && !slices.Contains(steerChoices, f.steer):
		return fmt.Errorf("--steer %.20q: %suse %s", f.steer, nearest.Meant(f.steer, steerChoices), strings.Join(steerChoices, ", "))
	case f.steer != "" && !desc.Steers:
		return fmt.Errorf("--steer %s: the switch cannot steer requests of store %s; use --store %s", f.steer, desc.Name,
			storesThat(func(s *store.Store) bool { return s.Steers }))
	}
	for _, own := range []struct{ flag, value, one, other string }{
		{"cache", f.options.Cache, store.OfProcess, store.OfClient},
		{"reporter", f.options.Reporter, store.OfProcess, store.OfClient},
		{"mode", f.options.Mode, store.ModeFast, store.ModePublished},
	} {
		switch {
		case own.value == "":
		case !desc.Shares:
			return fmt.Errorf("--%s %.20q: store %s has no %s that can be chosen; use --store %s", own.flag, own.value, desc.Name, own.flag, shared)
		case own.value != own.one && own.value != own.other:
			return fmt.Errorf("--%s %.20q: %swant %s or %s", own.flag, own.value, nearest.Meant(own.value, []string{own.one, own.other}), own.one, own.other)
		}
	}
	if err := f.checkOn(); err != nil {
		return err
	}
	if err := f.out.spans.check(f.clients, f.loadOnly, f.typed); err != nil {
		return err
	}
	if f.out.spans.to != "" {
		c.Spans = f.out.spans.each
	}
	return c.Validate()
}

func (f *runFlags) checkSizes() (err error) {
	if f.config.Sizes, err = kv.ParseSizes(f.value, func(text string) (int, error) {
		n, err := units.ParseSize(text)
		return int(min(n, math.MaxInt32)), err
	}); err != nil {
		return fmt.Errorf("--value-size: %w", err)
	}
	return nil
}

func (f *runFlags) checkKeys() (err error) {
	c := &f.config
	switch {
	case f.mix != "" && f.typed("workload"):
		return errors.New("--mix and --workload both say what the operations are: use one of them")
	case f.mix != "":
		c.Workload, err = kv.ParseMix(f.mix)
	default:
		c.Workload, err = kv.FindWorkload(f.workload)
	}
	if err != nil {
		return err
	}
	c.Popularity = kv.Popularity{}
	if f.popular != "" {
		if c.Popularity, err = kv.ParsePopularity(f.popular); err != nil {
			return fmt.Errorf("--distribution: %w", err)
		}
	}
	if shape := c.Popularity.Shape; (shape == kv.ShapeUniform || shape == kv.ShapeHotspot) && f.typed("zipf") {
		return fmt.Errorf("--zipf is the exponent of --distribution zipf or latest; leave it out with %s", shape)
	}
	if f.move != "" {
		if err := c.Popularity.ParseMove(f.move); err != nil {
			return fmt.Errorf("--move: %w", err)
		}
	}
	return nil
}

func runWorkload(cmd *cobra.Command, f *runFlags) error {
	if err := f.check(); err != nil {
		return asUse(err)
	}
	rep, err := f.measure(cmd)
	if rep == nil {
		return err
	}
	written := rep.write(cmd, f.out.csv)
	if err == nil {
		err = written // otherwise the earlier error is the more precise one
	}
	return err
}

// measure runs the workload. If it fails after clients have executed operations, it returns a report
// on these operations together with the error.
func (f *runFlags) measure(cmd *cobra.Command) (rep *runReport, err error) {
	if f.place.on == experiment.OnSim {
		return f.measureSim(cmd)
	}
	err = strictly(cmd, func() (err error) {
		rep, err = f.measureRack(cmd)
		return err
	})
	return rep, err
}

// measureRack is measure for a rack.
func (f *runFlags) measureRack(cmd *cobra.Command) (rep *runReport, err error) {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	if desc, err := store.Find(f.store); err != nil {
		return nil, err
	} else if _, err := desc.Places(rack); err != nil { // checked before the switch is changed
		return nil, err
	}
	if rack.Slow > 0 {
		f.useTimes(slowWarmup, slowDuration)
	}
	told := either(f.out.quiet, io.Discard, cmd.ErrOrStderr())
	undo, err := steerSwitch(cmd, rack, f.steer, told)
	if err != nil {
		return nil, err
	}
	defer func() { err = withUndo(cmd, err, undo()) }()
	run, err := newStoreRun(cmd, rack, f)
	if err != nil {
		return nil, err
	}
	if !f.noLoad && !f.loadOnly && !run.loaded {
		res, err := run.all(cmd.Context(), true)
		if err != nil {
			return nil, fmt.Errorf("load: %w", err)
		}
		_, _ = fmt.Fprintf(told, "%d keys inserted in %.2f s; %d existed\n", res.Total(), res.Span.Seconds(), res.Existed)
	}
	before, err := run.traffic(cmd.Context())
	if err != nil {
		return nil, err
	}
	res, runErr := run.all(cmd.Context(), f.loadOnly)
	after, err := run.traffic(cmd.Context())
	if err = errors.Join(runErr, err); err != nil && res.Clients == 0 {
		return nil, err
	}
	rep = run.report(res, before, after)
	err = errors.Join(err, f.out.spans.export(cmd.Context(), told, res.Spans, spans.About{Store: f.store, Workload: rep.Workload, Rack: rack.Name}))
	if rep.Slow = rack.Slow; rep.Slow > 0 {
		rep.RealThroughput = rep.Throughput / float64(rack.Slow)
	}
	return rep, err
}

// report makes the report of what the clients have done. `before` and `after` are the switch's counters
// before and after the clients worked.
func (s *storeRun) report(res *kv.Result, before, after traffic) *runReport {
	rep, issued := s.flags.report(res), float64(s.issued)
	if s.flags.loadOnly {
		issued = float64(res.Total() + res.Existed)
	}
	if issued > 0 {
		rep.BytesPerOp = float64(after.bytes-before.bytes) / issued
		rep.PacketsPerOp = float64(after.packets-before.packets) / issued
	}
	return rep
}

// storeRun is a run of a store's clients, which the daemons of the compute hosts execute. ctl[i]
// sends requests to the daemon of hosts[i].
type storeRun struct {
	flags  *runFlags
	cmd    *cobra.Command
	client store.ClientOptions
	hosts  []string
	ctl    []*control.Client
	issued uint64 // operations that were executed, including those that were not counted
	loaded bool   // true: the keys had been inserted before this run
}

func newStoreRun(cmd *cobra.Command, rack *rackfile.Rack, f *runFlags) (*storeRun, error) {
	s := &storeRun{flags: f, cmd: cmd}
	if err := s.start(rack); err != nil {
		return nil, err
	}
	hosts, err := rack.NamesByRole(rackfile.Compute)
	if err != nil {
		return nil, err
	}
	s.hosts = hosts
	for _, h := range hosts {
		client, err := hostControl(cmd, h)
		if err != nil {
			return nil, err
		}
		s.ctl = append(s.ctl, client)
	}
	return s, nil
}

func (s *storeRun) start(rack *rackfile.Rack) error {
	desc, err := store.Find(s.flags.store)
	if err != nil {
		return err
	}
	call, err := storeCall(s.cmd, desc, "")
	if err != nil {
		return err
	}
	call.Rack = rack
	return s.prepare(desc, call)
}

// prepare starts the store for the workload by the store's own commands, with the flags of --start.
func (s *storeRun) prepare(desc *store.Store, call *store.Call) (err error) {
	if s.flags.start != "" {
		if err := s.flags.startStore(call, false); err != nil {
			return fmt.Errorf("%s start: %w", desc.Name, err)
		}
	}
	if s.client, err = call.Options(); err != nil {
		return err
	}
	of := &s.flags.options
	s.client.Share, s.client.Cache, s.client.Reporter, s.client.Mode = of.Share, of.Cache, of.Reporter, of.Mode
	s.client.Gets = of.Gets
	s.loaded, err = desc.Commands.Prepare(call, store.Workload{
		Clients: s.flags.clients, Load: !s.flags.noLoad && !s.flags.loadOnly, Config: s.flags.config,
		Steered: s.flags.steer != "" && s.flags.steer != "none",
	})
	return err
}

func (s *storeRun) all(ctx context.Context, load bool) (total *kv.Result, err error) {
	total = new(kv.Result)
	var mu sync.Mutex
	var wg sync.WaitGroup
	done := make([]uint64, len(s.hosts))
	told := newPace(s.cmd, s.flags.out.quiet || load, time.Second)
	requests, err := s.requests(load)
	if err != nil {
		return total, err
	}
	for i, in := range requests {
		host := s.hosts[i]
		wg.Go(func() {
			ierr := awake(ctx, s.ctl[i], host)
			if ierr == nil {
				ierr = control.Items(ctx, s.ctl[i], http.MethodPost, hostd.PathRun, in, func(ev hostd.RunEvent) error {
					mu.Lock()
					defer mu.Unlock()
					done[i] = ev.Done
					if ev.Result != nil {
						total.Merge(ev.Result)
					}
					told.tell("%d operations", sum(done))
					return nil
				})
				if ierr != nil {
					ierr = fmt.Errorf("host %s: %w", host, ierr)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, ierr)
		})
	}
	wg.Wait()
	s.issued = sum(done)
	return total, err
}

// requests returns a request for each host that has clients. It divides the clients of the run
// among the hosts, whose numbers of clients differ by at most one.
func (s *storeRun) requests(load bool) (list []hostd.RunRequest, err error) {
	first := 0
	for i, host := range s.hosts {
		count := s.flags.clients / len(s.hosts)
		if i < s.flags.clients%len(s.hosts) {
			count++
		}
		if count == 0 {
			break
		}
		in := hostd.RunRequest{Store: s.flags.store, ClientOptions: s.client, First: first, Count: count, Config: s.flags.config, Load: load}
		if !load {
			if in.Trace, err = s.flags.part(host, first, count); err != nil {
				return nil, err
			}
		}
		list = append(list, in)
		first += count
	}
	return list, nil
}

func sum(list []uint64) (n uint64) {
	for _, v := range list {
		n += v
	}
	return n
}

// traffic is how many packets and bytes the switch has received.
type traffic struct{ packets, bytes uint64 }

func (s *storeRun) traffic(ctx context.Context) (t traffic, err error) {
	r, paths, err := rackOf(s.cmd)
	if err != nil {
		return t, err
	}
	err = onSwitches(r, paths, func(name string, client *control.Client) error {
		var c switchd.Counters
		if err := ask(ctx, client, name, http.MethodGet, "/counters", nil, &c); err != nil {
			return err
		}
		for i := range c.Ports {
			if _, trunk := r.TrunkNamed(c.Ports[i].Host); !trunk {
				t.packets += c.Ports[i].RxPackets
				t.bytes += c.Ports[i].RxBytes
			}
		}
		return nil
	})
	return t, err
}
