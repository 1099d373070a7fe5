package swordbox

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/staleflows"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// linger is how long the switch keeps a connection after the last rule that needs it was removed,
// so that requests in flight on it end.
const linger = 5 * time.Second

// Own manages the switch's connections and its journal. It asks the dialer for the connections that
// the rules need, hands them to the handlers that use them, and writes the journal. Make it with
// NewOwn before the handlers, because the handlers' Env takes the methods of Own. Then pass the
// handlers and the Own to New.
type Own struct {
	dialer  *switchconn.Dialer
	former  *staleflows.Machine
	journal *journal.Journal
	parts   *parts
	rules   *rules.Set
	dirty   bool // the rules have changed since the last call of dial, or an adopted connection has ended
	short   bool // the dialer had no room for a connection that the rules need
	slots   []flowSlot
	ending  []leaving
}

// flowSlot is the slot of a flow in the journal.
type flowSlot struct {
	generation uint32
	slot       journal.Slot
}

// leaving is a switch's connection that no rule needs any more, and the time of its end.
type leaving struct {
	key  switchconn.Key
	when clock.Time
}

// NewOwn makes an Own that uses a Dialer, and the journal to which the Dialer writes.
func NewOwn(d *switchconn.Dialer, rec *journal.Journal) *Own {
	o := &Own{dialer: d, journal: rec}
	o.former = staleflows.New(staleflows.Config{Journal: rec, Blocked: o.blocked})
	return o
}

func (o *Own) Dialer() *switchconn.Dialer { return o.dialer }

// Former returns the machine that refuses the flows of former incarnations of the switch.
func (o *Own) Former() *staleflows.Machine { return o.former }

// blocked reports whether requests that the switch sent on an earlier connection may still reach
// the server. Earlier connections are those of a former incarnation of the switch, and those of
// this incarnation that have ended (Dialer.Clear).
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

// Moving enters a flow into the journal before its first request is moved. false means that the
// journal is full. Moving is Env.Moving of the handlers. The flow may be in the journal already: a
// change of rules has taken the flow from its machine, and a later change has given the flow to a
// machine again. Then Moving only updates its oldest PSN.
func (o *Own) Moving(r *conntrack.Flow) bool {
	oldest := r.Expected
	if int(r.ID) < len(o.slots) && o.slots[r.ID].generation == r.Generation {
		o.journal.Answered(o.slots[r.ID].slot, oldest)
		return true
	}
	slot, err := o.journal.Move(journal.Flow{
		Client: r.Requester, Server: r.Responder, ClientQPN: r.ReqQPN, ServerQPN: r.RespQPN, Oldest: oldest,
	})
	if err != nil {
		return false
	}
	for int(r.ID) >= len(o.slots) {
		o.slots = append(o.slots, flowSlot{})
	}
	o.slots[r.ID] = flowSlot{r.Generation, slot}
	return true
}

// Answered writes the PSN of a flow's oldest unanswered request to the journal. It is Env.Answered
// of the handlers, which call it before an answer leaves the switch.
func (o *Own) Answered(r *conntrack.Flow, oldest wire.PSN) {
	if int(r.ID) < len(o.slots) && o.slots[r.ID].generation == r.Generation {
		o.journal.Answered(o.slots[r.ID].slot, oldest)
	}
}

// closed removes a flow that has ended from the journal.
func (o *Own) closed(r *conntrack.Flow) {
	if int(r.ID) < len(o.slots) && o.slots[r.ID].generation == r.Generation {
		o.journal.EndFlow(o.slots[r.ID].slot)
		o.slots[r.ID] = flowSlot{}
	}
}

// Failed makes the dialer replace a connection that a handler cannot use any more. It is Env.Failed
// of the handlers.
func (o *Own) Failed(c *pipeline.Ctx, k switchconn.Key, generation uint32, _ string) {
	o.dialer.Again(c, k, generation)
}

// setRules takes new rules. The next Tick makes and ends connections as they require.
func (o *Own) setRules(set *rules.Set) {
	o.rules, o.dirty = set, true
}

// store writes rules to the journal. If their text is too long, the error has the kind
// handler.ErrRefused.
func (o *Own) store(set *rules.Set) error {
	text, err := json.Marshal(set.All())
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	if err := o.journal.SetRules(string(text)); err != nil {
		return handler.Refused(err)
	}
	return nil
}

// StoredRules reads the rules of the former incarnation of the switch from the journal. The bool is
// false if there was no former incarnation.
func StoredRules(rec *journal.Journal) (*rules.Set, bool, error) {
	text, ok := rec.Rules()
	if !ok {
		return nil, false, nil
	}
	var list []rules.Rule
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, false, fmt.Errorf("rules of the switch's journal: %w", err)
	}
	set, err := rules.StoredSet(list)
	return set, err == nil, err
}

