package statestore

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// setRules replaces the rules of a bed by one.
func (b *bed) setRules(text string) {
	b.t.Helper()
	set, err := ruleSet(b.t, "server=ms0 action=count "+text)
	if err != nil {
		b.t.Fatal(err)
	}
	b.m.SetRules(set)
	b.rule = &set.All()[0]
}

// When too many counters wait, what further ones count is dropped; a counter that waits already goes
// on counting. What a server refuses then has no room either.
func TestTooManyCountersWait(t *testing.T) {
	b := newBed(t, "per=address slots=4096 depth=1")
	b.attach(16, 7)
	for i := range uint64(MaxPending + 2) { // one in flight, MaxPending wait
		b.observe(8 * i)
	}
	b.observe(8 * MaxPending)
	if s, p := b.m.Stats(), pendingOf(b); s.Dropped != 1 || p != MaxPending+1 {
		t.Errorf("%+v, %d wait", s, p)
	}
	b.answer(7, wire.NakRemoteAccess)
	if s, p := b.m.Stats(), pendingOf(b); s.Dropped != 2 || p != MaxPending+1 {
		t.Errorf("after a refusal: %+v, %d wait", s, p)
	}
}

func pendingOf(b *bed) uint64 {
	p, _ := b.m.Waiting()
	return p
}

// The new depth of a rule is in force at once if there is no connection, and otherwise with the next
// connection. The present connection goes on, and its counters of requests never go back.
func TestDepthWithoutAConnection(t *testing.T) {
	b := newBed(t, "slots=64 per=address depth=4")
	b.observe(0)
	b.setRules("store=ms1 slots=64 per=address depth=8")
	if l := b.m.list(0); len(l) != 1 || l[0].Depth != 8 || l[0].Pending != 1 {
		t.Errorf("%+v", l)
	}
	b.attach(16, 7)
	b.answer(7, wire.AckNoCredits)
	b.setRules("store=ms1 slots=64 per=address depth=2")
	if l := b.m.list(0); l[0].Depth != 8 || l[0].State != requester.Up.String() {
		t.Errorf("%+v", l)
	}
	b.observe(8)
	if len(b.sentAdds) != 2 {
		t.Errorf("%d FETCH_ADDs", len(b.sentAdds))
	}
	b.answer(8, wire.AckNoCredits)
	b.setRules("store=ms1 slots=64 per=address depth=8")
	b.step(func(c *pipeline.Ctx) { b.m.Detach(c, storeKeyOfBed, b.connected) })
	b.attach(16, 100)
	for _, c := range b.m.Info(0).Counters {
		if c.Name == "requester_submitted" && c.Value != 2 {
			t.Errorf("%d requests before the connection was replaced, want 2", c.Value)
		}
	}
}

// The journal has an amount before a packet with it leaves, and what an earlier incarnation has left
// there is read before it is written. It is written when the amount changes, and only then.
func TestJournal(t *testing.T) {
	b := newBed(t, "slots=64 per=address depth=4")
	var events []string
	set, err := ruleSet(t, b.rule.String())
	if err != nil {
		t.Fatal(err)
	}
	journal := b.m.env.Behind
	b.m = New(handler.Env{
		Behind: func(n uint64) {
			events = append(events, fmt.Sprintf("%d behind, %d sent", n, b.m.Stats().Adds))
			journal(n)
		},
		FormerlyBehind: func() uint64 { events = append(events, "read"); return 0 },
	})
	b.m.SetRules(set)
	b.rule = &set.All()[0]
	if len(events) != 0 {
		t.Errorf("%q before the first request", events)
	}
	b.attach(16, 7)
	b.observe(0)
	b.step(b.m.Tick)
	b.answer(7, wire.AckNoCredits)
	b.step(b.m.Tick)
	if want := []string{"read", "1 behind, 0 sent", "0 behind, 1 sent"}; !slices.Equal(events, want) {
		t.Errorf("%q, want %q", events, want)
	}
	// Without a journal the machine counts as well.
	b.m = New(handler.Env{})
	b.m.SetRules(set)
	b.sw.Step(b.now, nil, func(c *pipeline.Ctx) { b.m.Observe(c, b.rule, handler.Target{VA: 8}) })
	if b.m.Stats().Requests != 1 || pendingOf(b) != 1 {
		t.Errorf("%+v", b.m.Stats())
	}
}

// What waited for a connection and turns out to be outside of the server's memory is not at risk any
// more.
func TestOutsideWhenTheConnectionComes(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=2")
	b.region.Len = 16
	b.observe(16)
	b.observe(8)
	b.attach(16, 0)
	if s := b.m.Stats(); s.Outside != 1 || s.Dropped != 1 || len(b.sentAdds) != 1 || b.journal != 1 {
		t.Errorf("%+v, %v, journal %d", s, b.sentAdds, b.journal)
	}
}

