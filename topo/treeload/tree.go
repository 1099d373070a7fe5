package treeload

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/simrack"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Places of lock words.
const (
	LocksHost   = "host"
	LocksDevice = "device"
	LocksSwitch = "switch" // in device memory, behind a switch that turns their CAS into WRITEs
)

// TreeLoad is one experiment: clients of the tree on eight machines.
type TreeLoad struct {
	Clients int
	// Workload of the clients on Keys keys, loaded before; 0: 20000. Zipf is the skew.
	Workload kv.Workload
	Keys     uint64
	Zipf     float64
	// Locks is a place of lock words; "": LocksDevice.
	Locks string
	// Misses is how the switch treats CAS that fail, as in a rule; "": the server answers them.
	Misses string
	// HandOver is that of sherman.NodeConfig. Alone makes each client a compute node of its own, with its own cache: nobody queues
	// locally, and all that want a lock ask the server for it.
	HandOver int
	Alone    bool
	// Servers are memory servers; 0: 1.
	Servers int
	Seed    uint64
	// Run is how long operations are counted, in virtual time; 0: 1 ms.
	Run time.Duration
}

// TreeResult is what came out.
type TreeResult struct {
	kv.Result
	// Node sums up what the compute nodes did, warm-up included.
	Node sherman.NodeStats
	// WaitP50 and WaitP99 are of waits for locks.
	WaitP50, WaitP99 time.Duration
	// BytesPerOp is what the switch took in for each operation that was counted.
	BytesPerOp float64
}

const (
	treeHosts   = 8
	treeRegion  = 16 << 20
	treeTable   = 256 << 10                   // bytes of a lock table
	treeReady   = clock.Time(2 * time.Second) // keys are loaded
	treeWarm    = clock.Time(6 * time.Second) // caches are warm
	loadLimit   = clock.Time(10 * time.Minute)
	treeWarmUp  = 200 * time.Microsecond
	treeRunTime = time.Millisecond
	treeLease   = 50 * time.Millisecond
)

// treeRun is an experiment in progress.
type treeRun struct {
	TreeLoad
	rack    *simrack.Rack
	servers []netip.Addr
	nodes   []*sherman.Node
	cfg     kv.RunConfig
	total   kv.Result
	value   int // bytes
	region  int // bytes of each server; 0: treeRegion
	ready   bool
	bytes   uint64
}

func (l *TreeLoad) rackFile() string {
	out := fmt.Sprintf("name: treeload\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-%d]\", role: compute}\n", l.Servers-1, treeHosts-1)
	if l.Locks != LocksSwitch {
		return out
	}
	out += "switch:\n  program: swordbox\n  rules:\n"
	more := ""
	if l.Misses != "" {
		more = ", misses: " + l.Misses
	}
	for i := range l.Servers { // a lock table begins at address 0, and host memory is elsewhere
		out += fmt.Sprintf("    - {server: ms%d, action: atomics, mode: hard, range: 0-%#x%s}\n", i, treeTable, more)
	}
	return out
}

// Measure runs the experiment with model m.
func (l TreeLoad) Measure(m *cost.Model) (TreeResult, error) {
	l.Servers = max(l.Servers, 1)
	if l.Keys == 0 {
		l.Keys = 20000
	}
	if l.Run == 0 {
		l.Run = treeRunTime
	}
	r := &treeRun{TreeLoad: l, value: kv.MinValue}
	if err := r.build(m, nil); err != nil {
		return TreeResult{}, err
	}
	defer r.rack.Close()
	r.cfg = kv.RunConfig{
		Workload: l.Workload, Keys: l.Keys, Value: r.value, Zipf: l.Zipf, Scramble: true, Clients: l.Clients, Warmup: treeWarmUp, Duration: l.Run,
		Patience: time.Second, Verify: true,
	}
	for i := range l.Clients {
		h := r.rack.Host(fmt.Sprintf("cn%d", i%treeHosts))
		h.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) { r.rack.Stop(r.client(h, ctx, i)) })
	}
	count := func() (n uint64) {
		for i := range r.rack.Hosts() {
			n += r.rack.Switch().Port(i).RxBytes
		}
		return n
	}
	r.rack.At(treeWarm.Add(treeWarmUp), func() { r.bytes = count() })
	r.rack.At(treeWarm.Add(treeWarmUp+l.Run), func() { r.bytes = count() - r.bytes })
	if err := r.rack.Run(); err != nil {
		return TreeResult{}, err
	}
	return r.result(), nil
}

