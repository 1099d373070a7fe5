package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// What the rules make of the servers: their addresses, how many shared connections they need, and
// whether words and keys count. Words and keys count from then on for good.
func TestRulesMakeServers(t *testing.T) {
	m := New(Config{})
	a, b, c, d := ipOf(1), ipOf(2), ipOf(3), ipOf(4)
	set := func(list ...rules.Rule) {
		t.Helper()
		s, err := rules.NewSet(list)
		if err != nil {
			t.Fatal(err)
		}
		m.kick = false
		m.SetRules(s)
	}
	set(rules.Rule{Server: a, Action: rules.Move, Shards: 2},
		rules.Rule{Server: b, Action: rules.Atomics, From: 0, To: 64, Shards: 3},
		rules.Rule{Server: b, Action: rules.Atomics, From: 64, To: 128, Shards: 3},
		rules.Rule{Server: c, Action: rules.Move, Mode: rules.Published})
	if len(m.servers) != 2 || m.byAddr[c] != nil || len(m.byAddr) != 2 || m.Draining() || m.kick {
		t.Fatalf("%d servers, %d addresses, leaving %d", len(m.servers), len(m.byAddr), len(m.leaving))
	}
	first, second := m.byAddr[a], m.byAddr[b]
	check := func(s *server, moves, watch, proves bool, shards int) {
		t.Helper()
		if s.moves != moves || s.watch != watch || s.proves != proves || s.shards != shards {
			t.Errorf("server %v: moves %v, words count %v, keys count %v, %d shards", s.addr, s.moves, s.watch, s.proves, s.shards)
		}
	}
	check(first, true, false, true, 2)
	check(second, true, true, false, 3)
	if !m.late || first.index != 0 || second.index != 1 {
		t.Errorf("servers %d and %d, late %v", first.index, second.index, m.late)
	}
	set(rules.Rule{Server: a, Action: rules.Atomics, Shards: 1})
	check(first, true, true, true, 1)
	check(second, false, true, false, 3)
	if m.byAddr[a] != first || m.byAddr[b] != nil || m.leaving[b] != second || len(m.leaving) != 1 || !m.kick {
		t.Errorf("%d addresses, leaving %d, held requests are looked at: %v", len(m.byAddr), len(m.leaving), m.kick)
	}
	set(rules.Rule{Server: b, Action: rules.Move}, rules.Rule{Server: d, Action: rules.Move})
	check(second, true, true, true, 1)
	if m.byAddr[b] != second || m.leaving[b] != nil || m.leaving[a] != first || len(m.servers) != 3 || m.byAddr[d].index != 2 {
		t.Errorf("%d servers, leaving %v", len(m.servers), m.leaving)
	}
}

// Every address of a server leads to it, and a server without rules is found by each of them.
func TestServerWithSeveralAddresses(t *testing.T) {
	m := New(Config{})
	set, err := rules.NewSet([]rules.Rule{{Server: ipOf(1), Action: rules.Move}})
	if err != nil {
		t.Fatal(err)
	}
	set.All()[0].Also = append(set.All()[0].Also, ipOf(2))
	m.SetRules(set)
	s := m.byAddr[ipOf(1)]
	if s == nil || m.byAddr[ipOf(2)] != s {
		t.Fatalf("%v", m.byAddr)
	}
	m.SetRules(nil)
	if m.leaving[ipOf(1)] != s || m.leaving[ipOf(2)] != s || len(m.byAddr) != 0 {
		t.Errorf("%v leave", m.leaving)
	}
}

// A rule wants one connection for each shard, if it names a service.
func TestWantedConnections(t *testing.T) {
	m := New(Config{})
	r := rules.Rule{Server: ipOf(1), Action: rules.Move, Shards: 3, MTU: 1024, MaxRdAtomic: 7}
	if got := m.Wants(&r); got != nil {
		t.Errorf("%+v", got)
	}
	r.Service = "memory"
	list := m.Wants(&r)
	for i, w := range list {
		if w.Key != (switchconn.Key{Server: ipOf(1), Shard: i}) || w.Target != (switchconn.Target{Service: "memory", MTU: 1024, Depth: 7}) {
			t.Errorf("connection %d: %+v", i, w)
		}
	}
	if len(list) != 3 {
		t.Errorf("%d connections", len(list))
	}
}

// A shared connection is found by its server and the number of its shard.
func TestSharedConnectionsByKey(t *testing.T) {
	s := &server{addr: ipOf(1), links: []*link{{shard: 0}, {shard: 1}}}
	m := &Machine{servers: []*server{{addr: ipOf(2)}, s}}
	for shard, want := range map[int]*link{-1: nil, 0: s.links[0], 1: s.links[1], 2: nil} {
		if got := m.link(switchconn.Key{Server: ipOf(1), Shard: shard}); got != want {
			t.Errorf("shard %d: %v", shard, got)
		}
	}
	if m.link(switchconn.Key{Server: ipOf(2)}) != nil || m.link(switchconn.Key{Server: ipOf(3)}) != nil {
		t.Error("another server has a connection")
	}
}

