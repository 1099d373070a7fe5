package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// The connection of a sequencer has ended when its flow has, when the flow's place has another one, and from
// the DREQ on.
func TestEndOfAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *sequencer)
		want   bool
	}{
		"open":              {func(*sequencer) {}, false},
		"closed":            {func(l *sequencer) { l.phase = closed }, true},
		"another flow":      {func(l *sequencer) { l.flow.Generation++ }, true},
		"asked for its end": {func(l *sequencer) { l.flow.State = conntrack.Closing }, true},
		"refused":           {func(l *sequencer) { l.phase = refused }, false},
		"not yet open":      {func(l *sequencer) { l.flow.State = 0 }, false},
	} {
		l := &sequencer{phase: synced, generation: 3}
		l.flow = &conntrack.Flow{Generation: 3, State: conntrack.Open}
		if c.change(l); l.hasEnded() != c.want {
			t.Errorf("%s: %v", name, !c.want)
		}
	}
}

// A new flow waits for requests that were held for a shared connection of its server when it began, and for no
// others.
func TestNewFlowWaitsForHeldRequests(t *testing.T) {
	const began = clock.Time(100)
	for name, c := range map[string]struct {
		change func(other *sequencer, m *Machine)
		want   bool
	}{
		"held when it began":        {func(*sequencer, *Machine) {}, true},
		"held since":                {func(_ *sequencer, m *Machine) { m.held.slots[0].at = began + 1 }, false},
		"held before":               {func(_ *sequencer, m *Machine) { m.held.slots[0].at = began - 1 }, true},
		"for another server":        {func(o *sequencer, m *Machine) { o.s = &server{m: m} }, false},
		"for its client's own":      {func(o *sequencer, _ *Machine) { o.place = placeOwn }, false},
		"it only owes a NAK":        {func(o *sequencer, _ *Machine) { o.waits.held.n = 0 }, false},
		"nothing waits in the flow": {func(_ *sequencer, m *Machine) { m.blocked.list = nil }, false},
	} {
		m := &Machine{held: newPool(8)}
		m.held.slots = []heldPacket{{at: began}}
		srv := &server{m: m}
		other := &sequencer{m: m}
		other.s, other.waits.held.n = srv, 1
		m.blocked.list = []*sequencer{other}
		l := &sequencer{m: m, formers: formers{list: []former{}, began: began}}
		l.s = srv
		c.change(other, m)
		if got := l.formers.pending(srv); got != c.want || (l.formers.list != nil) != c.want {
			t.Errorf("%s: waits %v, %v", name, got, l.formers.list)
		}
	}
}

// A request that came too early was dropped: the sequencer has then not seen all requests.
func TestRequestThatCameTooEarly(t *testing.T) {
	for before, after := range map[phase]phase{untouched: partial, passing: partialPassing} {
		m := &Machine{held: newPool(8)}
		m.held.slots = []heldPacket{{}}
		srv := &server{m: m}
		m.blocked.list = []*sequencer{{s: srv, waits: waitingRoom{held: queue{n: 1}}}}
		l := &sequencer{m: m, s: srv, phase: before, formers: formers{list: []former{}}}
		if v := l.request(nil, conntrack.Seen{}, nil); v != pipeline.Drop(ReasonBusy) || l.phase != after || l.m.stats.TooEarly != 1 {
			t.Errorf("%v: %+v, %v, %d counted", before, v, l.phase, l.m.stats.TooEarly)
		}
	}
}

// A change of the rules of a server makes its words wait, if hosts may have sent requests under the former
// rules. Published rules are no concern of the machine. The longest patience counts.
func TestChangeOfAServersRules(t *testing.T) {
	base := rules.Rule{Action: rules.Atomics, From: 64, To: 128, RKey: 5}
	with := func(change func(r *rules.Rule)) []*rules.Rule {
		r := base
		change(&r)
		return []*rules.Rule{&r}
	}
	for name, c := range map[string]struct {
		list []*rules.Rule
		late bool
		want bool
	}{
		"the same":            {with(func(*rules.Rule) {}), true, false},
		"another action":      {with(func(r *rules.Rule) { r.Action = rules.Move }), true, true},
		"another key":         {with(func(r *rules.Rule) { r.RKey++ }), true, true},
		"another first byte":  {with(func(r *rules.Rule) { r.From += 8 }), true, true},
		"another last byte":   {with(func(r *rules.Rule) { r.To += 8 }), true, true},
		"none":                {nil, true, true},
		"before any request":  {with(func(r *rules.Rule) { r.RKey++ }), false, false},
		"another name":        {with(func(r *rules.Rule) { r.ID = "x" }), true, false},
		"a published one too": {append(with(func(*rules.Rule) {}), &rules.Rule{Action: rules.Atomics, Mode: rules.Published}), true, false},
	} {
		s := &server{m: &Machine{late: c.late}, rules: with(func(*rules.Rule) {})}
		if s.setRules(c.list); s.unsettled != c.want {
			t.Errorf("%s: words wait %v", name, s.unsettled)
		}
		if s.unsettled = true; len(s.rules) > 1 {
			t.Errorf("%s: %d rules", name, len(s.rules))
		}
		if s.setRules(s.rules); !s.unsettled {
			t.Errorf("%s: words wait no more", name)
		}
	}
	slow, quick := base, base
	slow.Misses, quick.Misses = rules.AnswerWait, rules.AnswerWait
	want := max(slow.MissPatience(), quick.MissPatience())
	s := &server{m: &Machine{}}
	if s.setRules([]*rules.Rule{&slow, &base, &quick}); s.patience != want || want == 0 {
		t.Errorf("the patience is %v, want %v", s.patience, want)
	}
	if s.setRules([]*rules.Rule{&base}); s.patience != 0 {
		t.Errorf("without a rule that waits, the patience is %v", s.patience)
	}
}

