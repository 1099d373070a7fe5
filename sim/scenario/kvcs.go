package scenario

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/kvcsrack"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

// cachePlan has the choices that the seed makes for the scenario kvcs, a key-value service in which
// clients READ replicas of a table that a coordinator changes.
type cachePlan struct {
	cfg                          kvcsrack.Config
	clients, keys, ops, troubles int    // ops: of each client; troubles: failures of servers and links (see trouble)
	faults                       string // names of the faults of each link
	largest                      int    // length of the largest value in bytes
	deaths                       int    // clients that die
	reboots                      int    // crashes of client hosts; when such a host restarts, a new client begins
	successor                    bool   // the coordinator's host crashes, and its next coordinator begins with an empty table
}

func (p *cachePlan) draw(e *env) *cachePlan {
	d := e.draw
	*p = cachePlan{clients: d.between(2, 8), keys: d.between(1, 4), ops: d.between(10, 60), largest: one(d, 16, 60, 500, 1500)}
	delay := d.span(time.Microsecond, 10*time.Microsecond)
	cfg := kvcsrack.Config{
		Seed: e.seed, Servers: d.between(1, 4), Hosts: d.between(1, 3), RTT: 4 * delay, Delay: delay, MTU: one(d, 4200, 1500, 600), First: one(d, 0.0, 4, 15),
		Shape: kvcs.Shape{Buckets: d.between(1, 8), Cells: p.keys + p.clients + d.between(1, 8), Value: p.largest},
	}
	if d.chance(0.5) {
		cfg.Rate = one(d, int64(1), 10, 100) * 1_000_000_000
		cfg.RTT += 2 * time.Duration(4*2000*8*int64(time.Second)/cfg.Rate)
	}
	cfg.Lease = time.Duration(d.between(50, 400)) * cfg.RTT
	cfg.Patience = time.Duration(d.between(10, 60)) * cfg.RTT
	if d.chance(0.8) {
		p.troubles = d.between(1, 8)
	}
	if d.chance(0.3) {
		p.deaths = d.between(1, 2)
	}
	p.drawFaults(d, &cfg)
	if d.chance(0.3) {
		p.reboots = d.between(1, 2)
	}
	p.successor = d.chance(0.2)
	p.cfg = cfg
	return p
}

// drawFaults draws the faults of each link: of the coordinator's, the servers' and the client
// hosts'.
func (p *cachePlan) drawFaults(d *draw, cfg *kvcsrack.Config) {
	late := fault.Rule{Kind: fault.Reorder, Probability: 0.1, Delay: d.span(cfg.RTT/8, 10*cfg.RTT)}
	for i := range 1 + cfg.Servers + cfg.Hosts {
		var list []fault.Rule
		name := one(d, "none", "none", "none", "loss", "late", "copies", "corrupt", "all")
		switch name {
		case "loss":
			list = append(list, d.fault(fault.Loss, 0.2))
		case "late":
			list = append(list, late)
		case "copies":
			list = append(list, d.fault(fault.Duplicate, 0.5), late)
		case "corrupt":
			list = append(list, d.fault(fault.Corrupt, 0.1))
		case "all":
			list = append(list, d.fault(fault.Loss, 0.05), d.fault(fault.Duplicate, 0.2), late, d.fault(fault.Corrupt, 0.05))
		}
		for j := range list {
			list[j].Link = cfg.Name(i)
		}
		p.faults += " " + name
		cfg.Rules = append(cfg.Rules, list...)
	}
}

func (p *cachePlan) String() string {
	c := &p.cfg
	return fmt.Sprintf("%d servers, %d clients on %d hosts, %d operations each on %d keys, values to %d bytes, %d buckets, %d cells, RTT %v, rate %d Gbit/s, MTU %d, lease %v, patience %v, %d failures, %d deaths of clients, %d crashes of their hosts, crash of the coordinator %t; links%s",
		c.Servers, p.clients, c.Hosts, p.ops, p.keys, p.largest, c.Shape.Buckets, c.Shape.Cells, c.RTT, c.Rate/1_000_000_000, c.MTU, c.Lease, c.Patience, p.troubles, p.deaths, p.reboots, p.successor, p.faults)
}

