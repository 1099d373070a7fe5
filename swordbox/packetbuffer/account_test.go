package packetbuffer

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// A rule whose mode changes and comes back while frames wait has a queue of its mode at the end, also
// if nothing else happens.
func TestModeComesBack(t *testing.T) {
	const layout = "ring=ms0 rate=8Mbit high=8 low=4 entries=64 "
	for i, modes := range [][2]string{{"hardened", "published"}, {"published", "hardened"}} {
		b := newBed(t, layout+"mode="+modes[0])
		b.send(30, 1000)
		b.rule(layout + "mode=" + modes[1])
		b.send(5, 1000)
		b.rule(layout + "mode=" + modes[0])
		b.send(5, 1000)
		b.run(time.Second)
		b.want("from "+modes[0]+" and back", 40)
		if own, other := b.machines[i], b.machines[1-i]; len(own.queues) != 1 || len(other.queues) != 0 || !b.ports.Has(portOfHost) {
			t.Errorf("%s: %d queues, of the other mode %d", modes[0], len(own.queues), len(other.queues))
		}
		b.send(3, 1000)
		if b.want("limited again", 41); b.machines[i].queues[0].waiting() != 2 {
			t.Errorf("%s: %d frames wait", modes[0], b.machines[i].queues[0].waiting())
		}
	}
}

// The same rule again, also with another rate, moves no ring: no frame is lost. Another depth,
// or another service, does.
func TestSameRingStays(t *testing.T) {
	const layout = "ring=ms0 high=2 low=2 entries=64 "
	b := newBed(t, layout+"rate=8Mbit")
	b.send(20, 1000)
	for _, rule := range []string{"rate=8Mbit", "rate=16Mbit", "rate=8Mbit depth=16"} {
		b.rule(layout + rule)
	}
	b.run(0)
	if s := b.machines[0].Stats(); s.Stored < 10 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
	_, remote := b.machines[0].Waiting()
	b.rule(layout + "rate=8Mbit depth=3")
	if s := b.machines[0].Stats(); s.Lost != uint64(remote) || remote < 10 {
		t.Errorf("%+v, %d were in the ring", s, remote)
	}
	before := b.machines[0].Stats().Lost
	b.send(20, 1000)
	_, remote = b.machines[0].Waiting()
	b.rule(layout + "rate=8Mbit depth=3 service=other")
	if s := b.machines[0].Stats(); s.Lost != before+uint64(remote) || remote < 10 {
		t.Errorf("%+v, %d were in the ring", s, remote)
	}
	b.run(time.Second)
}

// A ring that moves to another server has the connection to this one alone, and the connection to the
// former server is not used any more when it has ended.
func TestLinksOfARingThatMoves(t *testing.T) {
	b := newBed(t, "ring=ms0,ms1 rate=8Mbit entries=64")
	m := b.machines[0]
	former := []switchconn.Key{m.Links.All[0].Key(), m.Links.All[1].Key()}
	b.rule("ring=ms1 rate=8Mbit entries=64")
	if ring := m.list(0)[0].Ring; len(ring) != 1 || ring[0].Address != former[1].Server || !ring[0].Up {
		t.Errorf("%+v", ring)
	}
	if !m.Uses(former[0]) || !m.Uses(former[1]) {
		t.Error("a connection is forgotten before it has ended")
	}
	generation := m.Links.All[0].Generation()
	b.step(func(c *pipeline.Ctx) { m.Detach(c, former[0], generation) })
	if m.Uses(former[0]) || !m.Uses(former[1]) {
		t.Error("after the end of a connection that no rule needs")
	}
	b.rule("")
	generation = m.Links.All[0].Generation()
	b.step(func(c *pipeline.Ctx) { m.Detach(c, former[1], generation) })
	if m.Uses(former[1]) {
		t.Error("after the end of the last connection")
	}
	// A rule that goes before it has a connection leaves nothing.
	b = newBed(t, "")
	set, err := ruleSet(t, "server=cn0 action=buffer ring=ms0 rate=8Mbit")
	if err != nil {
		t.Fatal(err)
	}
	b.machines[0].SetRules(set)
	if b.machines[0].SetRules(&rules.Set{}); b.machines[0].Uses(former[0]) {
		t.Error("a link without a connection and a rule is left")
	}
}

// A failed connection is down in the listing, with its reason, and the program is asked for another.
func TestFailedConnectionIsListed(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit entries=64")
	m := b.machines[0]
	asked := ""
	m.Links.Replace = func(_ *pipeline.Ctx, k switchconn.Key, generation uint32, why string) {
		if k == m.Links.All[0].Key() && generation == b.generation {
			asked = why
		}
	}
	b.step(func(c *pipeline.Ctx) { m.Links.All[0].Failed(c, "it is silent") })
	if r := m.list(0)[0].Ring[0]; r.Up || r.Why != "it is silent" || asked != "it is silent" || m.Stats().Failures != 1 || m.Links.All[0].Up() {
		t.Errorf("%+v, asked: %q", r, asked)
	}
}

// A published ring has as many READs in flight as the rule says, each of one entry.
func TestReadsInFlight(t *testing.T) {
	for _, c := range []struct {
		mode   string
		server int // of the bed's servers
		depth  int
		want   int
	}{{"hardened", 0, 16, 4}, {"published", 1, 16, 4}, {"published", 1, 3, 3}, {"published", 1, 1, 1}} { // a carrier of the bed takes four
		b := newBed(t, fmt.Sprintf("ring=ms0 rate=8Mbit high=8 low=8 entries=64 mode=%s depth=%d", c.mode, c.depth))
		b.send(40, 1000)
		most := 0
		for range 200 {
			b.now = b.now.Add(3 * time.Millisecond)
			b.tick()
			most = max(most, len(b.servers[c.server][0].reads))
			b.answer()
		}
		if b.want(c.mode, 40); most != c.want {
			t.Errorf("%s, depth %d: up to %d READs in flight, want %d", c.mode, c.depth, most, c.want)
		}
	}
}

