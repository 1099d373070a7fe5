package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	treeHosts   = 8
	treeRegion  = 16 << 20
	treeTable   = 256 << 10                    // bytes of a lock table
	treeReady   = clock.Time(2 * time.Second)  // all keys are loaded by then
	treeWarm    = clock.Time(6 * time.Second)  // all caches are warm by then
	bulkLimit   = clock.Time(10 * time.Minute) // deadline of loading the keys
	treeWarmUp  = 200 * time.Microsecond       // default of Warm
	treeRunTime = time.Millisecond             // default of Run
	treeLease   = 50 * time.Millisecond
)

// treeRun is one load of clients of the tree Sherman in progress.
type treeRun struct {
	workload
	load    experiment.Sherman
	step    sherman.Step
	servers []netip.Addr
	nodes   []*sherman.Node
	count   int  // number of memory servers
	value   int  // bytes of a value
	region  int  // bytes of each server's memory; 0 means treeRegion
	ready   bool // true when all keys are loaded
}

// rackFile returns the rack file: memory servers, and eight compute hosts.
func (r *treeRun) rackFile() string {
	out := fmt.Sprintf("name: treeload\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-%d]\", role: compute}\n", r.count-1, treeHosts-1) + bulkHosts(r.load.Bulk, r.count)
	if r.load.Locks != experiment.LocksSwitch {
		return out
	}
	out += "switch:\n  program: swordbox\n  rules:\n"
	more := ""
	if r.load.Misses != "" {
		more = ", misses: " + r.load.Misses
	}
	for i := range r.count { // the rule covers the lock table, which begins at address 0; host memory is at other addresses
		out += fmt.Sprintf("    - {server: ms%d, action: atomics, mode: hardened, range: 0-%#x%s}\n", i, treeTable, more)
	}
	return out
}

// Sherman runs clients of the tree. The switch keeps up with every load.
func (p *Sim) Sherman(ctx context.Context, l experiment.Sherman) (experiment.StoreResult, error) {
	l.Keys, l.Run, l.Warm, l.Seed = cmp.Or(l.Keys, 20000), cmp.Or(l.Run, treeRunTime), cmp.Or(l.Warm, treeWarmUp), cmp.Or(l.Seed, 1)
	step, err := sherman.FindStep(l.Step)
	if err != nil {
		return experiment.StoreResult{}, err
	}
	r := &treeRun{load: l, step: step, count: cmp.Or(l.Servers, 1), value: kv.MinValue}
	model := p.Cost.AtLineRate()
	if l.Slots > 0 {
		model.NIC.Atomic.Slots = l.Slots
	}
	if err := r.build(ctx, simrack.Options{Cost: model}); err != nil {
		return experiment.StoreResult{}, err
	}
	defer r.rack.Close()
	r.cfg = kv.RunConfig{
		Workload: l.Workload, Keys: l.Keys, Value: r.value, Zipf: l.Zipf, Scramble: true, Clients: l.Clients, Warmup: l.Warm, Duration: l.Run,
		Patience: time.Second, Verify: true,
	}
	r.bulk(l.Bulk, r.count, treeWarm)
	startClients(r.rack, l.Clients, treeHosts, r.client)
	out, err := r.measure(ctx, treeWarm)
	if err == nil {
		out.Tree = r.stats()
	}
	return out, err
}

// stats sums up the counters of the compute nodes.
func (r *treeRun) stats() *experiment.TreeStats {
	out := new(experiment.TreeStats)
	var waits *hdrhistogram.Histogram
	for _, n := range r.nodes {
		s := n.Stats()
		out.Acquires, out.HandOvers, out.CAS = out.Acquires+s.Acquires, out.HandOvers+s.HandOvers, out.CAS+s.CAS
		if waits == nil {
			waits = s.Wait
			continue
		}
		waits.Merge(s.Wait)
	}
	out.WaitP99 = time.Duration(waits.ValueAtPercentile(99))
	return out
}

// build makes the rack with its memory services and compute nodes; cn0 loads the tree.
func (r *treeRun) build(ctx context.Context, opt simrack.Options) (err error) {
	opt.Seed, opt.Datagrams = r.load.Seed, r.load.Locks == experiment.LocksSwitch
	if r.rack, err = newRackWith(ctx, r.rackFile(), opt, r.load.Bulk); err != nil {
		return err
	}
	for i := range r.count {
		r.servers = append(r.servers, serveMemory(r.rack, i, memservice.Config{Region: cmp.Or(r.region, treeRegion), Locks: treeTable}))
	}
	nodes := treeHosts
	if r.load.Alone {
		nodes = r.load.Clients
	}
	lease := treeLease
	if bulkOn(r.load.Bulk) {
		lease = bulkLease
	}
	for range nodes {
		n, err := sherman.NewNode(r.step.Node(sherman.NodeConfig{Servers: r.servers, HandOver: r.load.HandOver, Lease: lease}))
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
	}
	start(r.rack, "cn0", "load", r.fill)
	return nil
}

func (r *treeRun) fill(h *simrack.Host, ctx verbs.Context) error {
	cfg := sherman.Config{Context: ctx, Manager: h.Manager(ctx)}
	_, err := sherman.Format(cfg, r.servers, sherman.FormatConfig{
		Shape: layout.Shape{Kind: r.step.Kind, Value: r.value}, HostLocks: r.load.Locks == experiment.LocksHost, PageLocks: r.step.PageLocks && r.load.Locks == "",
		Chunk: 32 << 10, Generation: 1,
	}, treeReady)
	if err != nil {
		return err
	}
	key := uint64(0)
	_, err = sherman.BulkLoad(cfg, r.servers, func() (uint64, []byte, bool) {
		key++
		return key - 1, kv.MakeValue(key-1, key-1, r.value)[:r.value], key <= r.load.Keys
	}, bulkLimit)
	r.ready = err == nil
	return err
}

// open waits until all keys are loaded and opens a client.
func (r *treeRun) open(h *simrack.Host, ctx verbs.Context, node int) (*sherman.Client, error) {
	rt := ctx.Runtime()
	for !r.ready {
		rt.Sleep(time.Millisecond)
	}
	return r.nodes[node].Open(sherman.Config{Context: ctx, Manager: h.Manager(ctx)}, treeReady)
}

// warmStep is less than the number of keys in the leaves below an internal page. So a client that
// reads every warmStep-th key reads all internal pages, which the cache of its node then has.
const warmStep = 128

// client warms the cache of its node, waits until all clients have done so, and executes the
// workload.
func (r *treeRun) client(h *simrack.Host, ctx verbs.Context, id int) error {
	rt := ctx.Runtime()
	c, err := r.open(h, ctx, id%len(r.nodes))
	if err != nil {
		return err
	}
	rt.Sleep(treeReady.Sub(rt.Now()))
	mates := uint64((r.load.Clients + len(r.nodes) - 1) / len(r.nodes))
	for key := uint64(id/len(r.nodes)) * warmStep; key < r.load.Keys; key += warmStep * mates {
		if _, err := c.Get(key, nil, treeWarm); err != nil {
			return err
		}
	}
	return errors.Join(r.workFrom(treeWarm, c, rt, id), c.Close())
}
