package storeload

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/topo/simrack"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Load is one experiment: clients of Clover on seven machines, one memory server, one metadata server, as in the SwordBox paper §6.
type Load struct {
	Clients int
	// Writes is the percentage of updates; the rest reads.
	Writes float64
	// Keys, Value (bytes) and Zipf; 0: 1024 and 104, which fills a node of 128 bytes, and Zipf as it is.
	Keys  uint64
	Value int
	Zipf  float64
	Seed  uint64
	// Warm is how long clients work before operations are counted, and Run how long they are counted, in virtual time; 0: 20 ms and
	// 5 ms. At the beginning all clients know the newest node of each key. What is measured is what comes of it when most of
	// the keys that a client meets were written by others since it met them last; before some 10 ms it is not.
	Warm, Run time.Duration
	// Steer is what the switch steers: "write", "read" or "both"; "" or None: it forwards only.
	Steer string
	// Mode is how: "hard" or "paper"; "": hard. Hot restricts it to the hottest keys: mode hard finds them, mode paper is told; 0: all.
	Mode string
	Hot  int
	// Share is how many clients of a machine share a queue pair to the memory server; 0 or 1: each has its own.
	Share int
	// Pool is how many nodes there are; 0: PublishedPool.
	Pool int
}

// PublishedPool is how many nodes of 128 bytes the published system has on a memory server.
const PublishedPool = 335360

// minNodes is how many nodes the switch remembers at least.
const minNodes = 1 << 16

// None is the choice of a switch that forwards only.
const None = "none"

// steers reports whether the switch steers anything.
func (l *Load) steers() bool { return l.Steer != "" && l.Steer != None }

// rackOf is the rack file of an experiment.
func (l *Load) rackOf() string {
	if !l.steers() {
		return rackFile
	}
	keys := "all"
	switch {
	case l.Hot > 0 && l.Mode == paperMode:
		list := make([]string, l.Hot) // ranks of Zipf are keys here
		for i := range list {
			list[i] = strconv.Itoa(i)
		}
		keys = strings.Join(list, ",")
	case l.Hot > 0:
		keys = fmt.Sprintf("hot:%d", l.Hot)
	}
	how := l.Mode
	if how == "" {
		how = "hard"
	}
	return rackFile + fmt.Sprintf("switch: {program: swordbox, rules: [{server: ms0, action: steer, steer: %s, mode: %s, keys: \"%s\"}]}\n", l.Steer, how, keys)
}

const paperMode = "paper"

// Result is what came out.
type Result struct {
	kv.Result
	// BytesPerOp is what the switch took in for each operation that was counted.
	BytesPerOp float64
	// Steering is what the switch counted; nil: it forwards only.
	Steering []mode.Counter
}

const (
	machines  = 7
	loadLimit = clock.Time(time.Second)
	readLimit = clock.Time(4 * time.Second)
	lease     = time.Minute // nobody renews it in the middle
	// defaultWarm and defaultRun are bounded from above by PublishedPool: at 6.5 million writes a second it lasts for 50 ms.
	defaultWarm = 20 * time.Millisecond
	defaultRun  = 5 * time.Millisecond
	patience    = 10 * time.Millisecond // in mode paper a chain may lead in a circle
)

var rackFile = fmt.Sprintf(`
name: storeload
hosts:
  - {name: md0, role: metadata}
  - {name: ms0, role: memory}
  - {name: "cn[0-%d]", role: compute}
`, machines-1)

// run is an experiment in progress.
type run struct {
	Load
	rack  *simrack.Rack
	cfg   kv.RunConfig
	total kv.Result
	first *clover.Client // who has read all keys
	bytes uint64         // that the switch took in while operations were counted
}

// Measure runs the experiment with model m.
func (l Load) Measure(m *cost.Model) (Result, error) {
	if l.Keys == 0 {
		l.Keys = 1024
	}
	if l.Value == 0 {
		l.Value = 104
	}
	if l.Warm == 0 {
		l.Warm = defaultWarm
	}
	if l.Run == 0 {
		l.Run = defaultRun
	}
	if l.Pool == 0 {
		l.Pool = PublishedPool
	}
	s, err := spec.Parse([]byte(l.rackOf()))
	if err != nil {
		return Result{}, err
	}
	r := &run{Load: l}
	r.cfg = kv.RunConfig{
		Workload: kv.Workload{Read: 1 - l.Writes/100, Update: l.Writes / 100}, Keys: l.Keys, Value: l.Value, Zipf: l.Zipf,
		Clients: l.Clients, Warmup: l.Warm, Duration: l.Run, Patience: patience, Verify: true,
	}
	if r.rack, err = simrack.New(s, simrack.Options{Seed: l.Seed, Cost: m, Datagrams: l.steers(), Nodes: max(l.Pool, minNodes)}); err != nil {
		return Result{}, err
	}
	defer r.rack.Close()
	r.serve()
	r.start()
	count := func() (n uint64) {
		for i := range r.rack.Hosts() {
			n += r.rack.Switch().Port(i).RxBytes
		}
		return n
	}
	r.rack.At(readLimit.Add(l.Warm), func() { r.bytes = count() })
	r.rack.At(readLimit.Add(l.Warm+l.Run), func() { r.bytes = count() - r.bytes })
	if err := r.rack.Run(); err != nil {
		return Result{}, err
	}
	out := Result{Result: r.total}
	out.Span = l.Run
	if box, ok := r.rack.Program().(*serialize.Program); ok {
		for _, g := range box.Counters(r.rack.Now()) {
			if strings.HasPrefix(g.Name, "steer") && slices.ContainsFunc(g.Counters, func(c mode.Counter) bool { return c.Value > 0 }) {
				out.Steering = g.Counters
			}
		}
	}
	if n := out.Total(); n > 0 {
		out.BytesPerOp = float64(r.bytes) / float64(n)
	}
	return out, nil
}