// The keys of connections begin with the numbers of rings, and differ by port and mode. Each link has
// its own number in captures.
func TestKeysOfRings(t *testing.T) {
	port := 0
	var numbers []uint32
	m := New(Config{Kind: &Kind, Port: func(netip.Addr) int { return port }, Carrier: func(l *Link, number uint32) Carrier {
		numbers = append(numbers, number)
		return &memory{link: l}
	}})
	set, err := ruleSet(t, "server=cn0 action=buffer ring=ms0,ms1 rate=8Mbit")
	if err != nil {
		t.Fatal(err)
	}
	r := &set.All()[0]
	for port = range 3 {
		w := m.Wants(r)
		if len(w) != 2 || w[0].Key.Shard != switchconn.BufferShard+port || w[1].Key.Shard != w[0].Key.Shard || w[0].Key.Server == w[1].Key.Server {
			t.Errorf("port %d: %+v", port, w)
		}
	}
	m.SetRules(set)
	if len(numbers) != 2 || numbers[0] == numbers[1] || numbers[0] <= switchconn.BufferShard || numbers[1] <= switchconn.BufferShard {
		t.Errorf("numbers %v", numbers)
	}
	port = -1
	if w := m.Wants(r); len(w) != 0 {
		t.Errorf("a host without a port: %+v", w)
	}
	if w := New(Config{Kind: &Kind}).Wants(r); len(w) != 0 {
		t.Errorf("no ports are known: %+v", w)
	}
}

// A queue that is called late makes up for a millisecond at most. A frame that comes when the port is
// free again leaves at once.
func TestLateTick(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=64")
	b.send(30, 1000) // 1 ms each
	b.want("at first", 1)
	b.now = b.now.Add(20 * time.Millisecond)
	b.tick()
	b.want("after 20 ms in which nothing was called", 3)
	b.run(27 * time.Millisecond)
	b.want("at its rate", 30)
	b.run(time.Second)
	b.send(1, 1000)
	b.now = b.now.Add(time.Millisecond)
	b.send(1, 1000)
	b.want("as soon as the port is free", 32)
	b.now = b.now.Add(time.Millisecond - 1)
	b.send(1, 1000)
	b.want("before the port is free", 32)
}

// A frame with more parts than the ring has entries is dropped, and counted as that. The listing has
// all drops together.
func TestLongFramesAreCounted(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit high=1 low=1 entries=2 entry=512")
	b.send(2, 1000)
	b.send(3, 4000)
	m := b.machines[0]
	if s := m.Stats(); s.Long != 3 || s.Full+s.Blocked+s.Down != 0 {
		t.Errorf("%+v", s)
	}
	b.send(3, 900)
	b.send(2, 4000)
	if s, l := m.Stats(), m.list(0)[0]; s.Full == 0 || l.Dropped != s.Full+s.Long || l.Dropped == s.Full {
		t.Errorf("%+v, listed %d", s, l.Dropped)
	}
	q := m.queues[0]
	was := q.stats
	q.stats.Full, q.stats.Blocked, q.stats.Long, q.stats.Down = 1, 10, 100, 1000
	if l := m.list(0)[0]; l.Dropped != 1111 {
		t.Errorf("listed %d", l.Dropped)
	}
	q.stats = was
}

// A request in a capture says that the switch made it, and what for.
func TestDescribe(t *testing.T) {
	ch := &channel{}
	for flow, want := range map[uint32]string{0: "buffer: store", 1: "buffer: load", 7: "buffer: load"} {
		var n transform.Note
		if ch.Describe(requester.Tag{Flow: flow}, &n); !n.Made || n.Why != want {
			t.Errorf("ring %d: %+v", flow, n)
		}
	}
}

// A link whose memory does not fit the rule any more is not used, although its connection is there.
func TestUnfitLinkIsNotUsed(t *testing.T) {
	b := newBed(t, "ring=ms0 rate=8Mbit entries=8")
	l, k := b.machines[0].Links.All[0], b.servers[0][0]
	if !l.Up() || !l.Reads() || l.Writes() == 0 {
		t.Error("a link that fits is not used")
	}
	k.up = false
	if l.Up() || l.Reads() || l.Writes() != 0 {
		t.Error("a link without a connection is used")
	}
	k.up = true
	b.rule("ring=ms0 rate=8Mbit entries=1048576")
	if l.Up() || l.Reads() || l.Writes() != 0 {
		t.Error("a link that does not fit is used")
	}
}

// The counters of requests count those of connections that have gone, too.
func TestRequestsOfFormerConnectionsCount(t *testing.T) {
	w := newWired(t, "ring=ms0 rate=8Mbit high=4 low=2 entries=8 entry=2048")
	w.attach()
	for i := range 13 {
		w.send(i)
	}
	w.run(time.Second)
	before, l := submitted(w.m), w.m.Links.All[0]
	w.m.SetRules(nil)
	during := submitted(w.m)
	w.step(func(c *pipeline.Ctx) { w.m.Detach(c, l.Key(), l.Generation()) })
	if after := submitted(w.m); before < 12 || during != before || after != before || len(w.m.Links.All) != 0 {
		t.Errorf("%d requests, without the rule %d, without the connection %d", before, during, after)
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
