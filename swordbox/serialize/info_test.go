package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// The line of a flow for an operator: where its requests go, and how many have no answer.
func TestLineOfAFlow(t *testing.T) {
	for name, c := range map[string]struct {
		phase                     phase
		place, records, held, own int
		state                     string
		outstanding               int
	}{
		"own":                  {synced, placeOwn, 0, 0, 0, "own", 0},
		"own, in flight":       {synced, placeOwn, 0, 0, 3, "own", 3},
		"own, READs in flight": {synced, placeOwn, 2, 0, 3, "own", 2},
		"shared":               {synced, 0, 1, 0, 0, "shared", 1},
		"waiting":              {synced, 0, 1, 2, 0, "waiting", 3},
		"own, waiting":         {synced, placeOwn, 0, 2, 3, "waiting", 5},
		"dead":                 {refused, 0, 0, 1, 0, "dead", 1},
		"acknowledged ahead":   {synced, placeOwn, 0, 0, -2, "own", 0},
	} {
		_, l, _ := answersTo(t)
		l.phase, l.place, l.waits.held.n, l.moved = c.phase, c.place, c.held, 6
		l.replies.window = window{max: 8}
		for i := range c.records {
			l.replies.window.add(wire.PSN(100+i), wire.RCReadRequest)
		}
		l.conn.acked = l.conn.psns.own.Add(-c.own)
		want := handler.Flow{
			ID: l.flow.ID, Client: ipOf(1), Server: ipOf(serverIP), ServerQPN: l.flow.RespQPN,
			Moved: 6, Outstanding: c.outstanding, Shift: int(l.conn.psns.shift()), State: c.state,
		}
		if got := l.info(); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// The line of a shared connection: how long its oldest request has waited and as what it was sent,
// and how many requests wait of each client.
func TestLineOfASharedConnection(t *testing.T) {
	r, conns := known(t, rigConfig{clients: 2})
	r.tap = func(up bool, port int, _ []byte) bool { return up || port != r.server.port }
	conns[1].post(conns[1].faa(64, 1, 0), conns[1].faa(64, 1, 8))
	r.run(10 * time.Microsecond)
	conns[0].post(conns[0].faa(64, 1, 0))
	r.run(10 * time.Microsecond)
	k := r.m.servers[0].links[0]
	since, _ := k.conn.Requests.Oldest()
	now := since + clock.Time(777)
	l := r.sequencerOf(conns[1])
	got := k.info(now)
	if got.Server != ipOf(serverIP) || got.Owner != ipOf(switchIP) || got.OwnQPN != k.ownQPN || got.ServerQPN != k.conn.Link().To.DestQP || got.State != "up" ||
		got.NextPSN != k.conn.Requests.NextPSN() || got.Ring != k.conn.Requests.Ring() || got.Outstanding != 3 || got.Queued != 0 || got.Shard != 0 {
		t.Errorf("%+v", got)
	}
	if w := got.Waits; w == nil || w.Age != 777 || w.Client != ipOf(2) || w.ClientQPN != conns[1].qp.Num() || w.ClientPSN != l.next.Add(-2) ||
		w.PSN != k.conn.Requests.NextPSN().Add(-3) || w.Op != wire.RCFetchAdd.String()+"→"+wire.RCWriteOnly.String() {
		t.Errorf("%+v", w)
	}
	want := []handler.Waiter{{Client: ipOf(2), QPN: conns[1].qp.Num(), Entries: 2}, {Client: ipOf(1), QPN: conns[0].qp.Num(), Entries: 1}}
	if len(got.Waiters) != 2 || got.Waiters[0] != want[0] || got.Waiters[1] != want[1] {
		t.Errorf("%+v, want %+v", got.Waiters, want)
	}
	l.replies.window.find(l.next.Add(-2)).op = wire.RCWriteOnly // sent as it came
	if w := k.info(now).Waits; w.Op != wire.RCWriteOnly.String() {
		t.Errorf("%+v", w)
	}
	l.serial++ // its sequencer has gone
	if got := k.info(now); got.Waits.Client != ipOf(1) || len(got.Waiters) != 1 {
		t.Errorf("%+v", got)
	}
	l.serial--
	// Two connections of one client are two waiters.
	l.replies.client = ipOf(1)
	if got := k.info(now); len(got.Waiters) != 2 {
		t.Errorf("%+v", got.Waiters)
	}
}

// The words are shown with the address of their server, and the state of the machine says that its
// rules are hardened.
func TestWordsAreShown(t *testing.T) {
	r, _ := known(t, rigConfig{clients: 1})
	info := r.m.Info(r.now)
	if len(info.Words) != 1 || info.Mode.String() != "hardened" {
		t.Fatalf("%+v", info)
	}
	if w := info.Words[0]; w.Server != ipOf(serverIP) || w.VA != r.server.base+64 || w.State != "Known" || w.Value != 3 || w.Pending != 0 {
		t.Errorf("%+v", w)
	}
	counts := map[string]uint64{}
	for _, c := range info.Counters {
		if _, ok := counts[c.Name]; ok {
			t.Errorf("%s is there twice", c.Name)
		}
		counts[c.Name] = c.Value
	}
	if s := r.m.servers[0].links[0].conn.Stats(); counts["shared_sent"] != s.Sent || s.Sent == 0 || counts["moved"] != r.m.Stats().Moved || counts["words_made"] != 1 {
		t.Errorf("%v, sent %d", counts, s.Sent)
	}
	r.m.flows.list[0].phase = closed
	if n := len(r.m.Info(r.now).Flows); n != len(info.Flows)-1 {
		t.Errorf("%d flows, one has ended of %d", n, len(info.Flows))
	}
	r.m.flows.list[0].phase = synced
}

// Entries of the tables of states are numbered.
func TestStatesAreNumbered(t *testing.T) {
	r := newRig(t, rigConfig{clients: 2, shards: 2, rules: atomicsRule(2)})
	for i := range 2 {
		c := r.connect(i)
		c.one(c.faa(64, 1, 0))
		c.one(c.faa(72, 1, 0))
	}
	seen := map[string]uint32{}
	r.m.States(func(table string, entry uint32, _ string) {
		if entry != seen[table] {
			t.Errorf("%s: entry %d, want %d", table, entry, seen[table])
		}
		seen[table]++
	})
	if seen["word"] != 2 || seen["shared connection"] != 2 || seen["phase"] != uint32(len(r.m.flows.list)) {
		t.Errorf("%v", seen)
	}
	// A free index has no state.
	n := seen["phase"]
	r.do(func(ctx *pipeline.Ctx) { r.m.Closed(ctx, r.m.flows.list[0].flow) })
	visited := uint32(0)
	r.m.States(func(table string, _ uint32, _ string) {
		if table == "phase" {
			visited++
		}
	})
	if visited != n-1 {
		t.Errorf("%d of %d flows are left", visited, n)
	}
	for want, l := range map[string]*sequencer{
		"own": {place: placeOwn}, "own, held": {place: placeOwn, waits: waitingRoom{held: queue{n: 1}}},
		"shared": {}, "shared, held": {waits: waitingRoom{held: queue{n: 1}}},
	} {
		if got := l.placeName(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