type cacheRun struct {
	env   *env
	plan  *cachePlan
	cache *kvcsrack.Rack
	// histories has the history of each store, by the store's number. There is more than one if the
	// coordinator has crashed and begun another store; then replaced is true.
	histories map[uint64]*kv.History
	replaced  bool
	down      map[int]bool // client hosts that are down after a crash
	procs     []*simnet.Proc
	tally     tally
	ended     int              // clients that ended because the coordinator had begun another store
	stats     kvcs.ClientStats // sums over the clients that have done all their operations
}

// run runs clients of the service kvcs, while links have faults and servers crash, hang and are
// cut off. The histories must be linearizable.
func (p *cachePlan) run(e *env) error {
	r := &cacheRun{env: e, plan: p.draw(e), histories: make(map[uint64]*kv.History), down: make(map[int]bool)}
	e.report.Plan = r.plan.String()
	trace, err := r.env.tracer()
	if err != nil {
		return err
	}
	cfg := r.plan.cfg
	cfg.Sim, cfg.Wrap = simnet.Config{MaxEvents: maxEvents, MaxTime: maxVirtual, Cancelled: r.env.opt.Cancelled, Trace: trace}, r.env.opt.Wrap
	if r.cache, err = kvcsrack.New(cfg); err != nil {
		return err
	}
	defer e.finishNet(r.cache.Net)
	for i := range r.plan.clients {
		r.start(i % r.plan.cfg.Hosts)
	}
	r.trouble()
	r.deaths()
	r.crashes()
	if err := r.cache.Run(); err != nil {
		return err
	}
	e.report.Virtual = r.cache.Net.Now().Sub(0)
	s := r.cache.Coordinator().Stats()
	done := 0
	for _, store := range slices.Sorted(maps.Keys(r.histories)) {
		done += r.histories[store].Len()
		err = errors.Join(err, r.histories[store].Check(kv.MostStates))
	}
	r.env.note("%d operations, %d without an answer; %d changes, %d READs redirected, %d on memory that changed, %d on pending keys", done, r.tally.unknown,
		s.Changes, r.stats.Redirected, r.stats.Changed, r.stats.Pending)
	r.env.note("servers: %d joined, %d fenced, of these %d by REKEY and %d by leases; %d left because they had restarted", s.Joined, s.Fenced, s.Rekeyed, s.Expired, s.Left)
	if r.replaced {
		r.env.note("the coordinator began again: %d clients were told so", r.ended)
	}
	return err
}

// start starts a client on compute host number host.
func (r *cacheRun) start(host int) {
	number := len(r.procs)
	r.procs = append(r.procs, r.cache.Client(host, func(c *kvcs.Client, p *kvcsrack.Port) error { return r.client(number, c, p) }))
}

// left reports whether any client still runs.
func (r *cacheRun) left() bool {
	return slices.ContainsFunc(r.procs, func(p *simnet.Proc) bool { return !p.Done() })
}

