package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// publishedPool is how many nodes of 128 bytes the published system has room for on a memory
// server.
const publishedPool = 335360

// minNodes is the number of nodes for which the switch's tables have room if the load's pool is
// smaller.
const minNodes = 1 << 16

// cloverRack returns the rack file: seven compute hosts, a metadata server and l.Servers memory
// servers (one in the SwordBox paper, §6). A switch that steers has a rule for each memory server.
func cloverRack(l *experiment.Clover) string {
	s := &l.Switch
	file, how := fmt.Sprintf(rackFile, l.Servers-1, machines-1)+bulkHosts(l.Bulk, l.Servers), mode(s)
	if how == "" {
		return file
	}
	registers := ""
	if how == experiment.Published {
		registers = fmt.Sprintf(", registers: %d", rules.MaxRegisters) // one tail for each key, so that hole 46 does no damage
	}
	list := make([]string, l.Servers)
	for i := range list {
		list[i] = fmt.Sprintf("{server: ms%d, action: steer, steer: %s, mode: %s, keys: \"%s\"%s}", i, s.Steer, how, s.Keys(), registers)
	}
	return file + fmt.Sprintf("switch: {program: swordbox, rules: [%s]}\n", strings.Join(list, ", "))
}

const (
	machines = 7 // compute hosts
	// loadLimit is the virtual time by which all keys are loaded, readLimit that by which all
	// clients know where the keys are.
	loadLimit = clock.Time(time.Second)
	readLimit = clock.Time(4 * time.Second)
	lease     = time.Minute // longer than a run, so that no lease is renewed in it
	// storePatience is the patience of the authors' clients. It ends operations on a key whose chain
	// the published program has linked into a circle: these never succeed.
	storePatience = time.Second
)

const rackFile = `
name: storeload
hosts:
  - {name: md0, role: metadata}
  - {name: "ms[0-%d]", role: memory}
  - {name: "cn[0-%d]", role: compute}
`

// cloverRun is one load of clients of Clover in progress.
type cloverRun struct {
	workload
	load  experiment.Clover
	first *clover.Client // the client that has read all keys
	// caches has the location cache of each machine. The clients of a machine share it.
	caches map[string]*clover.Cache
	model  *cost.Model
	// meta is the metadata server. calls and walked are valid after the run (see count): how many
	// requests came to this server, and how many headers of nodes it read, while operations were
	// counted.
	meta          *meta.Server
	calls, walked uint64
	nodes         experiment.Nodes
	absorbed      uint64 // by the switch, likewise
}

func (p *Sim) Clover(ctx context.Context, l experiment.Clover) (experiment.StoreResult, error) {
	l.Keys, l.Value, l.Pool, l.Seed = cmp.Or(l.Keys, 1024), cmp.Or(l.Value, 104), cmp.Or(l.Pool, publishedPool), cmp.Or(l.Seed, 1)
	l.Warm, l.Run, l.Servers = cmp.Or(l.Warm, experiment.DefaultWarm), cmp.Or(l.Run, experiment.DefaultRun), max(l.Servers, l.Start.Replicas, 1)
	if _, ok := layout.ClassOf(l.Value + layout.Hardened.Overhead()); !ok || l.Value < 0 {
		return experiment.StoreResult{}, fmt.Errorf("no node holds a value of %d bytes", l.Value)
	}
	model := p.choose(&l)
	r := &cloverRun{load: l, model: model}
	if l.Undo&experiment.OwnCaches == 0 {
		r.caches = make(map[string]*clover.Cache)
	}
	r.cfg = kv.RunConfig{
		Workload: kv.Workload{Read: 1 - l.Writes/100, Update: l.Writes / 100}, Keys: l.Keys, Value: l.Value, Zipf: l.Zipf,
		Clients: l.Clients, Warmup: l.Warm, Duration: l.Run, Patience: patience(&l), Verify: true,
	}
	var err error
	r.rack, err = newRackWith(ctx, cloverRack(&l), simrack.Options{
		Seed: l.Seed, Cost: model, Datagrams: mode(&l.Switch) != "", Nodes: max(l.Pool, minNodes), MaxEvents: mostEvents(l.Warm + l.Run),
	}, l.Bulk)
	if err != nil {
		return experiment.StoreResult{}, err
	}
	defer r.rack.Close()
	r.serve()
	r.bulk(l.Bulk, l.Servers, readLimit)
	r.start()
	r.rack.At(readLimit.Add(l.Warm), r.count)
	r.countFree(readLimit.Add(l.Warm))
	r.rack.At(readLimit.Add(l.Warm+l.Run), r.count)
	out, err := r.measure(ctx, readLimit)
	out.MetaCalls, out.MetaHeaders = float64(r.calls)/l.Run.Seconds(), float64(r.walked)/l.Run.Seconds()
	out.Nodes, out.Absorbed = &r.nodes, &r.absorbed
	return out, err
}

