package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/swordbox/switchd"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// runFlags are the flags of run as typed.
type runFlags struct {
	store, workload, value string
	steer                  string
	clients, share         int
	csv, noLoad, quiet     bool
	config                 kv.RunConfig
}

func runCmd() *cobra.Command {
	var f runFlags
	var loads []string
	for _, w := range kv.Workloads() {
		loads = append(loads, fmt.Sprintf("  %-3s %s", w.Name, w.Doc))
	}
	cmd := &cobra.Command{
		Use:   "run ycsb",
		Short: "Run a workload on a store and print what it took",
		Long: "run loads keys, lets clients on all compute hosts work, and prints throughput, latencies, races and the bytes\n" +
			"on the wire per operation, as the switch counted them. Workloads (YCSB), or a percentage of updates:\n\n" +
			strings.Join(loads, "\n") + "\n\nA store that does not run is started. With --steer the switch gets the program and the rules for it, and what it\n" +
			"had before when the run has ended or was interrupted.",
		Example: "  rdmalab run ycsb --workload a --clients 64\n" +
			"  rdmalab run ycsb --workload 5 --keys 1024 --zipf 0.99 --value 1000 -o json\n" +
			"  rdmalab run ycsb --workload a --clients 64 --steer both\n" +
			"  rdmalab run ycsb --store sherman --workload e --zipf 0\n" +
			"  rdmalab run ycsb --workload w --clients 8 --rate 500 --duration 10s --csv",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"ycsb"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "ycsb" {
				return badUse("unknown workload family %q: there is ycsb", args[0])
			}
			if f.store == storeSherman && !cmd.Flags().Changed("value") {
				f.value = strconv.Itoa(kv.MinValue)
			}
			return runWorkload(cmd, &f)
		},
	}
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&f.store, "store", storeClover, "the store: clover, or sherman, which can scan and has values of at most 54 bytes")
	fs.StringVar(&f.workload, "workload", "a", "a to f, w, or a percentage of updates")
	fs.StringVar(&f.steer, "steer", "", "what the switch steers during the run: none, write, read or both (default: as its rules say)")
	fs.IntVar(&f.clients, "clients", 16, "clients in all, spread over the compute hosts")
	fs.IntVar(&f.share, "share-qp", 0, "clients of Clover on a host that share a queue pair to each memory server (default: each has its own)")
	fs.Uint64Var(&c.Keys, "keys", 1024, "keys")
	fs.StringVar(&f.value, "value", "100", "bytes of a value")
	fs.Float64Var(&c.Zipf, "zipf", 0.99, "skew of popularity, 0 to 1.5")
	fs.BoolVar(&c.Scramble, "scramble", false, "spread popular keys over the key space")
	fs.DurationVar(&c.Warmup, "warmup", time.Second, "time before operations are counted")
	fs.DurationVar(&c.Duration, "duration", 5*time.Second, "time in which they are counted")
	fs.Uint64Var(&c.Ops, "ops", 0, "end each client after so many counted operations")
	fs.Float64Var(&c.Rate, "rate", 0, "operations a second that each client starts, come what may (default: the next when the last has ended)")
	fs.BoolVar(&c.Verify, "verify", true, "compare every value that was read")
	fs.DurationVar(&c.Patience, "patience", 30*time.Second, "after which time an operation, or the connecting of a client, has failed")
	fs.BoolVar(&f.noLoad, "no-load", false, "the keys are there already")
	fs.BoolVar(&f.csv, "csv", false, "print one row for plots")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "no progress on standard error")
	complete(cmd, "store", storeClover, storeSherman)
	complete(cmd, "steer", steerChoices...)
	var names []string
	for _, w := range kv.Workloads() {
		names = append(names, w.Name+"\t"+w.Doc)
	}
	complete(cmd, "workload", names...)
	outputFlag(cmd)
	return cmd
}

// check fills in what has units.
func (f *runFlags) check() (err error) {
	c := &f.config
	if f.store != storeClover && f.store != storeSherman {
		return fmt.Errorf("--store %q: there are %s and %s", f.store, storeClover, storeSherman)
	}
	if c.Workload, err = kv.FindWorkload(f.workload); err != nil {
		return err
	}
	if c.Workload.Scan > 0 && f.store == storeClover {
		return fmt.Errorf("workload %s scans, and clover has no order of keys; take --store sherman", c.Workload.Name)
	}
	if f.clients < 1 {
		return fmt.Errorf("--clients %d: want at least 1", f.clients)
	}
	if f.share > 1 && f.store == storeSherman {
		return fmt.Errorf("--share-qp %d: sherman's clients have queue pairs of their own; take --store clover", f.share)
	}
	n, err := spec.ParseSize(f.value)
	if err != nil {
		return fmt.Errorf("--value: %w", err)
	}
	c.Value, c.Clients = int(n), f.clients
	return c.Validate()
}

