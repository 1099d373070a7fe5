package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	clover "github.com/rdmalab/rdmalab/clover/plugin"
	"github.com/rdmalab/rdmalab/experiment"
	fusee "github.com/rdmalab/rdmalab/fusee/plugin"
	"github.com/rdmalab/rdmalab/rackfile"
	sherman "github.com/rdmalab/rdmalab/sherman/plugin"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// rackPlace has the flags that choose hosts of a rack: compute hosts (from) and a memory server
// (to).
type rackPlace struct{ from, to string }

// flags defines the flags for an experiment. target names what the experiment uses in the memory of
// the server --to; "" means that it uses all memory servers.
func (c *rackPlace) flags(cmd *cobra.Command, target string) {
	to := "on a rack: any memory server; the choice has no effect, because the store decides which servers it uses"
	from := "on a rack: any compute hosts; the choice has no effect, because the clients of a store run on all compute hosts"
	if target != "" {
		to = "on a rack: memory server that has the " + target
		from = "on a rack: compute hosts of the clients, separated by commas (default: all); some measurements use only the first of them, " +
			"and clients of a store run on all compute hosts in any case"
	}
	cmd.Flags().StringVar(&c.to, "to", "ms0", to)
	cmd.Flags().StringVar(&c.from, "from", "", from)
	completeFlag(cmd, "from", hostNames)
	completeFlag(cmd, "to", hostNames)
}

