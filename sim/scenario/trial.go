package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// trialRun is one run of a store.Trial (a store with the limits within which it is tested; see
// store.Scenario): clients, faults and a history that must be linearizable.
type trialRun struct {
	env     *env
	plan    *trialPlan
	history *kv.History
	memory  [][]byte     // by number of the server: its memory
	ready   bool         // the store has been formatted
	losses  int          // faults trialMemoryLost so far
	lost    map[int]bool // numbers of the servers that such a fault has hit
	died    bool         // the programs of a host have died, and with them clients
	tally   tally
	at      func(client int) (host string) // returns the name of a client's host
	prompt  bool                           // all clients begin at once
	ended   func(client int)               // called when a client has ended; may be nil
	settled bool                           // TrialServer.Resident was called since the NIC of the store's server started
	spare   func(host string) bool         // reports whether the store survives without this server; nil: it does
	down    map[string]bool                // hosts, and theSwitch, that have crashed and are not up again
	revive  func(host string)              // starts the programs of a host that has restarted
	plant   func(kv.Store) kv.Store        // for tests: wraps each client in one with a bug
}

// tally counts operations of all clients.
type tally struct {
	begun   int // operations that have begun; only a trialRun counts them
	unknown int // operations that ended with ErrTimeout, so that their outcome is unknown
	full    int // operations that found no room
	refused int // operations whose key was lost
	retries int // sum of kv.Cost.Retries of operations; only a trialRun counts them
}

// count counts an operation that has ended with err. It returns err unless a correct store may
// return err: kv.ErrLost is right only if lost is true, kv.ErrFull only if full is true.
func (t *tally) count(err error, lost, full bool) error {
	switch {
	case errors.Is(err, kv.ErrLost):
		if t.refused++; !lost {
			return err
		}
	case errors.Is(err, kv.ErrFull) && full:
		t.full++
	case errors.Is(err, kv.ErrTimeout):
		t.unknown++
	case err == nil, errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrExists):
	default:
		return err
	}
	return nil
}

// trialPatience is the time from the beginning of an operation to its deadline. trialSlack is how
// long after the deadline the operation may end.
const (
	trialPatience = 2 * time.Second
	trialSlack    = 1200 * time.Millisecond
)

// upserts is the share of UPSERTs among the operations that give a key a value, in a store that has
// UPSERTs.
const upserts = 1.0 / 3

func (p *trialPlan) run(e *env, own func(*rand.Rand, int) store.Trial, plant func(kv.Store) kv.Store) error {
	p.draw(e, own)
	calm := newDraw(e.seed ^ calmLane).chance(0.1)
	if calm {
		p.wire.links, p.wire.rules, p.faults, p.serverFaults = "calm ", nil, nil, nil
	}
	e.report.Plan = p.String()
	r := p.newRun(e, plant)
	if err := r.begin(computeHosts); err != nil {
		return err
	}
	if err := e.run(); err != nil {
		return err
	}
	e.note("%d operations, %d without an answer, %d repeated, %d found no room, %d lost", r.history.Len(), r.tally.unknown, r.tally.retries, r.tally.full, r.tally.refused)
	if calm && r.tally.unknown > 0 {
		return fmt.Errorf("%d operations ended without an answer, though nothing failed", r.tally.unknown)
	}
	if err := r.history.Check(kv.MostStates); err != nil || p.Judge == nil || r.losses > 0 {
		return err
	}
	return p.Judge(r.memory, r.tally.unknown == 0 && !r.died)
}

func (p *trialPlan) newRun(e *env, plant func(kv.Store) kv.Store) *trialRun {
	return &trialRun{
		env: e, plan: p, history: kv.NewHistory(), plant: plant, down: make(map[string]bool), lost: make(map[int]bool),
		at: func(client int) string { return fmt.Sprintf("cn%d", client%computeHosts) },
	}
}

// begin builds the rack with the given number of compute hosts, and starts servers and clients.
func (r *trialRun) begin(hosts int) error {
	e, p := r.env, r.plan
	rack := passiveRack(p.servers, hosts)
	if p.Server != nil {
		rack += fmt.Sprintf("  - {name: \"md[0-%d]\", role: metadata}\n", len(serverHosts)-1)
	}
	if err := e.build(rack, p.wire.rack); err != nil {
		return err
	}
	e.setFaults(p.wire.rules)
	for i := range p.servers {
		r.memory = append(r.memory, make([]byte, p.Memory))
		r.serve(i)
	}
	e.client("cn0", "format", func(ctx verbs.Context) error {
		err := p.Format(r.config(e.rack.Host("cn0"), ctx), ctx.Runtime().Now().Add(20*trialPatience))
		r.ready = err == nil
		return err
	})
	if p.Server != nil {
		r.startServer(serverHosts[0])
	}
	for i := range p.clients {
		r.start(i)
	}
	return nil
}