// count is called at the beginning and at the end of the time in which operations are counted.
// After the second call of count, the fields calls and walked have the increase of the metadata
// server's counters since the first one, and nodes has what became of the nodes since then.
func (r *cloverRun) count() {
	if r.meta != nil {
		st := r.meta.Snapshot()
		r.calls, r.walked = st.Requests-r.calls, st.Walked-r.walked
		n := &r.nodes
		n.All, n.Taken, n.Freed = st.Nodes, st.Granted-n.Taken, st.Freed-n.Freed
	}
	r.absorbed = r.rack.Counters("steer")["appends_absorbed"] - r.absorbed
}

// freeSamples is how often the free nodes are counted in each half of the time in which operations
// are counted.
const freeSamples = 32

// countFree calculates the mean number of free nodes in each half of the time.
func (r *cloverRun) countFree(begin clock.Time) {
	var sums [2]uint64
	for i := range 2 * freeSamples {
		r.rack.At(begin.Add(r.load.Run*time.Duration(i)/(2*freeSamples)), func() {
			if r.meta != nil {
				sums[i/freeSamples] += r.meta.Snapshot().Free
				r.nodes.FreeFirst, r.nodes.FreeSecond = sums[0]/freeSamples, sums[1]/freeSamples
			}
		})
	}
}

// class returns the smallest size class of nodes that have room for the load's values.
func (r *cloverRun) class() layout.Class {
	c, _ := layout.ClassOf(r.load.Value + layout.Hardened.Overhead())
	return c
}

// shares says how the metadata server divides memory among the size classes of nodes: the class
// that the load uses has all.
func (r *cloverRun) shares() (s [layout.Classes]int) {
	s[r.class()] = 1
	return s
}

// region returns how many bytes each memory server registers.
func (r *cloverRun) region() int {
	s := layout.Space{Servers: r.load.Servers, Shortcuts: int(2 * r.load.Keys), Backups: max(0, r.load.Start.Replicas-1)}
	s.Entries[r.class()] = r.load.Pool
	return s.RegionLen()
}

func serveMemory(rack *simrack.Rack, i int, cfg memservice.Config) netip.Addr {
	h := rack.Host(fmt.Sprintf("ms%d", i))
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), cfg)
		if err == nil {
			err = s.Serve()
		}
		rack.Stop(err)
	})
	return h.Addr()
}

func (r *cloverRun) serve() {
	md := r.rack.Host("md0")
	var servers []netip.Addr
	for i := range r.load.Servers {
		servers = append(servers, serveMemory(r.rack, i, memservice.Config{Region: r.region()}))
	}
	md.Go("meta", true, func(ctx verbs.Context) {
		s, err := meta.New(meta.Config{
			Context: ctx, Manager: md.Manager(ctx), Servers: servers, Format: layout.Hardened, Keys: int(2 * r.load.Keys), Lease: lease,
			Shares: r.shares(), Replicas: r.load.Start.Replicas, Balance: r.load.Start.Balance, Pace: r.pace(ctx.Runtime()),
			OneVersion: mode(&r.load.Switch) == experiment.Published,
		})
		if r.meta = s; err == nil {
			err = s.Serve()
		}
		r.rack.Stop(err)
	})
}