func (r *cacheRun) client(number int, c *kvcs.Client, p *kvcsrack.Port) error {
	d, rtt := r.env.draw, r.plan.cfg.RTT
	history := r.histories[c.Store()]
	if history == nil {
		history = kv.NewHistory()
		r.histories[c.Store()] = history
	}
	s := kv.Record(c, history, number, p.Now)
	for range r.plan.ops {
		if d.chance(0.3) {
			p.Sleep(p.Now().Add(d.span(1, 30*rtt)))
		}
		key := d.Uint64N(uint64(r.plan.keys))
		value := s.Value(key, d.between(kv.MinValue, max(kv.MinValue, r.plan.largest)))
		until := p.Now().Add(d.span(100*rtt, 4000*rtt))
		var err error
		switch d.IntN(10) {
		case 0:
			err = s.Insert(key, value, until)
		case 1:
			err = s.Delete(key, until)
		case 2, 3:
			err = s.Upsert(key, value, until)
		case 4:
			err = s.Put(key, value, until)
		default:
			_, err = s.Get(key, nil, until)
		}
		if errors.Is(err, kvcs.ErrEnded) && r.replaced {
			r.ended++
			return nil
		}
		if err := r.tally.count(err, false, r.plan.cfg.Shape.Cells <= r.plan.keys+r.plan.clients); err != nil {
			return err
		}
		if took := p.Now().Sub(until); took > 20*rtt {
			return fmt.Errorf("an operation has ended %v after its deadline", took)
		}
		if s.Err() != nil {
			return s.Err()
		}
	}
	x := c.Stats()
	r.stats.Redirected += x.Redirected
	r.stats.Changed += x.Changed
	r.stats.Pending += x.Pending
	return nil
}

// trouble plans the failures: servers crash, hang, or are cut off, from all hosts or from the
// coordinator alone, for a while. In some cases the link of a client's host is cut instead.
func (r *cacheRun) trouble() {
	d, rtt := r.env.draw, r.plan.cfg.RTT
	for range r.plan.troubles {
		h := r.cache.Server(d.IntN(r.plan.cfg.Servers))
		at := clock.Time(0).Add(d.span(rtt, 1500*rtt))
		until := at.Add(d.span(rtt, 1000*rtt))
		begin, end := h.Hang, h.Resume
		switch d.IntN(4) {
		case 0:
			begin, end = h.Crash, func() { r.restart(h) }
		case 1:
			host := h
			if d.chance(0.3) {
				host = r.cache.Compute(d.IntN(r.plan.cfg.Hosts))
			}
			begin, end = func() { host.Link.SetUp(false) }, func() { host.Link.SetUp(true) }
		case 2: // cuts off this server from the coordinator alone
			begin, end = func() { r.cache.Part(h, true) }, func() { r.cache.Part(h, false) }
		}
		r.cache.Net.At(at, func() {
			if r.left() {
				begin()
			}
		})
		r.cache.Net.At(until, func() {
			if r.left() {
				end()
			}
		})
	}
}

// restart restarts a host after a crash, and reports whether it runs. If it does not, the run ends.
func (r *cacheRun) restart(h *kvcsrack.Host) bool {
	err := h.Restart()
	if err != nil {
		r.cache.Net.Stop(err)
	}
	return err == nil
}

// deaths plans which clients die, and when.
func (r *cacheRun) deaths() {
	d, rtt := r.env.draw, r.plan.cfg.RTT
	for range r.plan.deaths {
		p := r.procs[d.IntN(len(r.procs))]
		r.cache.Net.At(clock.Time(0).Add(d.span(rtt, 1500*rtt)), p.Kill)
	}
}

// crashes plans crashes of client hosts and of the coordinator's host. When a client host has
// restarted, a new client begins there. When the coordinator's host has restarted, a new client
// begins on the last client host, unless that is down.
func (r *cacheRun) crashes() {
	d, rtt := r.env.draw, r.plan.cfg.RTT
	crash := func(h *kvcsrack.Host, before, after func()) {
		at := clock.Time(0).Add(d.span(rtt, 1500*rtt))
		r.cache.Net.At(at, func() {
			before()
			h.Crash()
		})
		r.cache.Net.At(at.Add(d.span(rtt, 1000*rtt)), func() {
			if r.restart(h) {
				after()
			}
		})
	}
	for i := range min(r.plan.reboots, r.plan.cfg.Hosts) {
		crash(r.cache.Compute(i), func() { r.down[i] = true }, func() { r.down[i] = false; r.start(i) })
	}
	if r.plan.successor {
		crash(r.cache.Hosts[0], func() {}, func() {
			r.replaced = true
			if last := r.plan.cfg.Hosts - 1; !r.down[last] {
				r.start(last)
			}
		})
	}
}
