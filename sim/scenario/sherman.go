package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// treeRun is one run of the scenario sherman: clients of the tree Sherman use a few keys while
// links and machines fail. Afterwards one order of all operations on each key, scans included, must
// explain the answers that the clients received, and the tree must be intact.
type treeRun struct {
	env      *env
	plan     *treePlan
	history  *kv.History
	keys     []uint64
	memory   map[string][]byte // by name of the server: its memory
	nodes    []*sherman.Node   // by number of the compute host: its node of Sherman
	trigger  *treeTrigger
	ready    bool                  // the tree was formatted
	down     map[string]clock.Time // for each victim the time until which it is down; "" is the switch
	injected int                   // number of faults injected so far
	absent   map[uint64]bool       // keys for which the last client found no room
	lost     bool                  // a server's memory was lost
	tally
	longest time.Duration
	final   *check.Report
	plant   func(kv.Scanner) kv.Scanner // for tests: wraps each client of the tree in one with a bug
}

// treePatience is the time from the beginning of an operation to its deadline. It is longer than
// any fault, and longer than the lease of any run, except a run of publishedCalm, whose lease is
// treePatience.
const treePatience = 2 * time.Second

// slack is how long after its deadline an operation may end: treeSlack, and the time for which
// hosts hang, because a client that hangs does not notice its deadline.
func (r *treeRun) slack() time.Duration {
	slack := treeSlack
	for _, f := range r.plan.faults {
		if f.what == treeHostHang {
			slack += f.down
		}
	}
	return slack
}

// treeSlack is how long after its deadline an operation may still take, because its client must
// find out whether it holds a lock.
const treeSlack = 200 * time.Millisecond

// runMixed makes one run of the scenario sherman with the mixes (named variations of the plan)
// whose names mixes lists. inSwitch: the switch, not the servers' NICs, executes the atomics on
// lock words. plant is treeRun.plant and may be nil.
func (p *treePlan) runMixed(e *env, mixes string, inSwitch bool, plant func(kv.Scanner) kv.Scanner) error {
	p.draw(e)
	p.blend(e, mixes)
	if inSwitch {
		p.inSwitch()
	}
	return (&treeRun{env: e, plan: p, plant: plant}).run()
}

// runPublished makes one run with the published layout. Damage is written into the report and
// is not a failure.
func (p *treePlan) runPublished(e *env) error {
	return e.asDamage(p.tornRun(e, layout.Published).run(), treeDamage)
}

// tornRun returns a run with a layout of this kind in which memory copies are torn, without other
// faults.
func (p *treePlan) tornRun(e *env, kind layout.Kind) *treeRun {
	p.draw(e)
	p.published(e.draw)
	p.shape.Kind = kind
	return &treeRun{env: e, plan: p}
}

// stepRun returns a run of step, one of the designs between FG+ (the baseline of Sherman's paper)
// and Sherman: with random faults, or with torn copies alone if torn is true.
func (p *treePlan) stepRun(e *env, step sherman.Step, torn bool) *treeRun {
	if torn {
		r := p.tornRun(e, step.Kind)
		r.plan.step = step
		return r
	}
	p.draw(e)
	p.blend(e, "")
	p.design(e.draw, step)
	return &treeRun{env: e, plan: p}
}

// treeDamage names the damage of torn copies that the error err of a run shows.
func treeDamage(err error) string {
	var structure *brokenTree
	switch {
	case errors.Is(err, kv.ErrValue):
		return "a value that no client wrote (record versions of 4 bits do not see a tear)"
	case errors.Is(err, kv.ErrScan):
		return "a scan out of order"
	case errors.As(err, &structure):
		return "the tree is broken"
	case errors.Is(err, kv.ErrLost), errors.Is(err, layout.ErrPage), errors.Is(err, sherman.ErrBroken):
		return "a client followed a reference that leads to no page"
	}
	return "answers that no order explains (lost searches, stale or torn reads)"
}

// run makes the run that the plan describes, and judges it.
func (r *treeRun) run() error {
	e, p := r.env, r.plan
	r.history, r.memory = kv.NewHistory(), make(map[string][]byte)
	r.absent, r.down = make(map[uint64]bool), make(map[string]clock.Time)
	for i := range p.keys {
		if p.first == layout.MaxKey { // the first key is the largest one, so the others lie below it
			r.keys = append(r.keys, p.first-uint64(i)*p.stride)
			continue
		}
		r.keys = append(r.keys, uint64(i)*p.stride+p.first)
	}
	e.report.Plan = p.String()
	r.arm()
	if err := e.build(passiveRack(p.servers, computeHosts)+p.box, p.rack); err != nil {
		return err
	}
	e.setFaults(p.rules)
	for i := range p.servers {
		r.serve(fmt.Sprintf("ms%d", i))
	}
	for range computeHosts {
		n, err := sherman.NewNode(r.nodeConfig())
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
	}
	r.format()
	for i := range p.clients {
		r.start(i)
	}
	return e.complete(r, nil)
}