func runWorkload(cmd *cobra.Command, f *runFlags) (err error) {
	if err := f.check(); err != nil {
		return asUse(err)
	}
	asJSON, err := wantJSON(cmd)
	if err != nil {
		return err
	}
	rack, _, err := rackOf(cmd)
	if err != nil {
		return err
	}
	if f.store == storeClover {
		if _, err := metaHost(rack); err != nil { // before the switch is told anything
			return err
		}
	}
	told := cmd.ErrOrStderr()
	if f.quiet {
		told = io.Discard
	}
	undo, err := steerSwitch(cmd, rack, f.steer, told)
	if err != nil {
		return err
	}
	defer func() { err = withUndo(cmd, err, undo()) }()
	run, err := newStoreRun(cmd, rack, f)
	if err != nil {
		return err
	}
	if !f.noLoad && !run.loaded {
		if _, err := run.all(cmd.Context(), true); err != nil {
			return fmt.Errorf("load: %w", err)
		}
	}
	before, err := run.traffic(cmd.Context())
	if err != nil {
		return err
	}
	res, runErr := run.all(cmd.Context(), false)
	after, err := run.traffic(cmd.Context())
	if err = errors.Join(runErr, err); err != nil && res.Clients == 0 {
		return err
	}
	rep := f.report(res)
	if issued := float64(run.issued); issued > 0 {
		rep.BytesPerOp = float64(after.bytes-before.bytes) / issued
		rep.PacketsPerOp = float64(after.packets-before.packets) / issued
	}
	written := rep.write(cmd, asJSON, f.csv)
	if err == nil {
		err = written // else the reason says more than that something failed
	}
	return err
}

// storeRun is clients on several hosts.
type storeRun struct {
	flags  *runFlags
	cmd    *cobra.Command
	meta   string
	hosts  []string
	ctl    []*control.Client
	issued uint64 // operations, also those that were not counted
	loaded bool   // the keys are there already
}

func newStoreRun(cmd *cobra.Command, rack *spec.Rack, f *runFlags) (*storeRun, error) {
	s := &storeRun{flags: f, cmd: cmd}
	if err := s.start(rack); err != nil {
		return nil, err
	}
	for _, h := range rack.ByRole(spec.Compute) {
		client, err := hostControl(cmd, h.Name)
		if err != nil {
			return nil, err
		}
		s.hosts, s.ctl = append(s.hosts, h.Name), append(s.ctl, client)
	}
	if len(s.hosts) == 0 {
		return nil, fmt.Errorf("rack %s has no compute host", rack.Name)
	}
	return s, nil
}

// start starts the store.
func (s *storeRun) start(rack *spec.Rack) (err error) {
	if s.flags.store == storeSherman {
		return s.startTree(rack)
	}
	if s.meta, err = metaHost(rack); err != nil {
		return err
	}
	var memory []string
	for _, h := range rack.ByRole(spec.Memory) {
		memory = append(memory, h.Name)
	}
	return startStore(s.cmd, rack, hostd.StoreConfig{Servers: memory, Lease: leaseOf(s.flags.clients)})
}

// crowd is how many clients share the machine until they need more patience of the metadata server.
const crowd = 64

// leaseOf is the lease of a store that a run starts: many clients on one machine each get their turn rarely, and who loses its lease
// must ask for all keys again. 0: the usual one.
func leaseOf(clients int) time.Duration {
	if clients <= crowd {
		return 0
	}
	return meta.DefaultLease * time.Duration(clients) / crowd
}

// all runs the clients of all hosts at the same time and merges what they did.
func (s *storeRun) all(ctx context.Context, load bool) (total *kv.Result, err error) {
	total = new(kv.Result)
	var mu sync.Mutex
	var wg sync.WaitGroup
	done := make([]uint64, len(s.hosts))
	told := time.Now()
	first := 0
	for i, host := range s.hosts {
		count := s.flags.clients / len(s.hosts)
		if i < s.flags.clients%len(s.hosts) {
			count++
		}
		if count == 0 {
			continue
		}
		in := hostd.RunRequest{Store: s.flags.store, Meta: s.meta, First: first, Count: count, Config: s.flags.config, Share: s.flags.share, Load: load}
		first += count
		wg.Go(func() {
			ierr := control.Items(ctx, s.ctl[i], http.MethodPost, hostd.PathRun, in, func(ev hostd.RunEvent) error {
				mu.Lock()
				defer mu.Unlock()
				done[i] = ev.Done
				if ev.Result != nil {
					total.Merge(ev.Result)
				}
				if ev.Error != "" {
					return errors.New(ev.Error)
				}
				s.tell(done, &told, load)
				return nil
			})
			if ierr != nil {
				mu.Lock()
				err = errors.Join(err, fmt.Errorf("host %s: %w", host, ierr))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s.issued = 0
	for _, n := range done {
		s.issued += n
	}
	return total, err
}

// tell prints a line of progress now and then.
func (s *storeRun) tell(done []uint64, told *time.Time, load bool) {
	if s.flags.quiet || load || time.Since(*told) < time.Second {
		return
	}
	*told = time.Now()
	sum := uint64(0)
	for _, n := range done {
		sum += n
	}
	_, _ = fmt.Fprintf(s.cmd.ErrOrStderr(), "%d operations\n", sum) // it is a courtesy
}

// traffic is what the switch has taken in.
type traffic struct{ packets, bytes uint64 }

func (s *storeRun) traffic(ctx context.Context) (t traffic, err error) {
	client, err := switchControl(s.cmd)
	if err != nil {
		return t, err
	}
	var c switchd.Counters
	if err := client.Call(ctx, http.MethodGet, "/counters", nil, &c); err != nil {
		return t, err
	}
	for i := range c.Ports {
		t.packets += c.Ports[i].RxPackets
		t.bytes += c.Ports[i].RxBytes
	}
	return t, nil
}
