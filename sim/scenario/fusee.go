package scenario

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// tableRun is one run of the scenario fusee, with clients of FUSEE's hash table. It is a trialRun:
// clients, faults and the check of the history, as for every store. After the run, the replicas of
// the index must also be equal. In some runs clients die (see tableDeath), and slow clients are
// taken for dead. In some runs there are masters, processes that change the members of the store
// when memory servers fail (see drawMasters). When all clients have ended or died, one more client
// recovers their blocks: then no block may have an owner, and no change of a slot may be
// incomplete.
type tableRun struct {
	*trialRun
	plan  *tablePlan
	super layout.Superblock
	gone  map[int]bool // clients that have ended or died, by number
	made  bool         // the store has been formatted
	// reigns counts how often a master has taken charge of the store, and resumed how often the host
	// of a master has restarted.
	reigns, resumed int
}

// tablePlan has the choices that the seed makes for a run of FUSEE.
type tablePlan struct {
	trialPlan
	format fusee.FormatConfig
	cache  int           // fusee.Config.Cache of the clients
	lease  time.Duration // lease after which clients take each other for dead
	deaths []tableDeath
	// masters is the number of masters: one that is in charge, and the others in reserve. rule is
	// the lease after which a master takes a memory server for dead.
	masters int
	rule    time.Duration
	// clientLease is the lease after which a master takes a client for dead; 0 means the default.
	// successor is how many operations have begun when the second master begins.
	// vigil: true if the master must recover the blocks of dead clients before any client does it.
	clientLease time.Duration
	successor   int
	vigil       bool
	// standby: true if the second master begins as the standby of the first one, and takes charge
	// when that dies.
	standby bool
	// published: true if the clients decide conflicts as the public code of FUSEE does.
	published bool
	// cut: true if the switch crashes.
	cut bool
	// blows are further crashes about the time at which a memory server that has come back is
	// filled.
	blows []tableBlow
}

func (p *tablePlan) draw(e *env) *tablePlan {
	d := e.draw
	p.drawWork(d)
	p.Largest, p.cache = one(d, 16, 200, 600, 3000), one(d, 0, 0, -1, 2)
	p.drawMix(d)
	p.format = fusee.FormatConfig{
		Replicas: d.between(1, p.servers), IndexReplicas: d.between(1, p.servers), Depth: d.between(0, 2), Groups: d.between(1, 3),
		Block: one(d, 16<<10, 32<<10), Generation: e.seed<<8 | 1,
	}
	p.Memory = 1 << 20
	hosts := passiveHosts(p.servers)
	p.wire.drawWire(e, hosts, memoryServers(p.servers), 0.6)
	if d.chance(0.2) {
		p.wire.belated(d, hosts)
	}
	p.drawDeaths(newDraw(e.seed ^ deathLane))
	p.drawMasters(newDraw(e.seed ^ masterLane))
	p.drawReturn(newDraw(e.seed ^ returnLane))
	p.drawSwitch(newDraw(e.seed ^ switchLane))
	if d := newDraw(e.seed ^ growthLane); (p.masters == 0 || p.format.IndexReplicas <= 3) && d.chance(0.6) { // the index begins with one group, so it is soon full and grows
		p.mix = [3]float64{0.2, 0.45, 0.9}
		p.format.Depth, p.format.Groups, p.format.Grow, p.keys = 0, 1, d.between(1, 3), p.keys+d.between(20, 80)
		p.format.IndexReplicas = min(p.format.IndexReplicas, 3) // an index with more replicas does not grow
	}
	return p
}

func (p *tablePlan) String() string {
	f := &p.format
	text := fmt.Sprintf("%d servers, %d replicas of objects, %d of the index, %d clients, %d keys, %d rounds, values to %d bytes, depth %d and %d more, %d groups, cache %d; links %s",
		p.servers, f.Replicas, f.IndexReplicas, p.clients, p.keys, p.rounds, p.Largest, f.Depth, f.Grow, f.Groups, p.cache, strings.TrimSpace(p.wire.links))
	for _, x := range p.deaths {
		text += "; " + x.String()
	}
	for _, x := range p.blows {
		text += "; " + x.String()
	}
	for _, x := range p.faults {
		text += fmt.Sprintf("; %s %s after %d operations and %v, restarts after %v", x.victim, x.what, x.after, x.late, x.down)
	}
	if p.masters > 0 {
		text += fmt.Sprintf("; %d masters, lease %v, of clients %v", p.masters, p.rule, p.clientLease)
	}
	if p.standby {
		text += ", the second is a standby"
	} else if p.masters > 1 {
		text += fmt.Sprintf(", the second after %d operations", p.successor)
	}
	if p.published {
		text += "; published clients"
	}
	return text
}