// Each counter is counted on the connection of its server and shard.
func TestConnectionOfACounter(t *testing.T) {
	b := newBed(t, "")
	b.setRules("store=ms1,ms2 slots=64 per=address shards=3")
	l := LayoutOf(b.rule)
	want := map[string]uint64{}
	for slot := range uint64(20) {
		store, shard, _ := l.Place(int(slot))
		want[fmt.Sprint(l.Servers[store], "/", shard)] += slot + 1
		for range slot + 1 {
			b.observe(8 * slot)
		}
	}
	list := b.m.list(0)
	for _, s := range list {
		if name := fmt.Sprint(s.Server, "/", s.Shard); s.Pending != want[name] {
			t.Errorf("%d wait for %s, want %d", s.Pending, name, want[name])
		}
	}
	if len(list) != 6 || len(want) != 6 {
		t.Errorf("%d connections, want %d of 6", len(list), len(want))
	}
	// Their numbers in captures differ, and are those of counting connections.
	numbers := map[uint32]bool{}
	for _, ch := range b.m.Links.All {
		if n := ch.conn.Number(); numbers[n] || n <= switchconn.CountShard {
			t.Errorf("number %d", n)
		}
		numbers[ch.conn.Number()] = true
	}
}

// When a rule goes, the listings show nothing of it. Its connection stays until it is ended; it is
// listed as long as something is in flight on it.
func TestListingsAfterTheRule(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=2")
	b.attach(16, 7)
	b.observe(0)
	if len(b.m.slots(0)) != 1 {
		t.Errorf("%+v", b.m.slots(0))
	}
	other, err := ruleSet(t, "server=ms0 action=count", "server=ms1 action=count store=ms2 mode=published")
	if err != nil {
		t.Fatal(err)
	}
	b.m.SetRules(other)
	if l, s := b.m.list(0), b.m.slots(0); len(l) != 1 || l[0].Adds != 1 || len(s) != 0 {
		t.Errorf("%+v, %+v", l, s)
	}
	b.answer(7, wire.AckNoCredits)
	if l := b.m.list(0); len(l) != 0 || !b.m.Mine(0x30) {
		t.Errorf("%+v", l)
	}
	if tables := New(handler.Env{}).Tables(); tables[0].Max != MaxPending || tables[0].Used != 0 {
		t.Errorf("%+v", tables)
	}
	for i := range other.All() {
		for _, w := range b.m.Wants(&other.All()[i]) {
			if b.m.Uses(w.Key) {
				t.Errorf("%v is used", w.Key)
			}
		}
	}
	if b.m.Uses(switchconn.Key{Server: netip.MustParseAddr("10.0.0.3"), Shard: switchconn.CountShard}) {
		t.Error("a published rule is served")
	}
}

// The counters of requests count those of connections that have gone, too, and of a depth that has
// changed.
func TestRequestsOfFormerConnectionsCount(t *testing.T) {
	const rule = "store=ms1 slots=64 per=address "
	b := newBed(t, "slots=64 per=address depth=4")
	request := func(psn wire.PSN) {
		b.attach(16, psn)
		b.observe(0)
		b.answer(psn, wire.AckNoCredits)
		b.step(func(c *pipeline.Ctx) { b.m.Detach(c, storeKeyOfBed, b.connected) })
	}
	request(7)
	b.setRules(rule + "depth=8")
	request(100)
	b.m.SetRules(nil)
	if n := submitted(b.m); n != 2 || len(b.m.Links.All) != 0 {
		t.Errorf("after the rule %d requests, %d connections", n, len(b.m.Links.All))
	}
	b.setRules(rule + "depth=8")
	b.attach(16, 200)
	b.observe(0)
	b.m.SetRules(nil)
	if b.step(func(c *pipeline.Ctx) { b.m.Detach(c, storeKeyOfBed, b.connected) }); submitted(b.m) != 3 || len(b.m.Links.All) != 0 {
		t.Errorf("after the connection %d requests, %d connections", submitted(b.m), len(b.m.Links.All))
	}
}

// A change of other rules leaves the counters their last requests; a change of the rule itself does
// not.
func TestLastRequestsStay(t *testing.T) {
	const rule = "id=a server=ms0 action=count store=ms1 slots=64 per=address"
	b := newBed(t, "id=a slots=64 per=address")
	b.attach(16, 7)
	b.observe(8)
	want := b.m.slots(0)
	for i, text := range []string{rule, rule + " depth=8"} {
		set, err := ruleSet(t, "server=ms1 action=count", text)
		if err != nil {
			t.Fatal(err)
		}
		b.m.SetRules(set)
		if got := b.m.slots(0); len(want) != 1 || slices.Equal(got, want) != (i == 0) || i == 1 && len(got) != 0 {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// submitted returns the counter of requests that the machine has submitted.
func submitted(m *Machine) uint64 {
	for _, c := range m.Info(0).Counters {
		if c.Name == "requester_submitted" {
			return c.Value
		}
	}
	return 0
}