func (r *treeRun) result() TreeResult {
	out := TreeResult{Result: r.total}
	out.Span = r.Run
	if n := out.Total(); n > 0 {
		out.BytesPerOp = float64(r.bytes) / float64(n)
	}
	for i, n := range r.nodes {
		s := n.Stats()
		if i == 0 {
			out.Node = s
			continue
		}
		o := &out.Node
		o.Acquires, o.HandOvers, o.CAS = o.Acquires+s.Acquires, o.HandOvers+s.HandOvers, o.CAS+s.CAS
		o.Recovered, o.Fenced, o.Splits, o.Torn = o.Recovered+s.Recovered, o.Fenced+s.Fenced, o.Splits+s.Splits, o.Torn+s.Torn
		o.CacheHits, o.CacheMisses = o.CacheHits+s.CacheHits, o.CacheMisses+s.CacheMisses
		o.Wait.Merge(s.Wait)
	}
	out.WaitP50 = time.Duration(out.Node.Wait.ValueAtPercentile(50))
	out.WaitP99 = time.Duration(out.Node.Wait.ValueAtPercentile(99))
	return out
}

// build makes the rack with its memory services and compute nodes, and has cn0 load the tree.
func (r *treeRun) build(m *cost.Model, change func(*simrack.Options)) error {
	s, err := spec.Parse([]byte(r.rackFile()))
	if err != nil {
		return err
	}
	opt := simrack.Options{Seed: r.Seed, Cost: m, Datagrams: r.Locks == LocksSwitch}
	if change != nil {
		change(&opt)
	}
	if r.rack, err = simrack.New(s, opt); err != nil {
		return err
	}
	for i := range r.Servers {
		h := r.rack.Host(fmt.Sprintf("ms%d", i))
		r.servers = append(r.servers, h.Addr())
		h.Go("memory", true, func(ctx verbs.Context) {
			s, err := perf.NewServer(ctx, h.Manager(ctx), perf.ServerConfig{
				Service: perf.MemoryService, Passive: true, Region: cmp.Or(r.region, treeRegion), Locks: treeTable,
			})
			if err == nil {
				err = s.Serve()
			}
			r.rack.Stop(err)
		})
	}
	nodes := treeHosts
	if r.Alone {
		nodes = r.Clients
	}
	for range nodes {
		n, err := sherman.NewNode(sherman.NodeConfig{Servers: r.servers, HandOver: r.HandOver, Lease: treeLease})
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
	}
	h := r.rack.Host("cn0")
	h.Go("load", false, func(ctx verbs.Context) { r.rack.Stop(r.load(h, ctx)) })
	return nil
}

// load makes the tree with its keys.
func (r *treeRun) load(h *simrack.Host, ctx verbs.Context) error {
	cfg := sherman.Config{Context: ctx, Manager: h.Manager(ctx)}
	_, err := sherman.Format(cfg, r.servers, sherman.FormatConfig{
		Shape: layout.Shape{Value: r.value}, HostLocks: r.Locks == LocksHost, Chunk: 32 << 10, Generation: 1,
	}, treeReady)
	if err != nil {
		return err
	}
	key := uint64(0)
	_, err = sherman.BulkLoad(cfg, r.servers, func() (uint64, []byte, bool) {
		key++
		return key - 1, kv.MakeValue(key-1, key-1, r.value)[:r.value], key <= r.Keys
	}, loadLimit)
	r.ready = err == nil
	return err
}

// open makes a client when the tree is there.
func (r *treeRun) open(h *simrack.Host, ctx verbs.Context, node int) (*sherman.Client, error) {
	rt := ctx.Runtime()
	for !r.ready {
		rt.Sleep(time.Millisecond)
	}
	return r.nodes[node].Open(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, treeReady)
}

// warmStep is less than the keys of a leaf, and half of those of the leaves below an internal page: who has read every so many keys
// has met all internal pages.
const warmStep = 128

// client warms the cache of its node, waits until all others have done the same, and works.
func (r *treeRun) client(h *simrack.Host, ctx verbs.Context, id int) error {
	rt := ctx.Runtime()
	c, err := r.open(h, ctx, id%len(r.nodes))
	if err != nil {
		return err
	}
	rt.Sleep(treeReady.Sub(rt.Now()))
	mates := uint64((r.Clients + len(r.nodes) - 1) / len(r.nodes))
	for key := uint64(id/len(r.nodes)) * warmStep; key < r.Keys; key += warmStep * mates {
		if _, err := c.Get(key, nil, treeWarm); err != nil {
			return err
		}
	}
	if rt.Now() >= treeWarm {
		return fmt.Errorf("client %d was warm at %v, after %v", id, rt.Now(), treeWarm)
	}
	rt.Sleep(treeWarm.Sub(rt.Now()))
	cfg := r.cfg
	cfg.Client = id
	res, err := kv.Run(c, rt, cfg, nil)
	if err == nil {
		r.total.Merge(res)
	}
	return errors.Join(err, c.Close())
}
