package serialize

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/record"
	"github.com/rdmalab/rdmalab/swordbox/restart"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// linger is how long connections of the switch's own are kept after the last rule that needs them has gone: what is under
// way on them shall come to its end.
const linger = 5 * time.Second

// User uses the switch's own connections: the machine of mode hard.
type User interface {
	SetRules(set *rules.Set)
	attacher
}

// attacher uses connections of the switch's own; it refuses those that are not for it.
type attacher interface {
	// Attach brings a connection, Detach says that it is no more.
	Attach(c *pipeline.Ctx, s dial.Shared) bool
	Detach(c *pipeline.Ctx, k dial.Key, generation uint32)
}

// Repairer is a machine whose control plane has connections of its own: that of steering in mode paper.
type Repairer interface {
	attacher
	// Mine reports whether a queue pair is one of them.
	Mine(qpn wire.QPN) bool
}

// Own is the switch as an end of connections, and what survives its crash: it wants the connections that the rules need,
// hands them to the machine that uses them, and keeps the record. Make it with NewOwn before the machine of mode hard,
// whose Config takes its methods, and hand both to New.
type Own struct {
	dialer *dial.Dialer
	former *restart.Machine
	record *record.Record
	user   User
	repair Repairer
	rules  *rules.Set
	dirty  bool // the rules are new, and nobody was asked for connections yet
	slots  []rowSlot
	ending []leaving
}

// rowSlot is where a row is recorded.
type rowSlot struct {
	generation uint32
	slot       record.Slot
}

// leaving is a connection that no rule needs any more.
type leaving struct {
	key  dial.Key
	when clock.Time
}

// NewOwn takes over a Dialer and the record that the Dialer writes to.
func NewOwn(d *dial.Dialer, rec *record.Record) *Own {
	o := &Own{dialer: d, record: rec}
	o.former = restart.New(restart.Config{Record: rec, Blocked: o.blocked})
	return o
}

// Dialer makes the connections.
func (o *Own) Dialer() *dial.Dialer { return o.dialer }

// Former knows the rows of the switch's former life.
func (o *Own) Former() *restart.Machine { return o.former }

// Record is what survives a crash.
func (o *Own) Record() *record.Record { return o.record }

// blocked reports whether requests of a former life may still reach a server.
func (o *Own) blocked(server netip.Addr) bool {
	if o.dialer.AllClear() {
		return false
	}
	for _, r := range o.rules.Lookup(server) {
		if !o.dialer.Clear(r.Server) {
			return true
		}
	}
	return !o.dialer.Clear(server)
}

// Moving records a row before its first request is moved. It is hard.Config.Moving.
func (o *Own) Moving(r *conntrack.Row) bool {
	oldest := r.Expected
	slot, err := o.record.Move(record.Row{
		Client: r.Requester, Server: r.Responder, ClientQPN: r.ReqQPN, ServerQPN: r.RespQPN, Oldest: oldest,
	})
	if err != nil {
		return false
	}
	for int(r.ID) >= len(o.slots) {
		o.slots = append(o.slots, rowSlot{})
	}
	o.slots[r.ID] = rowSlot{r.Generation, slot}
	return true
}

// Answered notes the oldest request of a row that has no answer, before an answer leaves. It is hard.Config.Answered.
func (o *Own) Answered(r *conntrack.Row, oldest wire.PSN) {
	if int(r.ID) < len(o.slots) && o.slots[r.ID].generation == r.Generation {
		o.record.Answered(o.slots[r.ID].slot, oldest)
	}
}

// closed forgets a row that has ended.
func (o *Own) closed(r *conntrack.Row) {
	if int(r.ID) < len(o.slots) && o.slots[r.ID].generation == r.Generation {
		o.record.EndRow(o.slots[r.ID].slot)
		o.slots[r.ID] = rowSlot{}
	}
}

// Failed makes a connection anew that the machine cannot use any more. It is hard.Config.Failed.
func (o *Own) Failed(c *pipeline.Ctx, k dial.Key, generation uint32, _ string) {
	o.dialer.Again(c, k, generation)
}

// setRules takes new rules; the connections follow in the next Tick.
func (o *Own) setRules(set *rules.Set) {
	o.rules, o.dirty = set, true
	if o.user != nil {
		o.user.SetRules(set)
	}
}