func (r *treeRun) nodeConfig() sherman.NodeConfig {
	p := r.plan
	return p.step.Node(sherman.NodeConfig{
		Servers: r.env.addrsOf(memoryServers(r.plan.servers)), CacheBytes: p.cache, HandOver: p.handOver, Lease: p.lease, BackOff: p.backOff, LostSearch: p.lostSearch,
	})
}

// serve starts the memory service of a host. The memory survives a crash of the host, except in the
// fault treeMemoryCrash.
func (r *treeRun) serve(name string) {
	if r.memory[name] == nil {
		r.memory[name] = make([]byte, r.plan.region)
	}
	var begun func(*memservice.Server)
	if r.plan.box != "" {
		begun = func(s *memservice.Server) { r.rules(name, s.Locks()) }
	}
	r.env.serveMemory(name, memservice.Config{Buffer: r.memory[name], Locks: 8 * r.plan.locks}, begun)
}

func (r *treeRun) config(h *simrack.Host, ctx verbs.Context) sherman.Config {
	return sherman.Config{Context: ctx, Manager: h.Manager(ctx), Params: r.plan.params}
}

// format makes a client on the first compute host format the tree.
func (r *treeRun) format() {
	h := r.env.rack.Host("cn0")
	r.env.client("cn0", "format", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		_, err := sherman.Format(r.config(h, ctx), r.env.addrsOf(memoryServers(r.plan.servers)), sherman.FormatConfig{
			Shape: r.plan.shape, Locks: r.plan.locks, Chunk: layout.MinChunk, Generation: r.env.seed<<8 | 1,
			PageLocks: r.plan.step.PageLocks,
		}, rt.Now().Add(20*treePatience))
		r.ready = err == nil
		return err
	})
}

// start runs client number id on one of the compute hosts.
func (r *treeRun) start(id int) {
	host := id % computeHosts
	h := r.env.rack.Host(fmt.Sprintf("cn%d", host))
	d := newDraw(r.env.draw.Uint64())
	r.env.client(h.Spec.Name, fmt.Sprintf("tree-%d", id), func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		for !r.ready {
			rt.Sleep(50 * time.Microsecond)
		}
		c, err := r.nodes[host].Open(r.config(h, ctx), rt.Now().Add(20*treePatience))
		if r.lost && (errors.Is(err, kv.ErrLost) || errors.Is(err, layout.ErrSuperblock)) {
			return nil
		}
		if err != nil {
			return err
		}
		t := kv.Scanner(c)
		if r.plant != nil {
			t = r.plant(c)
		}
		s := kv.Record(t, r.history, id, rt.Now)
		for range r.plan.rounds {
			if err := r.round(s, d, rt); err != nil {
				return errors.Join(fmt.Errorf("client %d on %s: %w", id, h.Spec.Name, err), c.Close())
			}
		}
		return errors.Join(s.Err(), c.Close())
	})
}

// round does one random operation on the tree; a put of a key that is absent is followed by an
// insert.
func (r *treeRun) round(s *kv.Recorded, d *draw, rt verbs.Runtime) error {
	p := r.plan
	key := r.keys[d.IntN(len(r.keys))]
	if d.chance(p.skew) {
		key = r.keys[0]
	}
	if p.pace > 0 {
		rt.Sleep(d.span(0, 2*p.pace))
	}
	began, mix := rt.Now(), p.mix
	if p.small {
		key, mix = r.wave(d, began)
	}
	deadline := began.Add(treePatience)
	value := func() []byte { return s.Value(key, d.between(kv.MinValue, p.shape.Value)) }
	if p.shape.Kind != layout.Hardened {
		// Only a hardened page stores the length of a value; in the others all values have the full
		// size.
		value = func() []byte { return s.Value(key, p.shape.Value) }
	}
	var err error
	switch x := d.Float64(); {
	case x < mix[0]:
		_, err = s.Get(key, nil, deadline)
	case x < mix[1]:
		err = s.Put(key, value(), deadline)
		if errors.Is(err, kv.ErrNotFound) {
			err = s.Insert(key, value(), deadline)
		}
	case x < mix[2]:
		err = s.Insert(key, value(), deadline)
	case x < mix[3]:
		err = s.Scan(r.keys, key, d.between(1, len(r.keys)), deadline)
	default:
		err = s.Delete(key, deadline)
	}
	r.longest = max(r.longest, rt.Now().Sub(began))
	return cmp.Or(r.count(err, r.lost, p.small), s.Err())
}

// wave draws a key and the shares of operations for plans with little memory: for 600 µs all
// clients insert keys that are near each other, and then for 600 µs they delete most of them.
func (r *treeRun) wave(d *draw, now clock.Time) (key uint64, mix [4]float64) {
	const length = 600 * time.Microsecond
	n := int(now / clock.Time(length))
	key, mix = r.keys[(n/2*r.plan.near+d.IntN(r.plan.near))%len(r.keys)], [4]float64{0.15, 0.2, 0.93, 0.95}
	if n%2 == 1 {
		mix = [4]float64{0.15, 0.2, 0.25, 0.3}
	}
	return key, mix
}
