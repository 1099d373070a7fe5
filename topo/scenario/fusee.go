package scenario

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// tableRun is one run of histories of FUSEE's hash table: clients use a few keys, whose slots are in
// few buckets, while links lose, double and delay packets and copies are torn. Afterwards one order of
// all operations on each key must explain the answers, and the replicas of the index must be alike.
// Clients die in some runs (see tableDeath), and others take them for dead that are only slow. No
// memory server fails: the store has no master yet. When all clients have ended or died, one more client
// recovers what they have left: then no block has an owner, and no change of a slot is open.
type tableRun struct {
	env     *env
	plan    *tablePlan
	history *kv.History
	memory  [][]byte // of the servers
	super   layout.Superblock
	unknown int
	full    int // operations that found no empty slot, or no memory
	retries int
	plant   func(kv.Store) kv.Store // for tests: wraps each client in one with a bug
	gone    map[int]bool            // clients that have ended or died
}

// tablePlan is what a seed draws.
type tablePlan struct {
	servers, clients, rounds, keys int
	format                         fusee.FormatConfig
	skew                           float64
	// mix are the upper bounds of get, put and insert in a draw from 0 to 1; the rest deletes.
	mix    [3]float64
	value  int // the longest value
	cache  int
	links  string
	rules  []fault.Rule
	rack   simrack.Options
	params rdmacm.Params
	lease  time.Duration
	deaths []tableDeath
}

// tableHosts is how many compute hosts the rack has, tableMemory how many bytes a server has.
const (
	tableHosts  = 4
	tableMemory = 1 << 20
)

// tablePatience is the deadline of one operation, tableSlack how much later it may end.
const (
	tablePatience = 2 * time.Second
	tableSlack    = 1200 * time.Millisecond
)

func drawTable(e *env) *tablePlan {
	d := e.draw
	p := &tablePlan{
		servers: d.between(1, 3), clients: d.between(2, 10), rounds: d.between(10, 50), keys: one(d, 1, 2, 4, 8, 14),
		skew: one(d, 0.0, 0.3, 0.7), value: one(d, 16, 200, 600, 3000), cache: one(d, 0, 0, -1, 2),
	}
	p.mix = one(d, [3]float64{0.4, 0.7, 0.9}, [3]float64{0.2, 0.3, 0.65}, [3]float64{0.1, 0.9, 0.95}, [3]float64{0.3, 0.4, 0.7})
	p.format = fusee.FormatConfig{
		Replicas: d.between(1, p.servers), IndexReplicas: d.between(1, p.servers), Depth: d.between(0, 2), Groups: d.between(1, 3),
		Block: one(d, 16<<10, 32<<10), Generation: e.seed<<8 | 1,
	}
	hosts := tableHostNames(p.servers)
	p.links, p.rules = drawLinks(d, hosts)
	for _, h := range hosts[:p.servers] {
		if d.chance(0.6) {
			p.rules = append(p.rules, fault.Rule{Link: h, Kind: fault.Tear, Probability: 0.05 + d.Float64()*0.5, Delay: d.span(0, 20*time.Microsecond)})
			p.links += "tear:" + h + " "
		}
	}
	p.rack = simrack.Options{Delay: d.span(200*time.Nanosecond, 5*time.Microsecond), Window: one(d, 4, 16, 64), Datagrams: d.chance(0.3)}
	e.v6 = d.chance(0.2)
	p.params = rdmacm.Params{PathMTU: one(d, verbs.MTU256, verbs.MTU1024), Timeout: uint8(d.between(6, 8)), RdAtomic: one(d, 2, 16)}
	if d.chance(0.2) {
		p.belated(d)
	}
	p.drawDeaths(newDraw(e.seed ^ deathLane))
	return p
}

// belated delays packets by milliseconds, until their connections have been given up.
func (p *tablePlan) belated(d *draw) {
	p.links, p.rules = p.links+"late ", slices.DeleteFunc(p.rules, func(r fault.Rule) bool { return r.Kind != fault.Tear })
	for _, h := range tableHostNames(p.servers) {
		for _, k := range []fault.Kind{fault.Reorder, fault.Duplicate} {
			p.rules = append(p.rules, fault.Rule{Link: h, Kind: k, Probability: 0.02, Delay: d.span(time.Millisecond, 15*time.Millisecond)})
		}
	}
	p.params.RetryCount = uint8(d.between(1, 3))
}

func tableHostNames(servers int) (out []string) {
	for i := range servers {
		out = append(out, fmt.Sprintf("ms%d", i))
	}
	for i := range tableHosts {
		out = append(out, fmt.Sprintf("cn%d", i))
	}
	return out
}

// String is the plan on one line.
func (p *tablePlan) String() string {
	f := &p.format
	text := fmt.Sprintf("%d servers, %d replicas of objects, %d of the index, %d clients, %d keys, %d rounds, values to %d bytes, depth %d, %d groups, cache %d; links %s",
		p.servers, f.Replicas, f.IndexReplicas, p.clients, p.keys, p.rounds, p.value, f.Depth, f.Groups, p.cache, strings.TrimSpace(p.links))
	for _, x := range p.deaths {
		text += "; " + x.String()
	}
	return text
}

func runTable(e *env) error { return (&tableRun{env: e, plan: drawTable(e)}).run() }