// serve starts the memory service of server i. The memory survives the end of the service.
func (r *trialRun) serve(i int) {
	r.env.serveMemory(fmt.Sprintf("ms%d", i), memservice.Config{Buffer: r.memory[i], Locks: r.plan.Locks}, nil)
}

func (r *trialRun) config(h *simrack.Host, ctx verbs.Context) passive.Config {
	servers := r.env.addrsOf(memoryServers(r.plan.servers))
	return passive.Config{Context: ctx, Manager: h.Manager(ctx), Params: r.plan.wire.params, Servers: servers}
}

// start runs client number id on its compute host.
func (r *trialRun) start(id int) {
	h := r.env.rack.Host(r.at(id))
	d := newDraw(r.env.draw.Uint64())
	r.env.client(h.Spec.Name, fmt.Sprintf("client-%d", id), func(ctx verbs.Context) error {
		if r.ended != nil {
			defer r.ended(id)
		}
		rt := ctx.Runtime()
		for !r.ready {
			rt.Sleep(50 * time.Microsecond)
		}
		if !r.prompt && d.chance(0.3) {
			rt.Sleep(d.span(0, 3*time.Millisecond)) // the client may begin after the deaths of others
		}
		c, err := r.open(r.config(h, ctx), rt.Now().Add(20*trialPatience))
		if err != nil && r.losses > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		t := kv.Store(&afterLoss{c, r})
		if r.plant != nil {
			t = r.plant(t)
		}
		s := kv.Record(t, r.history, id, rt.Now)
		w := &opWatch{rack: r.env.rack, client: fmt.Sprintf("client %d on %s", id, h.Spec.Name), limit: r.longest()}
		for range r.plan.rounds {
			if err := r.round(s, d, rt, w); err != nil {
				return errors.Join(fmt.Errorf("client %d on %s: %w", id, h.Spec.Name, err), c.Close())
			}
			r.tally.retries += c.Last().Retries
			if r.plan.pause > 0 && d.chance(0.25) {
				rt.Sleep(d.span(0, r.plan.pause))
			}
		}
		return errors.Join(s.Err(), c.Close())
	})
}

// round does one random operation and records it. w ends the run if the operation takes too long.
func (r *trialRun) round(s *kv.Recorded, d *draw, rt verbs.Runtime, w *opWatch) error {
	p := r.plan
	key := uint64(d.IntN(p.keys))
	if d.chance(p.skew) {
		key = 0
	}
	r.disturb()
	defer w.begin(key)()
	began := rt.Now()
	deadline := began.Add(trialPatience)
	value := func() []byte { return s.Value(key, d.between(kv.MinValue, max(kv.MinValue, p.Largest))) }
	var err error
	switch x := d.Float64(); {
	case p.Upserts && x >= p.mix[0] && x < p.mix[2] && d.chance(upserts):
		err = s.Upsert(key, value(), deadline)
	case x < p.mix[0]:
		_, err = s.Get(key, nil, deadline)
	case x < p.mix[1]:
		err = s.Put(key, value(), deadline)
	case x < p.mix[2]:
		err = s.Insert(key, value(), deadline)
	default:
		err = s.Delete(key, deadline)
	}
	if took := rt.Now().Sub(began); took > r.longest() {
		return fmt.Errorf("an operation on key %d took %v: %w", key, took, err)
	}
	return cmp.Or(r.tally.count(err, r.losses > 0, true), s.Err())
}

// longest bounds how long one operation may take, with all faults of the plan.
func (r *trialRun) longest() time.Duration { return trialPatience + trialSlack + r.plan.longest() }

// disturb is called when an operation begins. It counts the operation, and injects the faults that
// are due after this number of operations.
func (r *trialRun) disturb() {
	r.tally.begun++
	for _, x := range r.plan.faults {
		if x.after == r.tally.begun {
			r.env.rack.At(r.env.rack.Now().Add(x.late), func() { r.inject(x) })
		}
	}
	for _, x := range r.plan.serverFaults {
		if x.after == r.tally.begun {
			r.env.rack.At(r.env.rack.Now().Add(x.late), func() { r.failServer(x) })
		}
	}
}