// dial asks the dialer for the connections that the rules need. If a rule names another service
// than before, dial ends the connection to the former service, and the dialer makes the new one.
// dial offers all other connections to the handlers again, because a handler may have refused one
// under the former rules. If no handler can use a connection now, and the rules ask for another
// target than the one to which it was made, the dialer makes the connection again (Renew). dial
// schedules the end of connections that no rule needs any more.
func (o *Own) dial(c *pipeline.Ctx) {
	o.dirty, o.short = false, false
	want := make(map[switchconn.Key]bool)
	for _, w := range o.parts.wants(o.rules) {
		want[w.Key] = true
		if !o.dialer.Want(w.Key, w.Target) {
			o.short = true
		}
	}
	o.ending = slices.DeleteFunc(o.ending, func(l leaving) bool { return want[l.key] })
	for _, i := range o.dialer.List() {
		adopted := i.Shared != nil && i.Shared.Adopted
		if !want[i.Key] && !adopted && !slices.ContainsFunc(o.ending, func(l leaving) bool { return l.key == i.Key }) {
			o.ending = append(o.ending, leaving{i.Key, c.Now.Add(linger)})
		}
		if o.dialer.Redirect(c, i.Key) {
			continue
		}
		if i.Shared != nil && !o.offer(c, *i.Shared) {
			o.dialer.Renew(c, i.Key)
		}
	}
}

// stale reports whether dial has something to do: something has changed since its last call, or
// there is room now for connections for which there was none.
func (o *Own) stale() bool { return o.dirty || o.short && o.dialer.Room() }

// offer offers a connection to the handler that uses its key. The result is false if no handler can
// use it.
func (o *Own) offer(c *pipeline.Ctx, s switchconn.Shared) bool {
	u := o.parts.user(s.Key)
	return u != nil && u.Attach(c, s)
}

func (o *Own) tick(c *pipeline.Ctx) {
	if o.stale() {
		o.dial(c)
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
	if o.stale() {
		return 0
	}
	at := clock.Min(o.former.Deadline(), o.dialer.Deadline())
	if len(o.ending) > 0 {
		at = clock.Min(at, o.ending[0].when)
	}
	return at
}

// first reports whether nothing is left of earlier connections: no stale flow, and no ended
// connection of the switch (made by this incarnation or a former one) on which requests may still
// reach a server.
func (o *Own) first() bool { return o.former.Empty() && o.dialer.AllClear() }

// news passes the dialer's events to the handlers that use the connections. The program calls it at
// the end of Tick and, if there are events, of Packet.
func (o *Own) news(c *pipeline.Ctx) {
	for e, ok := o.dialer.Next(); ok; e, ok = o.dialer.Next() {
		switch e.Kind {
		case switchconn.EventUp:
			o.offer(c, e.Shared)
		case switchconn.EventDown:
			if u := o.parts.user(e.Shared.Key); u != nil {
				u.Detach(c, e.Shared.Key, e.Shared.Generation)
			}
			if e.Shared.Adopted {
				o.dirty = true // the dialer has forgotten the connection; the rules may need one
			}
		}
	}
}

// Close transmits the frames that wait in queues of handlers, and sends a DREQ for each connection
// that the switch has made. It does not wait for the answers.
func (p *Program) Close(c *pipeline.Ctx) {
	// A round flushes the oldest queue of each port. Each handler has at most one queue at a port.
	for range p.parts.queuers {
		for _, q := range p.parts.queuers {
			q.Flush(c)
		}
	}
	if o := p.cfg.Own; o != nil {
		o.dialer.Close(c)
	}
}

// Bound returns how many flows would break if the program were replaced now: the flows with moved
// requests, because the PSNs of their two ends differ until the flows end, and the stale flows,
// because their clients may not have received the fatal NAK yet. Flows whose requests are only
// steered do not count: their clients recover as from a crash of the switch.
func (p *Program) Bound() (n int) {
	for id := range uint32(p.track.MaxFlows()) {
		if r := p.track.Flow(id); r != nil && r.Pinned {
			n++
		}
	}
	if o := p.cfg.Own; o != nil {
		n += len(o.former.Flows())
	}
	return n
}

// Unloaded is called when another program has replaced this one, after Bound has returned 0. It
// removes all flows from the journal. The journal may still have flows that have failed, and flows
// without moved requests, because a flow is entered before its first request is moved. A program
// that is loaded later would take these flows for stale ones and end them.
func (p *Program) Unloaded() {
	o := p.cfg.Own
	if o == nil {
		return
	}
	for _, s := range o.slots {
		o.journal.EndFlow(s.slot)
	}
	o.slots = nil
}