// store keeps rules over a crash.
func (o *Own) store(set *rules.Set) error {
	text, err := json.Marshal(set.All())
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	return o.record.SetRules(string(text))
}

// StoredRules are those that a former life of the switch had; false if there was none.
func StoredRules(rec *record.Record) (*rules.Set, bool, error) {
	text, ok := rec.Rules()
	if !ok {
		return nil, false, nil
	}
	var list []rules.Rule
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, fmt.Errorf("rules of the switch's record: %w", err)
	}
	set, err := rules.NewSet(list)
	return set, err == nil, err
}

// wanted lists the connections that the rules need.
func wanted(set *rules.Set) map[dial.Key]dial.Target {
	want := make(map[dial.Key]dial.Target)
	for _, r := range set.All() {
		if r.Action == rules.Steer && r.Mode == rules.Paper && r.Service != "" {
			want[repairKey(r)] = dial.Target{Service: r.Service, MTU: r.MTU}
		}
		if r.Mode != rules.Hard || !r.Moves() || r.Service == "" {
			continue
		}
		for i := range r.NumShards() {
			want[dial.Key{Server: r.Server, Shard: i}] = dial.Target{Service: r.Service, MTU: r.MTU, Depth: r.Depth()}
		}
	}
	return want
}

func repairKey(r rules.Rule) dial.Key { return dial.Key{Server: r.Server, Shard: dial.RepairShard} }

// dial asks for the connections that the rules need, and ends the others after a while.
func (o *Own) dial(now clock.Time) {
	o.dirty = false
	want := wanted(o.rules)
	for _, r := range o.rules.All() { // in the order of the rules: a map has none
		for i := range r.NumShards() {
			k := dial.Key{Server: r.Server, Shard: i}
			if t, ok := want[k]; ok {
				o.dialer.Want(k, t)
			}
		}
		if t, ok := want[repairKey(r)]; ok {
			o.dialer.Want(repairKey(r), t)
		}
	}
	o.ending = slices.DeleteFunc(o.ending, func(l leaving) bool { _, ok := want[l.key]; return ok })
	for _, i := range o.dialer.List() {
		_, ok := want[i.Key]
		adopted := i.Shared != nil && i.Shared.Adopted
		if !ok && !adopted && !slices.ContainsFunc(o.ending, func(l leaving) bool { return l.key == i.Key }) {
			o.ending = append(o.ending, leaving{i.Key, now.Add(linger)})
		}
	}
}

// tick does what is due.
func (o *Own) tick(c *pipeline.Ctx) {
	if o.dirty {
		o.dial(c.Now)
	}
	if o.former.Deadline() <= c.Now {
		o.former.Tick(c)
	}
	for len(o.ending) > 0 && o.ending[0].when <= c.Now {
		o.dialer.Unwant(c, o.ending[0].key)
		o.ending = o.ending[1:]
	}
	if o.dialer.Deadline() <= c.Now {
		o.dialer.Tick(c)
	}
}

func (o *Own) deadline() clock.Time {
	if o.dirty {
		return 0
	}
	at := clock.Min(o.former.Deadline(), o.dialer.Deadline())
	if len(o.ending) > 0 {
		at = clock.Min(at, o.ending[0].when)
	}
	return at
}

// first reports that no former life of the switch has left anything to look after.
func (o *Own) first() bool { return o.former.Empty() && o.dialer.AllClear() }

// news hands what happened to connections to their user. Every step of the program ends with it.
func (o *Own) news(c *pipeline.Ctx) {
	for e, ok := o.dialer.Next(); ok; e, ok = o.dialer.Next() {
		var u attacher = o.user
		if e.Shared.Shard == dial.RepairShard {
			u = o.repair
		}
		switch {
		case e.Shared.Shard == dial.RepairShard && o.repair == nil, e.Shared.Shard != dial.RepairShard && o.user == nil:
		case e.Kind == dial.EventUp:
			u.Attach(c, e.Shared)
		case e.Kind == dial.EventDown:
			u.Detach(c, e.Shared.Key, e.Shared.Generation)
		}
	}
}

// Close ends the switch's own connections, as far as that takes no answer.
func (p *Program) Close(c *pipeline.Ctx) {
	if o := p.cfg.Own; o != nil {
		o.dialer.Close(c)
	}
}