// start starts the clients. Each is an application; clients that share queue pairs or report
// together are threads of one application.
func (r *cloverRun) start() {
	per := r.load.Share
	if per < 2 && r.load.Merge {
		per = (r.load.Clients + machines - 1) / machines
	}
	if per < 2 {
		startClients(r.rack, r.load.Clients, machines, func(h *simrack.Host, ctx verbs.Context, id int) error {
			return r.client(ctx.Runtime(), id, func() (*clover.Client, error) { return clover.Open(r.config(h, ctx), loadLimit) })
		})
		return
	}
	for m := range machines {
		for first := m; first < r.load.Clients; first += machines * per {
			start(r.rack, fmt.Sprintf("cn%d", m), fmt.Sprintf("group%d", first), func(h *simrack.Host, ctx verbs.Context) error {
				return r.group(h, ctx, first, per)
			})
		}
	}
}

// group runs up to `per` clients of a machine that are one application; `first` is the number of
// the first of them.
func (r *cloverRun) group(h *simrack.Host, ctx verbs.Context, first, per int) (err error) {
	cfg := r.config(h, ctx)
	if r.load.Merge {
		cfg.Reporter = clover.NewReporter(cfg)
		defer func() { err = errors.Join(err, cfg.Reporter.Close()) }()
	}
	open := func() (*clover.Client, error) { return clover.Open(cfg, loadLimit) }
	if r.load.Share > 1 {
		var g *clover.Group
		if g, err = clover.NewGroup(cfg, per); err != nil {
			return err
		}
		open = func() (*clover.Client, error) { return g.Open(loadLimit) }
		defer func() { err = errors.Join(err, g.Close()) }()
	}
	rt := ctx.Runtime()
	for k := range per {
		if id := first + k*machines; id < r.load.Clients {
			rt.Go(fmt.Sprintf("client%d", id), func() { r.rack.Stop(r.client(rt, id, open)) })
		}
	}
	rt.Wait()
	return nil
}

func (r *cloverRun) config(h *simrack.Host, ctx verbs.Context) clover.Config {
	cfg := clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: r.rack.Host("md0").Addr(), MaxValue: r.load.Value}
	cfg.PublishedShortcuts = r.load.Undo&experiment.OldShortcuts != 0
	if name := h.Spec.Name; r.caches != nil {
		if r.caches[name] == nil {
			r.caches[name] = clover.NewCache(0)
		}
		cfg.Cache = r.caches[name]
	}
	return cfg
}

// mostEvents bounds the events of a load that lasts for d: a bound of the time and not of the run, so that
// a load may be measured for seconds. 400 steered clients make more than a billion events a second.
func mostEvents(d time.Duration) uint64 {
	const before, rate = 1_000_000_000, 10_000_000_000 // before d: while keys are loaded
	return before + uint64(rate*d.Seconds())
}

// program is a store whose GETs and PUTs also take the time that the client's program needs for
// them: get and put.
type program struct {
	kv.Store
	rt       verbs.Runtime
	get, put time.Duration
}

func (s *program) Timeline() *kv.Timeline { return kv.TimelineOf(s.Store) }

func (s *program) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	s.rt.Sleep(s.get)
	return s.Store.Get(key, dst, deadline)
}

func (s *program) Put(key uint64, value []byte, deadline clock.Time) error {
	s.rt.Sleep(s.put)
	return s.Store.Put(key, value, deadline)
}

// client prepares a client and executes the workload.
func (r *cloverRun) client(rt verbs.Runtime, id int, open func() (*clover.Client, error)) error {
	c, err := open()
	if err != nil {
		return err
	}
	if err := prepare(&r.workload, c, &r.first, rt, id, loadLimit, readLimit); err != nil {
		return err
	}
	return errors.Join(r.work(&program{c, rt, r.model.Client.Get, r.model.Client.Put}, rt, id), c.Close())
}