// nodes128 gives all memory to nodes of 128 bytes.
var nodes128 = [layout.Classes]int{1}

// region is the memory of the server in bytes.
func (r *run) region() int {
	s := layout.Space{Servers: 1, Shortcuts: int(2 * r.Keys), Entries: layout.Counts{0: r.Pool}}
	return s.RegionLen()
}

func (r *run) serve() {
	ms, md := r.rack.Host("ms0"), r.rack.Host("md0")
	ms.Go("memory", true, func(ctx verbs.Context) {
		s, err := perf.NewServer(ctx, ms.Manager(ctx), perf.ServerConfig{Service: perf.MemoryService, Passive: true, Region: r.region()})
		if err == nil {
			err = s.Serve()
		}
		r.rack.Stop(err)
	})
	md.Go("meta", true, func(ctx verbs.Context) {
		s, err := meta.New(meta.Config{
			Context: ctx, Manager: md.Manager(ctx), Servers: []netip.Addr{ms.Addr()}, Format: layout.Sound, Keys: int(2 * r.Keys), Lease: lease,
			Shares: nodes128,
		})
		if err == nil {
			err = s.Serve()
		}
		r.rack.Stop(err)
	})
}

// start starts the clients, each as an application of its own, or those that share queue pairs as threads of one.
func (r *run) start() {
	for i := range r.Clients {
		if r.Share > 1 {
			break
		}
		h := r.rack.Host(fmt.Sprintf("cn%d", i%machines))
		h.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) {
			r.rack.Stop(r.client(ctx.Runtime(), i, func() (*clover.Client, error) { return clover.Open(r.config(h, ctx), loadLimit) }))
		})
	}
	for m := range machines {
		for first := m; r.Share > 1 && first < r.Clients; first += machines * r.Share {
			h := r.rack.Host(fmt.Sprintf("cn%d", m))
			h.Go(fmt.Sprintf("group%d", first), false, func(ctx verbs.Context) { r.rack.Stop(r.group(h, ctx, first)) })
		}
	}
}

// group runs the clients of a machine from first on that share a queue pair.
func (r *run) group(h *simrack.Host, ctx verbs.Context, first int) error {
	g, err := clover.NewGroup(r.config(h, ctx), r.Share)
	if err != nil {
		return err
	}
	rt := ctx.Runtime()
	for k := range r.Share {
		if id := first + k*machines; id < r.Clients {
			rt.Go(fmt.Sprintf("client%d", id), func() {
				r.rack.Stop(r.client(rt, id, func() (*clover.Client, error) { return g.Open(loadLimit) }))
			})
		}
	}
	rt.Wait()
	return g.Close()
}

func (r *run) config(h *simrack.Host, ctx verbs.Context) clover.Config {
	return clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: r.rack.Host("md0").Addr(), MaxValue: r.Value, Records: 1}
}

// client loads its part of the keys, waits until all others have done the same, and works.
func (r *run) client(rt verbs.Runtime, id int, open func() (*clover.Client, error)) error {
	c, err := open()
	if err != nil {
		return err
	}
	cfg := r.cfg
	cfg.Client = id
	load := cfg
	load.Patience = time.Second // all clients connect at once
	if err := kv.Load(c, rt, load); err != nil {
		return err
	}
	if rt.Now() >= loadLimit {
		return fmt.Errorf("client %d has loaded its keys at %v, after %v", id, rt.Now(), loadLimit)
	}
	rt.Sleep(loadLimit.Sub(rt.Now()))
	if id == 0 { // a client at work for a while has met every key
		for key := range r.Keys {
			if _, err := c.Get(key, nil, readLimit); err != nil {
				return err
			}
		}
		r.first = c
	}
	if rt.Now() >= readLimit {
		return fmt.Errorf("client %d has read all keys at %v, after %v", id, rt.Now(), readLimit)
	}
	rt.Sleep(readLimit.Sub(rt.Now()))
	if id != 0 {
		c.Learn(r.first)
	}
	res, err := kv.Run(c, rt, cfg, nil)
	if err == nil {
		r.total.Merge(res)
	}
	return errors.Join(err, c.Close())
}
