package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// storeRun is one run of the scenario clover: clients of the store Clover use a few keys while
// links and machines fail. Afterwards one order of all operations on each key must explain the
// answers that the clients received. Each node must be free, held by a client or in a chain.
type storeRun struct {
	env      *env
	plan     *storePlan
	history  *kv.History
	server   *meta.Server
	ops      int  // operations that all clients have begun
	injected bool // the first fault has begun
	ended    int  // clients that have done all their operations
	tally
	longest time.Duration // how long the longest operation took
	// down maps the name of a victim to the time until which it is down; "" stands for the switch.
	down map[string]clock.Time
	copyLosses
	serviceHang
	caches map[string]*clover.Cache // the location cache of each host, shared by the host's clients
	turns  map[string]*clover.Turns // for each host, the object by which the host's clients take turns
	// living are the clients that have done their operations and wait in linger for the others.
	// explained is true when linger is over: explain has compared the nodes of these clients with
	// the metadata server's count, or one of them waited too long, so that nothing is compared.
	living    []*clover.Client
	explained bool
	most      time.Duration // how long linger waits for the other clients; 0 means maxLinger
	// For tests: plant wraps the store of each client in one with a bug; dialer replaces the
	// connection manager by which the metadata server asks memory servers for fences.
	plant  func(kv.Store) kv.Store
	dialer func(rdmacm.Manager) rdmacm.Manager
}

// runMixed makes one run of the scenario clover, by the seed of e. storePlan.blend applies to
// its plan the mixes (named variations) that the text mixes lists. plant is storeRun.plant and may
// be nil.
func (p *storePlan) runMixed(e *env, mixes string, plant func(kv.Store) kv.Store) error {
	p.draw(e)
	p.blend(e, mixes, mixRules)
	return (&storeRun{env: e, plan: p, plant: plant}).run()
}

// run makes the run that the plan describes, and checks it.
func (r *storeRun) run() error {
	e := r.env
	r.history, r.down, r.crashed = kv.NewHistory(), make(map[string]clock.Time), make(map[int]uint64)
	r.caches, r.turns = make(map[string]*clover.Cache), make(map[string]*clover.Turns)
	e.report.Plan = r.plan.String()
	r.loseOne()
	if err := e.build(storeRack(r.plan.servers)+r.plan.box, r.plan.rack); err != nil {
		return err
	}
	e.setFaults(r.plan.rules)
	for _, ms := range memoryServers(r.plan.servers) {
		r.serveMemory(ms)
	}
	r.serveMeta()
	if r.plan.shared || r.plan.merged {
		r.startProcesses()
	} else {
		for i := range r.plan.clients {
			r.start(i)
		}
	}
	return e.complete(r, nil)
}

func (r *storeRun) serveMemory(name string) {
	r.env.serveMemory(name, memservice.Config{Region: r.plan.region * max(1, r.plan.replicas)}, nil)
}

// serveMeta starts the metadata server, and starts it again whenever it fails, for example because
// the memory servers cannot be reached yet.
func (r *storeRun) serveMeta() {
	h := r.env.rack.Host("md0")
	h.Go("meta", true, func(ctx verbs.Context) {
		cfg := meta.Config{
			Context: ctx, Manager: h.Manager(ctx), Format: r.plan.format, Keys: r.plan.slots, Params: r.plan.params,
			Replicas: r.plan.replicas, Balance: r.plan.balance,
			Lease: r.plan.lease, Grace: r.plan.lease, Shares: r.plan.shares, Threads: r.env.threads,
			Servers: r.env.addrsOf(memoryServers(r.plan.servers)),
		}
		if r.dialer != nil {
			cfg.Manager = r.dialer(cfg.Manager)
		}
		for {
			s, err := meta.New(cfg)
			if err == nil {
				r.server, r.metaDown = s, false
				err = s.Serve()
			}
			if err == nil || errors.Is(err, verbs.ErrClosed) {
				return
			}
			ctx.Runtime().Sleep(time.Millisecond)
		}
	})
}

// storePatience is the time from the beginning of an operation to its deadline. It is longer than
// any fault except a hang of a memory service, and than lease and grace together.
const storePatience = 2 * time.Second

// storeSlack is how long after its deadline an operation may still take, because it must end a
// connection before it returns.
const storeSlack = 100 * time.Millisecond

// start runs client number id on one of the compute hosts.
func (r *storeRun) start(id int) {
	h := r.env.rack.Host(fmt.Sprintf("cn%d", id%computeHosts))
	d := newDraw(r.env.draw.Uint64())
	r.env.client(h.Spec.Name, fmt.Sprintf("store-%d", id), func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		r.await(id, rt)
		c, err := clover.Open(r.config(h, ctx, d), rt.Now().Add(20*storePatience))
		if err != nil {
			return err
		}
		return r.work(c, id, d, rt)
	})
}

// cacheOf returns the location cache that the clients of a host share; nil means that each client
// has its own.
func (r *storeRun) cacheOf(host string, d *draw) *clover.Cache {
	if !r.plan.caches {
		return nil
	}
	if r.caches[host] == nil {
		r.caches[host] = clover.NewCache(d.between(1, 16))
	}
	return r.caches[host]
}

// turnsOf returns the object by which the clients of a host take turns to update a key; nil means
// that they do not take turns.
func (r *storeRun) turnsOf(host string) *clover.Turns {
	if !r.plan.turns {
		return nil
	}
	if r.turns[host] == nil {
		r.turns[host] = clover.NewTurns()
	}
	return r.turns[host]
}