// A new shared connection takes the place of one that is still up: requests in flight on that one end, and its
// queue pair belongs to no connection any more.
func TestSharedConnectionIsReplaced(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	c.one(c.write(64, 0, 8))
	cut := true
	r.tap = func(up bool, port int, _ []byte) bool { return !cut || up || port != r.server.port }
	c.post(c.write(64, 0, 8))
	r.settle()
	k := r.m.servers[0].links[0]
	former, incarnation, breaks := k.ownQPN, k.s.incarnation, k.s.breaks
	if k.conn.Requests.Outstanding() != 1 {
		t.Fatalf("%d requests are in flight", k.conn.Requests.Outstanding())
	}
	k.s.unsettled = false
	r.do(func(ctx *pipeline.Ctx) { r.attach(ctx, 0, 16) })
	if r.m.byQPN[former] != nil || len(r.m.byQPN) != 1 || k.s.incarnation != incarnation+1 || k.s.breaks != breaks+1 || !k.s.unsettled {
		t.Errorf("%v belongs to %v, %d queue pairs, unsettled %v", former, r.m.byQPN[former], len(r.m.byQPN), k.s.unsettled)
	}
	cut = false
	r.run(10 * time.Millisecond)
	c.done(verbs.RemOpErr)
	// The same connection once more is no other one; what has no queue pair at the server is none.
	d := switchconn.Shared{Key: switchconn.Key{Server: ipOf(serverIP)}, Generation: k.generation, OwnQPN: k.ownQPN, ServerQPN: 5}
	r.do(func(ctx *pipeline.Ctx) {
		if !r.m.Attach(ctx, d) || k.s.incarnation != incarnation+1 {
			t.Error("the present connection is not taken as it is")
		}
		d.Generation, d.OwnQPN, d.ServerQPN = d.Generation+1, d.OwnQPN+1, 0
		if r.m.Attach(ctx, d) {
			t.Error("a connection without a queue pair at the server is used")
		}
		d.ServerQPN, d.Key.Shard = 5, 7
		if r.m.Attach(ctx, d) {
			t.Error("a connection that no rule needs is used")
		}
	})
}

// A duplicate that is forwarded on the client's connection asks for an acknowledgement if its client needs one.
func TestRepeatedRequestAsksForAnAcknowledgement(t *testing.T) {
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1)})
	c := r.connect(0)
	l := r.sequencerOf(c)
	for _, tc := range []struct {
		op              wire.Opcode
		ackReq, wantAck bool
		shift           int
		want            pipeline.Verdict
	}{
		{wire.RCSendOnly, false, true, 0, pipeline.Rewrite()},
		{wire.RCSendOnly, true, true, 0, pipeline.Forward()},
		{wire.RCSendOnly, true, true, 1, pipeline.Rewrite()},
		{wire.RCReadRequest, false, false, 0, pipeline.Forward()},
		{wire.RCReadRequest, false, false, 1, pipeline.Rewrite()},
	} {
		p := new(pipeline.Parsed)
		p.BTH.Opcode, p.BTH.PSN, p.BTH.AckReq = tc.op, 100, tc.ackReq
		before := r.m.Stats().Rewritten
		r.do(func(ctx *pipeline.Ctx) {
			d := duplicate{l: l, c: ctx, p: p}
			v := d.toOwn(wire.PSN(100 - tc.shift))
			if v.Action != tc.want.Action || p.BTH.AckReq != tc.wantAck || p.BTH.PSN != wire.PSN(100-tc.shift) {
				t.Errorf("%+v: %v, AckReq %v, PSN %v", tc, v.Action, p.BTH.AckReq, p.BTH.PSN)
			}
		})
		if more := r.m.Stats().Rewritten - before; (more == 1) != (tc.want.Action == pipeline.ActRewrite) {
			t.Errorf("%+v: %d counted", tc, more)
		}
	}
}

// The journal learns the oldest request without an answer of a flow with moved requests: at the first one, and
// whenever one of them has been answered.
func TestOldestUnansweredRequestIsTold(t *testing.T) {
	var told []wire.PSN
	r := newRig(t, rigConfig{clients: 1, rules: moveRule(1), cfg: Config{Answered: func(_ *conntrack.Flow, psn wire.PSN) { told = append(told, psn) }}})
	c := r.connect(0)
	c.one(c.write(64, 0, 8))
	for range 3 {
		told = nil
		c.one(c.write(64, 0, 8))
		if l := r.sequencerOf(c); len(told) == 0 || told[len(told)-1] != l.next {
			t.Errorf("told %v, the next request is %v", told, l.next)
		}
	}
	// Of several requests in flight it is the first one that the server has not answered.
	l := r.sequencerOf(c)
	first, seen := l.next, 0
	r.tap = func(up bool, port int, _ []byte) bool {
		if !up && port == r.server.port {
			seen++
		}
		return up || port != r.server.port || seen <= 1
	}
	told = nil
	c.post(c.write(64, 0, 8), c.write(64, 0, 8), c.write(64, 0, 8))
	r.settle()
	if len(told) == 0 || told[len(told)-1] != first.Add(1) {
		t.Errorf("told %v, the second of three requests from %v on has no answer", told, first)
	}
}