func (c *rackPlace) hosts(rack *rackfile.Rack) ([]string, error) {
	if err := checkHost(rack, c.to); err != nil {
		return nil, err
	}
	if c.from != "" {
		list := strings.Split(c.from, ",")
		for _, h := range list {
			if err := checkHost(rack, h); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	var out []string
	for _, h := range rack.ByRole(rackfile.Compute) {
		if h.Name != c.to {
			out = append(out, h.Name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the rack has no compute hosts; name others with --from")
	}
	return out, nil
}

// platform returns the rack that is up as a Platform, and a function that restores the switch's
// program and rules.
func (c *rackPlace) platform(cmd *cobra.Command) (experiment.Platform, func() error, error) {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return nil, nil, err
	}
	if len(rack.Machines) > 0 {
		return nil, nil, fmt.Errorf("rack %q is on several machines, and an experiment changes the rules of one switch: measure there by `rdmalab perf` and `rdmalab run`, or leave out --on rack", rack.Name)
	}
	p := &rackPlatform{cmd: cmd, rack: rack, to: c.to, box: experimentSwitch{cmd: cmd}}
	p.hosts, err = c.hosts(rack)
	return p, p.box.restore, err
}

// rackPlatform is the rack that is up as a platform for experiments, accessed through its daemons.
type rackPlatform struct {
	cmd   *cobra.Command
	rack  *rackfile.Rack
	to    string   // the memory server of --to
	hosts []string // the compute hosts of the clients
	box   experimentSwitch
}

var _ experiment.Platform = (*rackPlatform)(nil)

func (*rackPlatform) On() string { return experiment.OnRack }

func (p *rackPlatform) Describe() string {
	of := "on this machine; the papers' values are of hardware"
	if p.rack.Slow > 0 {
		of = fmt.Sprintf("in slow motion: its clock, by which all times and rates are, is %d times slower than real time, and its hardware that of model %s", p.rack.Slow, p.rack.Cost)
	}
	return fmt.Sprintf("rack %s: %d compute hosts, %d memory servers, %s",
		p.rack.Name, len(p.rack.ByRole(rackfile.Compute)), len(p.rack.ByRole(rackfile.Memory)), of)
}

// noStores returns an error if a store is up on the rack: an experiment would overwrite its memory.
func (p *rackPlatform) noStores() error {
	return freeFor("", p.rack, statusOf(p.cmd))
}

// Words runs clients that contend for words, spread over the hosts.
func (p *rackPlatform) Words(ctx context.Context, l experiment.Words) (out experiment.WordsResult, err error) {
	if err := p.noStores(); err != nil {
		return out, err
	}
	if err := p.box.set(ctx, &l.Switch, []string{p.to}, ""); err != nil {
		return out, err
	}
	results, executed, err := p.contend(l.Clients, func(share int) perf.Config {
		if l.Locks {
			return perf.Config{Test: perf.Locks, OneWord: perf.OneWord{Clients: share, Device: l.Device, Bits: l.Bits, Span: wordsSpan(&l, p.rack.Slow)}}
		}
		return perf.Config{Test: perf.Contend, OneWord: perf.OneWord{Clients: share, Device: l.Device}, Iters: max(share, l.Iters*share/l.Clients)}
	})
	if err != nil {
		return out, err
	}
	return wordsTotal(results, l.Clients, executed)
}

// wordsSpan returns how long locks are taken, by the clock of a rack in slow motion by a factor; 0 means full speed.
func wordsSpan(l *experiment.Words, slow int) time.Duration {
	usual := either(slow > 0, slowSpan, rackSpan)
	return cmp.Or(l.Span, either(l.Short, usual/5, usual))
}

// rackSpan is how long locks are taken on a rack if --span does not say it, slowSpan in slow motion.
const (
	rackSpan = time.Second
	slowSpan = 2 * time.Millisecond
)

// contend runs a test on all hosts at the same time, with n clients in all. test returns the
// configuration for a host that runs `share` of the clients. contend returns the result of each
// host, and the number of atomics that the server's NIC has executed meanwhile.
func (p *rackPlatform) contend(n int, test func(share int) perf.Config) ([]*perf.Result, uint64, error) {
	hosts := p.hosts[:min(n, len(p.hosts))]
	before, err := p.counter("rx_atomic_requests")
	if err != nil {
		return nil, 0, err
	}
	results, all := make([]*perf.Result, len(hosts)), newTogether(len(hosts))
	err = atOnce(hosts, func(i int, host string) error {
		cfg := test((n + len(hosts) - 1 - i) / len(hosts))
		cfg.To, cfg.Seed, cfg.Timeout = p.to, uint64(i+1), experiment.StallTimeout
		res, err := all.run(p.cmd, host, &cfg)
		results[i] = res
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	after, err := p.counter("rx_atomic_requests")
	return results, after - before, err
}

func (p *rackPlatform) counter(name string) (uint64, error) {
	counters, err := countersOf(p.cmd.Context(), p.cmd, p.to)
	return counters[name], err
}

// errSteeredAsPublished is the error of a load with published steering: a store on a rack has several
// memory servers and uses nodes again with other versions (holes 26, 27 and 29 of swordbox/HOLES.md).
var errSteeredAsPublished = errors.New("published steering damages a store on a rack: choose hardened steering, or measure published steering with --on sim")

// Clover runs clients of the store; it starts the store if it is not up.
func (p *rackPlatform) Clover(ctx context.Context, l experiment.Clover) (experiment.StoreResult, error) {
	var out experiment.StoreResult
	if l.Switch.Action == experiment.Steer && l.Switch.Mode == experiment.Published {
		return out, errSteeredAsPublished
	}
	workload, err := kv.FindWorkload(fmt.Sprint(l.Writes))
	if err != nil {
		return out, err
	}
	if l.Bulk != (experiment.Bulk{}) {
		cfg := kv.RunConfig{Workload: workload, Keys: l.Keys, Value: l.Value, Zipf: l.Zipf, Clients: l.Clients, Warmup: l.Warm, Duration: l.Run}
		return (&besideBulk{on: p, desc: &clover.Store, load: l.Bulk, seed: l.Seed, config: cfg}).run(ctx)
	}
	memory, err := p.rack.NamesByRole(rackfile.Memory)
	if err == nil {
		err = p.box.set(ctx, &l.Switch, memory, "")
	}
	if err != nil {
		return out, err
	}
	f := &runFlags{
		store: clover.Store.Name, options: store.ClientOptions{Share: l.Share, Mode: store.ModePublished}, clients: l.Clients, out: runOutput{quiet: true},
		start: l.Start.Args(), config: rackConfig(p.rack, workload, l.Clients),
	}
	if l.Merge {
		f.options.Reporter = store.OfProcess
	}
	c := &f.config
	c.Zipf, c.Keys, c.Value = l.Zipf, cmp.Or(l.Keys, c.Keys), cmp.Or(l.Value, c.Value)
	if l.Run > 0 {
		c.Warmup, c.Duration = l.Warm, l.Run
	}
	run, err := newStoreRun(p.cmd, p.rack, f)
	if err != nil {
		return out, err
	}
	if !run.loaded {
		if _, err := run.all(ctx, true); err != nil {
			return out, fmt.Errorf("load: %w", err)
		}
	}
	return p.metaCalls(func() (experiment.StoreResult, error) { return p.workload(ctx, run) })
}

// metaCalls runs a workload of Clover by calling run, and returns the result of run. It fills in
// MetaCalls and MetaHeaders, the work of the metadata server per second from the opening of the
// clients to their end. Both stay 0 if the metadata server has restarted meanwhile.
func (p *rackPlatform) metaCalls(run func() (experiment.StoreResult, error)) (out experiment.StoreResult, err error) {
	call, err := storeCall(p.cmd, &clover.Store, "")
	if err != nil {
		return out, err
	}
	before, err := clover.Stats(call)
	if err != nil {
		return out, err
	}
	began := time.Now()
	if out, err = run(); err != nil {
		return out, err
	}
	took := time.Since(began).Seconds() / float64(p.rack.Factor())
	after, err := clover.Stats(call)
	if err == nil && after.Requests >= before.Requests && after.Walked >= before.Walked {
		out.MetaCalls, out.MetaHeaders = float64(after.Requests-before.Requests)/took, float64(after.Walked-before.Walked)/took
	}
	return out, err
}

// rackConfig returns the configuration of a workload, with times for hosts that share one machine, or
// for a rack in slow motion.
func rackConfig(r *rackfile.Rack, w kv.Workload, clients int) kv.RunConfig {
	cfg := kv.RunConfig{
		Workload: w, Keys: 1024, Value: 104, Clients: clients, Warmup: 500 * time.Millisecond, Duration: 2 * time.Second,
		Patience: 30 * time.Second, Verify: true,
	}
	if r.Slow > 0 {
		cfg.Warmup, cfg.Duration = slowWarmup, slowDuration
	}
	return cfg
}

// workload runs clients of a store whose keys are loaded. It reads the switch's counters before and
// after.
func (p *rackPlatform) workload(ctx context.Context, run *storeRun) (out experiment.StoreResult, err error) {
	before, err := run.traffic(ctx)
	if err != nil {
		return out, err
	}
	res, err := run.all(ctx, false)
	if err != nil {
		return out, err
	}
	after, err := run.traffic(ctx)
	out.Result = *res
	if n := float64(run.issued); n > 0 {
		out.BytesPerOp = float64(after.bytes-before.bytes) / n
	}
	return out, err
}

// lockTableRange is the range of addresses of the lock table in the device memory of a memory
// server, in the syntax of rules.
const lockTableRange = " range=0-0x40000"

func (p *rackPlatform) Sherman(ctx context.Context, l experiment.Sherman) (out experiment.StoreResult, err error) {
	if l.Bulk != (experiment.Bulk{}) {
		cfg := kv.RunConfig{Workload: l.Workload, Keys: l.Keys, Value: kv.MinValue, Zipf: l.Zipf, Scramble: true, Clients: l.Clients, Warmup: l.Warm, Duration: l.Run}
		return (&besideBulk{on: p, desc: &sherman.Store, start: "lease=5s", load: l.Bulk, seed: l.Seed, config: cfg}).run(ctx)
	}
	if err := p.noStores(); err != nil {
		return out, err
	}
	state := experiment.Switch{}
	if l.Locks == experiment.LocksSwitch {
		state = experiment.Switch{Action: experiment.ReplaceAtomics, Misses: l.Misses}
	}
	memory, err := p.rack.NamesByRole(rackfile.Memory)
	if err == nil {
		err = p.box.set(ctx, &state, memory, lockTableRange)
	}
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, stopStore(p.cmd, &sherman.Store)) }()
	cfg := sherman.Config{Finding: store.Finding{Format: true, Fresh: true}, Value: kv.MinValue, HostLocks: l.Locks == experiment.LocksHost, HandOver: l.HandOver, Step: l.Step}
	call, err := storeCall(p.cmd, &sherman.Store, "")
	if err != nil {
		return out, err
	}
	if _, err := sherman.Start(call, cfg); err != nil {
		return out, err
	}
	f := &runFlags{store: sherman.Store.Name, clients: l.Clients, out: runOutput{quiet: true}, config: rackConfig(p.rack, l.Workload, l.Clients)}
	c := &f.config
	c.Keys, c.Value, c.Zipf, c.Scramble = cmp.Or(l.Keys, 20000), kv.MinValue, l.Zipf, true
	if l.Run > 0 {
		c.Warmup, c.Duration = l.Run, l.Run
	}
	var loaded sherman.Loaded
	if err := call.Post("", sherman.Store.Path(sherman.PathLoad), sherman.LoadRequest{Keys: c.Keys, Records: true}, &loaded); err != nil {
		return out, fmt.Errorf("load: %w", err)
	}
	run, err := newStoreRun(p.cmd, p.rack, f) // the tree is up, so this only finds it
	if err != nil {
		return out, err
	}
	if out, err = p.workload(ctx, run); err == nil {
		out.Tree, err = p.treeStats(ctx)
	}
	return out, err
}

// treeStats adds up the counters of the tree on all compute hosts.
func (p *rackPlatform) treeStats(ctx context.Context) (*experiment.TreeStats, error) {
	out := new(experiment.TreeStats)
	for _, h := range p.rack.ByRole(rackfile.Compute) {
		client, err := hostControl(p.cmd, h.Name)
		if err != nil {
			return nil, err
		}
		var s sherman.Stat
		if err := client.Call(ctx, http.MethodPost, sherman.Store.Path(sherman.PathStat), nil, &s); err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Name, err)
		}
		n := &s.Node
		out.Acquires, out.HandOvers, out.CAS = out.Acquires+n.Acquires, out.HandOvers+n.HandOvers, out.CAS+n.CAS
		out.WaitP99 = max(out.WaitP99, time.Duration(n.WaitP99*1e3))
	}
	return out, nil
}

// nicMessages is how many requests a measurement of NIC has.
const nicMessages = 50_000

// NIC measures the rate of one queue pair of the first host. Loads with several queue pairs are not
// supported.
func (p *rackPlatform) NIC(ctx context.Context, l experiment.NIC) (float64, error) {
	tests := map[string]string{"read": perf.ReadBW, "write": perf.WriteBW, "cas": perf.AtomicBW, "add": perf.AtomicBW}
	test, ok := tests[l.Op]
	if !ok || l.Pairs != 1 || l.OneWord || l.Device {
		return 0, errors.ErrUnsupported
	}
	if err := p.box.set(ctx, &experiment.Switch{}, nil, ""); err != nil {
		return 0, err
	}
	cfg := perf.Config{Test: test, Iters: nicMessages, Depth: l.Depth, To: p.to, Path: perf.Path{Timeout: experiment.StallTimeout}}
	if test == perf.AtomicBW {
		cfg.Type = map[string]string{"cas": "cas", "add": "faa"}[l.Op]
	} else {
		cfg.Size = l.Bytes
	}
	res, err := p.bandwidth(ctx, p.hosts[0], &cfg)
	if err != nil {
		return 0, err
	}
	return res.BW.MsgRate * 1e6, nil
}

// The methods below return errors.ErrUnsupported: their loads are measured in the simulator alone.
// Order and TreeOperations need a trace of single packets without other traffic. For the stores of
// Direct, and Fusee without bulk senders, `rdmalab run ycsb` is the command that measures on a rack.

func (*rackPlatform) Order(context.Context, experiment.Order) (out map[int]float64, err error) {
	return out, errors.ErrUnsupported
}

func (*rackPlatform) TreeOperations(context.Context) (out []experiment.Operation, err error) {
	return out, errors.ErrUnsupported
}

func (*rackPlatform) Direct(context.Context, experiment.Direct) (out experiment.StoreResult, err error) {
	return out, errors.ErrUnsupported
}

// Fusee runs clients beside bulk senders.
func (p *rackPlatform) Fusee(ctx context.Context, l experiment.Fusee) (out experiment.StoreResult, err error) {
	if l.Bulk == (experiment.Bulk{}) {
		return out, errors.ErrUnsupported
	}
	cfg := kv.RunConfig{Workload: l.Workload, Keys: l.Keys, Value: l.Value, Zipf: l.Zipf, Clients: l.Clients, Warmup: l.Warm, Duration: l.Run}
	return (&besideBulk{on: p, desc: &fusee.Store, load: l.Bulk, seed: l.Seed, config: cfg}).run(ctx)
}

func (*rackPlatform) Incast(context.Context, experiment.Incast) (out experiment.IncastResult, err error) {
	return out, errors.ErrUnsupported
}

func (*rackPlatform) Relief(context.Context, experiment.Relief) (out experiment.ReliefResult, err error) {
	return out, errors.ErrUnsupported
}

func (*rackPlatform) Lookups(context.Context, experiment.Lookups) (out experiment.LookupsResult, err error) {
	return out, errors.ErrUnsupported
}

func (*rackPlatform) Cached(context.Context, experiment.Cached) (out experiment.CachedResult, err error) {
	return out, errors.ErrUnsupported
}

func (*rackPlatform) Counting(context.Context, experiment.Counting) (out experiment.CountingResult, err error) {
	return out, errors.ErrUnsupported
}