// config returns the configuration of a client on a host, as the plan says.
func (r *storeRun) config(h *simrack.Host, ctx verbs.Context, d *draw) clover.Config {
	return clover.Config{
		Cache: r.cacheOf(h.Spec.Name, d), Context: ctx, Manager: h.Manager(ctx), Meta: r.env.addrOf("md0"), Params: r.plan.params, MaxValue: max(256, slices.Max(r.plan.sizes)),
		LazyShortcut: r.plan.lazy, Chase: r.plan.chase, Turns: r.turnsOf(h.Spec.Name), Spread: r.plan.spread,
		Batch: d.between(1, r.plan.batch), Records: d.between(1, 8), Cached: d.between(1, 8),
	}
}

// work does all operations of client number id, records them in the history, waits in linger for
// the other clients, and closes the client.
func (r *storeRun) work(c *clover.Client, id int, d *draw, rt verbs.Runtime) error {
	var store kv.Store = c
	if r.plant != nil {
		store = r.plant(c)
	}
	s := kv.Record(store, r.history, id, rt.Now)
	if !r.plan.has(storeMetaCrash) { // a metadata server that has crashed finds keys by their records alone, so the loss of any memory server may lose the key: Where stays nil
		s.Where = func() kv.Places { return 1 << c.Placed() }
	}
	for range r.plan.rounds {
		if err := r.round(s, d, rt); err != nil {
			return errors.Join(err, c.Close())
		}
	}
	r.ended++
	return errors.Join(s.Err(), r.linger(c, rt), c.Close())
}

// round counts an operation, and then does one at random; a put of a key that is absent or lost is
// followed by an insert. The plan names counts of begun operations of all clients: at plan.after round
// begins the first fault (unless loseOne begins it), and at other counts it changes the rules.
func (r *storeRun) round(s *kv.Recorded, d *draw, rt verbs.Runtime) error {
	if r.ops++; r.ops == r.plan.after && r.plan.what != storeNothing && r.plan.loses == 0 {
		r.env.rack.At(r.env.rack.Now(), r.inject)
	}
	r.changeRules()
	if r.plan.pace > 0 {
		rt.Sleep(d.span(0, 2*r.plan.pace))
	}
	key := r.plan.key(d)
	began := rt.Now()
	deadline := began.Add(storePatience)
	var err error
	switch x := d.Float64(); {
	case x < r.plan.mix[0]:
		_, err = s.Get(key, nil, deadline)
	case x < r.plan.mix[1]:
		err = s.Put(key, s.Value(key, r.plan.size(d)), deadline)
		if errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrLost) {
			err = s.Insert(key, s.Value(key, r.plan.size(d)), deadline)
		}
	case x < r.plan.mix[2]:
		err = s.Insert(key, s.Value(key, r.plan.size(d)), deadline)
	default:
		err = s.Delete(key, deadline)
	}
	r.longest = max(r.longest, rt.Now().Sub(began))
	if errors.Is(err, kv.ErrTimeout) {
		r.noteStarved(began, rt.Now())
	}
	return cmp.Or(r.count(err, r.injected, true), s.Err())
}

// inject injects the first fault, and schedules the further faults of the plan.
func (r *storeRun) inject() {
	r.injected = true
	at := r.env.rack.Now()
	r.cause(&r.plan.storeFaultAt)
	for i := range r.plan.then {
		s := &r.plan.then[i]
		at = at.Add(s.later)
		r.env.rack.At(at, func() { r.cause(s) })
	}
}

// cause injects the fault p and schedules its end. If the victim is still down from an earlier
// fault, cause runs again when that fault is over.
func (r *storeRun) cause(p *storeFaultAt) {
	rack := r.env.rack
	if over := r.down[p.victim]; over > rack.Now() {
		rack.At(over.Add(time.Microsecond), func() { r.cause(p) })
		return
	}
	r.down[p.victim] = rack.Now().Add(p.down)
	h := rack.Host(p.victim)
	end := func() {}
	switch p.what {
	case storeClientCrash:
		h.CrashApps()
	case storeMemoryCrash:
		lost := r.lostWith(p.victim)
		if h.Crash(); lost != 0 {
			r.history.Loss(rack.Now(), lost)
		}
		r.noteTotalLoss()
		end = func() {
			h.Restart()
			r.serveMemory(p.victim)
		}
	case storeMetaCrash:
		h.Crash()
		r.metaDown = true
		r.noteTotalLoss()
		end = func() {
			h.Restart()
			r.serveMeta()
		}
	case storeSwitchCrash:
		rack.CrashSwitch()
		end = r.env.restartSwitch
	case storeLinkCut:
		h.SetLink(false)
		end = func() { h.SetLink(true) }
	case storeHang:
		h.Hang()
		end = h.Resume
	case storeHostHang:
		h.HangAll()
		end = h.ResumeAll
	case storeSwitchHang:
		rack.HangSwitch()
		end = rack.ResumeSwitch
	case storeServiceHang:
		r.hungAt = rack.Now()
		h.HangAll()
		h.Resume()
		end = h.ResumeAll
	case storeNothing:
	}
	rack.At(rack.Now().Add(p.down), end)
}

func (p *storePlan) has(what storeFault) bool {
	return slices.ContainsFunc(p.faultList(), func(s *storeFaultAt) bool { return s.what == what })
}