// The machine is called at the earliest of its deadlines, and at once while held requests may be
// free to go.
func TestDeadlineOfTheMachine(t *testing.T) {
	r, l, _ := answersTo(t)
	m := r.m
	if at := m.Deadline(); at != clock.Never {
		t.Errorf("nothing waits, and the deadline is %v", at)
	}
	m.due.Set(l.index, 500)
	if at := m.Deadline(); at != 500 {
		t.Errorf("%v, want 500", at)
	}
	w := m.words.Get(100, atomiccache.Key{VA: 64})
	w.Answered(100, w.Decide(100, 0, 5, wire.RCFetchAdd, 0, 0), 0)
	w.Foreign(100)
	w.Decide(100, 101, 5, wire.RCFetchAdd, 0, 0) // busy, for a patience
	m.due.Remove(l.index)
	want := clock.Time(100).Add(time.Millisecond)
	if at := m.Deadline(); at != want {
		t.Errorf("%v, want the end of the word's patience %v", at, want)
	}
	m.due.Set(l.index, 500)
	if at := m.Deadline(); at != 500 {
		t.Errorf("%v, want 500", at)
	}
	if m.kick = true; m.Deadline() != 0 {
		t.Error("held requests may go, and the machine is not called")
	}
}

// A sequencer begins with what the switch knows of its flow and server.
func TestNewSequencers(t *testing.T) {
	r, l, _ := answersTo(t)
	s := l.s
	s.breaks = 4
	for _, c := range []struct {
		flow *conntrack.Flow
		want phase
	}{
		{&conntrack.Flow{Generation: 9}, untouched},
		{&conntrack.Flow{Generation: 9, Sequence: conntrack.Sequence{Middle: true}}, partial},
	} {
		n := r.m.newSequencer(77, c.flow, s)
		if n.phase != c.want || n.generation != 9 || n.place != placeOwn || n.formers.began != 77 || n.conn.proof.breaks != 4 || n.conn.ops.max != r.m.cfg.OwnOps ||
			n.replies.window.max != r.m.cfg.Window || c.flow.Ext != n || r.m.flows.list[n.index] != n || n.serial == l.serial {
			t.Errorf("%+v", n)
		}
	}
}

// When a flow ends, its sequencer belongs to it no more. Old requests to the server have then not
// all ended if one was in flight on the client's connection.
func TestFlowsEnd(t *testing.T) {
	for _, flying := range []bool{false, true} {
		r, l, _ := answersTo(t)
		if flying {
			l.conn.acked = l.conn.acked.Add(-1)
		}
		l.s.unsettled = false
		flow := l.flow
		r.do(func(ctx *pipeline.Ctx) {
			r.m.Closed(ctx, flow)
			if flow.Ext != nil || l.phase != closed || l.s.unsettled != flying {
				t.Errorf("in flight %v: %v, phase %v, unsettled %v", flying, flow.Ext, l.phase, l.s.unsettled)
			}
			flow.Ext, l.s.unsettled = l, false
			l.conn.acked = l.conn.psns.own.Add(-1)
			if r.m.Closed(ctx, flow); l.s.unsettled || len(r.m.flows.free) != 1 {
				t.Errorf("it ends twice: %v", r.m.flows.free)
			}
			flow.Ext = nil
			r.m.Closed(ctx, flow) // of no sequencer
		})
	}
	r, l, _ := answersTo(t)
	l.conn.acked, l.s.unsettled = l.conn.psns.own, true
	if r.do(func(ctx *pipeline.Ctx) { r.m.Closed(ctx, l.flow) }); !l.s.unsettled {
		t.Error("earlier requests count as ended")
	}
}

// The deadlines of sequencers and shared connections that have passed are handled, and no others.
func TestTicksOfTheMachine(t *testing.T) {
	r, l, _ := answersTo(t)
	other := r.sequencerOf(r.connect(0))
	for _, s := range []*sequencer{l, other} {
		s.replies.window = window{max: 8}
		read := s.replies.window.add(s.next.Add(-1), wire.RCReadRequest)
		s.replies.window.finish(read)
		s.replies.window.follow(read, evRedo)
	}
	l.replies.redoAt, other.replies.redoAt = r.now+10, r.now+11
	l.schedule()
	other.schedule()
	r.now += 10
	r.do(func(*pipeline.Ctx) {})
	if l.replies.window.redos != 0 || other.replies.window.redos != 1 {
		t.Errorf("%d and %d READs are awaited", l.replies.window.redos, other.replies.window.redos)
	}
	r.now++
	r.do(func(*pipeline.Ctx) {})
	if _, at := r.m.due.Next(); other.replies.window.redos != 0 || at != clock.Never {
		t.Errorf("%d READs are awaited, deadline %v", other.replies.window.redos, at)
	}
}