// inject injects fault x and schedules its end.
func (r *trialRun) inject(x trialFault) {
	rack, h, end := r.env.rack, (*simrack.Host)(nil), func() {}
	if x.what != trialSwitchDies {
		h = rack.Host(x.victim)
	}
	switch x.what {
	case trialSwitchDies:
		if r.down[x.victim] {
			return
		}
		r.down[x.victim] = true
		rack.CrashSwitch()
		end = func() {
			delete(r.down, x.victim)
			r.env.restartSwitch()
		}
	case trialClientsDie:
		r.died = true
		h.CrashApps() // requests that the clients have posted may still be executed, late
	case trialMasterDies:
		if r.down[x.victim] {
			return
		}
		r.down[x.victim] = true
		h.CrashApps()
		end = func() {
			delete(r.down, x.victim)
			h.Crash()
			h.Restart()
			r.revive(x.victim)
		}
	case trialNICHang:
		h.Hang()
		end = h.Resume
	case trialHostHang:
		h.HangAll()
		end = h.ResumeAll
	case trialLinkCut:
		h.SetLink(false)
		end = func() { h.SetLink(true) }
	case trialNICCrash, trialMemoryLost, trialServerDies:
		if r.down[x.victim] || r.spare != nil && !r.spare(x.victim) {
			r.env.note("%s does not crash: it is down, or the store would be lost", x.victim)
			return
		}
		i := slices.Index(memoryServers(r.plan.servers), x.victim)
		r.down[x.victim] = true
		h.Crash()
		if x.what == trialMemoryLost {
			r.losses++
			r.lost[i] = true
		}
		end = func() {
			if x.what != trialNICCrash {
				clear(r.memory[i])
			}
			h.Restart()
			r.serve(i)
			delete(r.down, x.victim)
		}
	}
	over := rack.Now().Add(x.down)
	rack.At(over, end)
	r.env.goOnUntil(over)
}

// afterLoss is a client of a store that may lose memory. If an operation ends with an error that
// reports a loss, afterLoss joins another error to it, which tells the history what the operation
// has done: kv.ErrNoEffect if the operation began after the last loss, and so has changed nothing;
// kv.ErrTimeout if it began earlier, and so may have been executed. Every other answer must be
// correct, as in a run without losses. A client that is a keyHolder may report a loss only for a
// key whose server has lost its memory.
type afterLoss struct {
	kv.Store
	run *trialRun
}

// keyHolder is a client that can say which server has a key; servers are counted from 0.
type keyHolder interface{ HolderOf(key uint64) (server int) }

// judge is called when an operation on key has ended with the error err. It returns err. If err
// correctly reports a loss, judge joins kv.ErrNoEffect or kv.ErrTimeout to it, as afterLoss says.
// losses is the value of run.losses when the operation began.
func (a *afterLoss) judge(key uint64, losses int, err error) error {
	p, places := a.Store.(keyHolder)
	switch {
	case a.run.losses == 0 || !errors.Is(err, kv.ErrLost):
		return err
	case places && !a.run.lost[p.HolderOf(key)]:
		return err
	case losses == a.run.losses:
		return errors.Join(err, kv.ErrNoEffect)
	}
	return errors.Join(err, kv.ErrTimeout)
}

func (a *afterLoss) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	losses := a.run.losses
	v, err := a.Store.Get(key, dst, deadline)
	return v, a.judge(key, losses, err)
}

func (a *afterLoss) Put(key uint64, value []byte, deadline clock.Time) error {
	losses := a.run.losses
	return a.judge(key, losses, a.Store.Put(key, value, deadline))
}

func (a *afterLoss) Upsert(key uint64, value []byte, deadline clock.Time) error {
	losses := a.run.losses
	return a.judge(key, losses, a.Store.(kv.Upserter).Upsert(key, value, deadline))
}

func (a *afterLoss) Insert(key uint64, value []byte, deadline clock.Time) error {
	losses := a.run.losses
	return a.judge(key, losses, a.Store.Insert(key, value, deadline))
}

func (a *afterLoss) Delete(key uint64, deadline clock.Time) error {
	losses := a.run.losses
	return a.judge(key, losses, a.Store.Delete(key, deadline))
}