func (r *tableRun) run() error {
	e, p := r.env, r.plan
	r.history, r.gone = kv.NewHistory(), make(map[int]bool)
	e.report.Plan = p.String()
	r.arm()
	rack := fmt.Sprintf("name: sim\nhosts:\n  - {name: \"ms[0-%d]\", role: memory}\n  - {name: \"cn[0-%d]\", role: compute}\n", p.servers-1, tableHosts+maxDeaths-1)
	if err := e.build(rack, p.rack); err != nil {
		return err
	}
	for _, h := range e.rack.Hosts() {
		h.SetFaults(slices.DeleteFunc(slices.Clone(p.rules), func(f fault.Rule) bool { return f.Link != h.Spec.Name }))
	}
	for i := range p.servers {
		r.serve(i)
	}
	e.client("cn0", "format", func(ctx verbs.Context) (err error) {
		r.super, err = fusee.Format(r.config(e.rack.Host("cn0"), ctx), p.format, ctx.Runtime().Now().Add(20*tablePatience))
		return err
	})
	for i := range p.clients {
		r.start(i)
	}
	r.bury()
	if err := e.run(); err != nil {
		return err
	}
	return r.judge()
}

// serve starts the memory service of a host.
func (r *tableRun) serve(i int) {
	r.memory = append(r.memory, make([]byte, tableMemory))
	h := r.env.rack.Host(fmt.Sprintf("ms%d", i))
	h.Go("memory", true, func(ctx verbs.Context) {
		s, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Buffer: r.memory[i]})
		if err == nil {
			err = s.Serve()
		}
		if err != nil && !errors.Is(err, verbs.ErrClosed) {
			r.env.fail("memory service of %s: %w", h.Spec.Name, err)
		}
	})
}

// config is the configuration of a client on a host.
func (r *tableRun) config(h *simrack.Host, ctx verbs.Context) fusee.Config {
	var servers []netip.Addr
	for i := range r.plan.servers {
		servers = append(servers, r.env.addrOf(fmt.Sprintf("ms%d", i)))
	}
	return fusee.Config{Context: ctx, Manager: h.Manager(ctx), Servers: servers, Params: r.plan.params, Cache: r.plan.cache, Lease: r.plan.lease}
}

// start runs a client on one of the compute hosts.
func (r *tableRun) start(id int) {
	h := r.env.rack.Host(r.plan.hostOf(id))
	d := newDraw(r.env.draw.Uint64())
	r.env.client(h.Spec.Name, fmt.Sprintf("table-%d", id), func(ctx verbs.Context) error {
		defer func() { r.gone[id] = true }()
		rt := ctx.Runtime()
		for r.super.Generation == 0 {
			rt.Sleep(50 * time.Microsecond)
		}
		c, err := fusee.Open(r.config(h, ctx), rt.Now().Add(20*tablePatience))
		if err != nil {
			return err
		}
		t := kv.Store(c)
		if r.plant != nil {
			t = r.plant(c)
		}
		s := kv.Record(t, r.history, id, rt.Now)
		for range r.plan.rounds {
			if err := r.round(s, d, rt); err != nil {
				return errors.Join(fmt.Errorf("client %d on %s: %w", id, h.Spec.Name, err), c.Close())
			}
			r.retries += c.Last().Retries
		}
		return errors.Join(s.Err(), c.Close())
	})
}

// round makes one operation.
func (r *tableRun) round(s *kv.Recorded, d *draw, rt verbs.Runtime) error {
	p := r.plan
	key := uint64(d.IntN(p.keys))
	if d.chance(p.skew) {
		key = 0
	}
	began := rt.Now()
	deadline := began.Add(tablePatience)
	value := func() []byte { return s.Value(key, d.between(kv.MinValue, p.value)) }
	var err error
	switch x := d.Float64(); {
	case x < p.mix[0]:
		_, err = s.Get(key, nil, deadline)
	case x < p.mix[1]:
		err = s.Put(key, value(), deadline)
	case x < p.mix[2]:
		err = s.Insert(key, value(), deadline)
	default:
		err = s.Delete(key, deadline)
	}
	if took := rt.Now().Sub(began); took > tablePatience+tableSlack {
		return fmt.Errorf("an operation on key %d took %v: %w", key, took, err)
	}
	switch {
	case errors.Is(err, kv.ErrTimeout):
		r.unknown++
		return s.Err()
	case errors.Is(err, kv.ErrFull):
		r.full++
		return s.Err()
	case err == nil, errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrExists):
		return s.Err()
	}
	return err
}

// judge checks the run.
func (r *tableRun) judge() error {
	r.env.note("%d operations, %d without an answer, %d repeated, %d found no room", r.history.Len(), r.unknown, r.retries, r.full)
	if err := r.history.Check(kv.MostStates); err != nil {
		return err
	}
	return r.alike()
}

// alike checks that the replicas of the index are alike, and that each slot names a whole object that
// is valid, in all replicas.
func (r *tableRun) alike() error {
	out, err := fusee.Audit(r.super, func(server int, off uint64, n int) ([]byte, error) {
		return r.memory[server][off:][:n], nil
	})
	switch {
	case err != nil:
		return err
	case len(out.Defects) > 0:
		return errors.New(strings.Join(out.Defects, "\n"))
	case len(out.Owners) > 0:
		return fmt.Errorf("clients that are gone own blocks: %v", out.Owners)
	case out.Unfinished > 0:
		return fmt.Errorf("%d slots have changes that no client has finished", out.Unfinished)
	}
	return nil
}