// runWith makes one run of the scenario fusee, by the seed of e. plant is trialRun.plant and
// may be nil.
func (p *tablePlan) runWith(e *env, plant func(kv.Store) kv.Store) error {
	return p.draw(e).newRun(e, plant).run()
}

func (p *tablePlan) newRun(e *env, plant func(kv.Store) kv.Store) *tableRun {
	r := &tableRun{trialRun: p.trialPlan.newRun(e, plant), plan: p, gone: make(map[int]bool)}
	r.at, r.prompt, r.ended = p.hostOf, true, func(client int) { r.gone[client] = true }
	p.Format = func(cfg passive.Config, deadline clock.Time) (err error) {
		r.super, err = fusee.Format(p.config(cfg), p.format, deadline)
		r.made = err == nil
		for wait := cfg.Context.Runtime(); r.made && p.masters > 0 && !r.ready; wait.Sleep(time.Millisecond) { // clients begin when a master is in charge
		}
		return err
	}
	p.Open = func(cfg passive.Config, deadline clock.Time) (kv.Store, error) {
		return fusee.Open(p.config(cfg), deadline)
	}
	return r
}

func (r *tableRun) run() error {
	r.env.report.Plan = r.plan.String()
	r.arm()
	if err := r.begin(computeHosts + maxDeaths + maxMasters); err != nil {
		return err
	}
	r.bury()
	r.reign()
	r.await()
	if err := r.env.run(); err != nil {
		return err
	}
	if err := r.calm(); err != nil {
		return err
	}
	return r.judge()
}

func (p *tablePlan) config(c passive.Config) fusee.Config {
	return fusee.Config{Context: c.Context, Manager: c.Manager, Servers: c.Servers, Params: c.Params, Cache: p.cache, Lease: p.lease, Published: p.published}
}

// judge checks the run: the history must be linearizable and the replicas must be equal. If crashed
// servers come back, all servers must be members.
func (r *tableRun) judge() error {
	r.env.note("%d operations, %d without an answer, %d repeated, %d found no room, %d masters", r.history.Len(), r.tally.unknown, r.tally.retries, r.tally.full, r.reigns)
	if err := r.history.Check(kv.MostStates); err != nil {
		return err
	}
	if err := r.alike(); err != nil || !r.plan.returns() {
		return err
	}
	return r.whole()
}

// alike checks after the run that all replicas of the index are equal, and that each slot names a
// complete and valid object in all its replicas. No client may own a block, and no change of a slot
// or split of a subtable may be incomplete.
func (r *tableRun) alike() error {
	out, err := fusee.Audit(r.super, func(server int, off uint64, n int) ([]byte, error) {
		return r.memory[server][off:][:n], nil
	})
	if r.plan.format.Grow > 0 {
		r.env.note("%d keys in %d subtables", out.Keys, out.Subtables)
	}
	switch {
	case err != nil:
		return err
	case len(out.Defects) > 0:
		return errors.New(strings.Join(out.Defects, "\n"))
	case len(out.Owners) > 0:
		return fmt.Errorf("clients that are gone own blocks: %v", out.Owners)
	case out.Splitting > 0:
		return fmt.Errorf("%d subtables are being split when all clients are gone", out.Splitting)
	case out.Unfinished > 0:
		return fmt.Errorf("%d slots have changes that no client has finished", out.Unfinished)
	}
	return nil
}

// runPublished runs published clients, which have the holes of fusee/HOLES.md. Only links
// fail, because the holes need no crash.
func (p *tablePlan) runPublished(e *env) error {
	p.draw(e)
	p.published, p.deaths, p.faults, p.masters, p.standby, p.vigil, p.format.Grow = true, nil, nil, 0, false, false, 0
	p.blows, p.more = nil, 0
	r := p.newRun(e, nil)
	return e.asDamage(r.run(), func(error) string {
		if r.history.Check(kv.MostStates) != nil {
			return "answers that no order explains (lost INSERTs, one key inserted or removed twice)"
		}
		return "slots that do not name the objects of their keys, or one key twice"
	})
}
