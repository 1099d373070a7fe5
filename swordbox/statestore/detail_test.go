package statestore

import (
	"hash/fnv"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

var storeKeyOfBed = switchconn.Key{Server: netip.MustParseAddr("10.0.0.2"), Shard: switchconn.CountShard}

func layout(t *testing.T, text string) Layout {
	t.Helper()
	set, err := ruleSet(t, "server=ms0 action=count "+text)
	if err != nil {
		t.Fatal(err)
	}
	return LayoutOf(&set.All()[0])
}

// A rule's options choose the counter and what a request adds. A request that begins before the
// range of the rule has a counter, too.
func TestLayout(t *testing.T) {
	l := layout(t, "store=ms1")
	if l.Cells != 1024 || l.Offset != 0 || l.Shards != 1 || l.End() != 8192 || l.Amount(&handler.Target{Length: 9}) != 1 {
		t.Errorf("%+v ends at %d", l, l.End())
	}
	l = layout(t, "store=ms1,ms2 slots=9 at=16 add=bytes per=address range=0x40-0x1000")
	if l.End() != 16+5*8 || l.Amount(&handler.Target{Length: 9}) != 9 {
		t.Errorf("%+v ends at %d", l, l.End())
	}
	large := layout(t, "store=ms1,ms2 slots=1073741824 at=8") // 8 GiB
	if store, _, offset := large.Place(1<<30 - 1); store != 1 || offset != 4<<30 || large.End() != 4<<30+8 {
		t.Errorf("the last counter is at %d of store %d; %+v", offset, store, large)
	}
	server := netip.MustParseAddr("10.0.0.1")
	for va, want := range map[uint64]int{0x40: 0, 0x47: 0, 0x48: 1, 0x40 + 8*9: 0, 0x38: (1<<62 - 1) % 9} {
		if got := l.Slot(server, &handler.Target{VA: va}, 0); got != want {
			t.Errorf("address %#x: counter %d, want %d", va, got, want)
		}
	}
}

// The counter of a flow is a hash of both addresses and the queue pair, and the same in every
// incarnation of the switch.
func TestFlowSlot(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::2")
	seen := map[int]bool{}
	for qpn := range wire.QPN(100) {
		h := fnv.New64a()
		from, to := a.As16(), b.As16()
		_, _ = h.Write(append(from[:], to[:]...))
		const prime = 0x100000001b3
		sum := (h.Sum64() ^ uint64(qpn)) * prime
		if got, want := FlowSlot(a, b, qpn, 1000), int((sum^sum>>32)%1000); got != want {
			t.Fatalf("queue pair %v: counter %d, want %d", qpn, got, want)
		}
		seen[FlowSlot(a, b, qpn, 1000)] = true
	}
	if FlowSlot(a, b, 1, 1000) == FlowSlot(b, a, 1, 1000) || len(seen) < 60 {
		t.Errorf("%d counters for 100 flows", len(seen))
	}
	lists := map[int]bool{}
	for i := range uint64(MaxPending) {
		lists[hash(8*i)] = true
	}
	if len(lists) < MaxPending*3/4 { // counters in succession are spread over the lists
		t.Errorf("%d lists", len(lists))
	}
}

// The journal is asked once, and not at all if there is none.
func TestFormerlyIsAskedOnce(t *testing.T) {
	asked := 0
	m := New(handler.Env{FormerlyBehind: func() uint64 { asked++; return 5 }})
	for range 2 {
		if got := m.Formerly(); got != 5 || asked != 1 {
			t.Errorf("%d, asked %d times", got, asked)
		}
	}
	if New(handler.Env{}).Formerly() != 0 {
		t.Error("without a journal")
	}
}

func list(t *testing.T, m *Machine) string {
	t.Helper()
	var out strings.Builder
	if err := PrintStores(&out, netip.Addr.String, m.list(0)); err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(out.String()), " ")
}

// What the listing shows of a connection before, while and after it is up.
func TestListing(t *testing.T) {
	const head = "STORE STATE PENDING IN FLIGHT REGION 10.0.0.2/"
	if got := list(t, New(handler.Env{})); !strings.HasPrefix(got, "no rule counts") {
		t.Error(got)
	}
	b := newBed(t, "per=address slots=64 depth=4 add=bytes shards=2")
	if got, want := list(t, b.m), head+"0 idle 0 (0) 0 (0 of 4) - 10.0.0.2/1 idle 0 (0) 0 (0 of 4) -"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	b.observe(0)
	b.attach(2, 7)
	for i := range uint64(4) {
		b.observe(16 * i)
	}
	if got, want := list(t, b.m), head+"0 up 24 (3) 16 (2 of 2) 0x10000+65536, R_Key 0x7 10.0.0.2/1"; !strings.HasPrefix(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
	if s := b.m.Stats(); s.Adds != 2 || s.Requests != 5 || s.Amount != 40 {
		t.Errorf("%+v", s)
	}
	tables := b.m.Tables()
	if len(tables) != 1 || tables[0].Used != 3 || tables[0].Max != 2*MaxPending || b.m.ClearTable(tables[0].Name) != 0 || b.m.Tables()[0].Used != 3 {
		t.Errorf("%+v", tables)
	}
	b.answer(7, wire.NakRemoteAccess)
	if got := list(t, b.m); !strings.HasPrefix(got, head+"0 down 40 (4) 0 (0 of 4) 0x10000+65536, R_Key 0x7 the server refused") {
		t.Error(got)
	}
	var out strings.Builder
	if err := printSlots(&out, netip.Addr.String, b.m.slots(0)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || strings.Join(strings.Fields(lines[0]), " ") != "RULE SLOT STORE OFFSET CLIENT SERVER QP ADDRESS" ||
		strings.Join(strings.Fields(lines[2]), " ") != "r1 2 10.0.0.2 0x10 invalid IP 10.0.0.1 0x0 0x10" {
		t.Errorf("%q", lines)
	}
	out.Reset()
	if err := printSlots(&out, netip.Addr.String, nil); err != nil || !strings.HasPrefix(out.String(), "no request was counted") {
		t.Errorf("%s, %v", out.String(), err)
	}
}

// A connection whose rules have gone ends with what waits for it dropped, and is not listed any
// more. Detach ends only the connection that it names.
func TestDetachWithoutARule(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=1")
	b.attach(16, 7)
	b.observe(0)
	b.observe(8)
	if !b.m.Uses(storeKeyOfBed) || b.m.Uses(switchconn.Key{Server: storeKeyOfBed.Server, Shard: storeKeyOfBed.Shard + 1}) || !b.m.Mine(0x30) {
		t.Error("the connection is not used")
	}
	empty, err := rules.NewSet(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.m.SetRules(empty)
	if !b.m.Uses(storeKeyOfBed) || len(b.m.list(0)) != 1 {
		t.Error("what waits is forgotten")
	}
	b.step(func(c *pipeline.Ctx) {
		b.m.Detach(c, storeKeyOfBed, 2) // another generation
		b.m.Detach(c, switchconn.Key{Server: storeKeyOfBed.Server, Shard: storeKeyOfBed.Shard + 1}, 1)
	})
	if s := b.m.Stats(); s.Uncertain != 0 || !b.m.Mine(0x30) {
		t.Errorf("%+v", s)
	}
	b.step(func(c *pipeline.Ctx) { b.m.Detach(c, storeKeyOfBed, b.connected) })
	if s := b.m.Stats(); s.Uncertain != 1 || s.Dropped != 1 || b.m.Mine(0x30) || b.m.Uses(storeKeyOfBed) || len(b.m.list(0)) != 0 {
		t.Errorf("%+v, %+v", s, b.m.list(0))
	}
	if p, f := b.m.Waiting(); p != 0 || f != 0 || b.journal != 1 {
		t.Errorf("%d wait, %d in flight, journal %d", p, f, b.journal)
	}
}

// Detach keeps what waits for a store that a rule still names.
func TestDetachWithARule(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=1")
	b.attach(16, 7)
	b.observe(0)
	b.observe(8)
	b.step(func(c *pipeline.Ctx) { b.m.Detach(c, storeKeyOfBed, b.connected) })
	if p, _ := b.m.Waiting(); p != 1 || b.m.Stats().Dropped != 0 || b.m.Stats().Uncertain != 1 {
		t.Errorf("%d wait, %+v", p, b.m.Stats())
	}
}

// A new connection takes the place of the one that is up, whose requests in flight are uncertain. A
// connection to another server is not taken.
func TestAttachInPlace(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=4")
	b.attach(16, 7)
	b.observe(0)
	b.attach(16, 100)
	b.observe(8)
	if s := b.m.Stats(); s.Uncertain != 1 || s.Adds != 2 || s.Restarts != 0 || b.lastPSN != 100 {
		t.Errorf("%+v, PSN %v", s, b.lastPSN)
	}
	b.region.Addr += 8
	b.attach(16, 200)
	if s := b.m.Stats(); s.Restarts != 1 {
		t.Errorf("%+v", s)
	}
	b.step(func(c *pipeline.Ctx) {
		if b.m.Attach(c, switchconn.Shared{Key: switchconn.Key{Server: netip.MustParseAddr("10.0.0.7")}}) {
			t.Error("a connection of another server is taken")
		}
	})
}

// A packet to the connection's queue pair from another address, or to a queue pair of no store, is
// dropped and counted.
func TestStrangers(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=4")
	b.attach(16, 7)
	b.observe(0)
	for _, c := range []struct {
		qpn  wire.QPN
		last byte
	}{{0x30, 3}, {0x31, 2}} {
		p := &pipeline.Parsed{}
		p.IPv4.Src = [4]byte{10, 0, 0, c.last}
		p.BTH = wire.BTH{Opcode: wire.RCAtomicAck, DestQP: c.qpn, PSN: 7}
		p.AETH.Syndrome = wire.AckNoCredits
		b.step(func(ctx *pipeline.Ctx) {
			if v := b.m.Owned(ctx, p); v != pipeline.Drop(ReasonStranger) {
				t.Errorf("%+v: %+v", c, v)
			}
		})
	}
	if s := b.m.Stats(); s.Strangers != 2 || s.Applied != 0 {
		t.Errorf("%+v", s)
	}
}

// A FETCH_ADD that is not answered is sent again when the machine is due, and counted in the end as
// uncertain.
func TestTickSendsAgain(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=4")
	b.attach(16, 7)
	if b.m.Deadline() != clock.Never {
		t.Errorf("deadline %v", b.m.Deadline())
	}
	b.observe(0)
	b.step(b.m.Tick)
	if len(b.sentAdds) != 1 || b.m.Deadline() == clock.Never {
		t.Errorf("%d sent, deadline %v", len(b.sentAdds), b.m.Deadline())
	}
	for n := 1; b.m.Deadline() != clock.Never && n < 1000; n++ {
		if len(b.sentAdds) != n {
			t.Fatalf("%d sent, want %d", len(b.sentAdds), n)
		}
		b.now = b.m.Deadline().Add(-time.Microsecond) // the step is at the deadline
		b.step(b.m.Tick)
	}
	if s := b.m.Stats(); s.Uncertain != 1 || s.Failures != 1 || b.failed != 1 || b.journal != 1 {
		t.Errorf("%+v, journal %d", s, b.journal)
	}
}

// Under a rule whose stores are not known as addresses, what is counted is dropped; a request of
// another rule is none of the machine's.
func TestRuleWithoutStores(t *testing.T) {
	r, err := rules.Parse("server=10.0.0.1 action=count store=ms9 add=bytes")
	if err != nil {
		t.Fatal(err)
	}
	set, err := rules.NewSet([]rules.Rule{r})
	if err != nil {
		t.Fatal(err)
	}
	m := New(handler.Env{})
	m.SetRules(set)
	m.Observe(nil, &set.All()[0], handler.Target{Length: 9})
	m.Observe(nil, &rules.Rule{}, handler.Target{Length: 9})
	if s := m.Stats(); s.Requests != 1 || s.Amount != 9 || s.Dropped != 9 {
		t.Errorf("%+v", s)
	}
	if l := m.slots(0); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}

// What a chip would need grows with the connections and their depth.
func TestSpec(t *testing.T) {
	empty, b := New(handler.Env{}).Spec(), newBed(t, "slots=64 depth=4 shards=3").m.Spec()
	for _, c := range []struct {
		part     pipeline.Part
		n, depth int
	}{{empty, 1, rules.MaxDepth}, {b, 3, 4}} {
		r := c.part.Registers
		if len(r) != 3 || r[0].Entries != c.n*MaxPending || r[0].Each != MaxPending || r[1].Entries != c.n*c.depth || r[1].Each != c.depth || r[2].Entries != c.n {
			t.Errorf("%+v", r)
		}
		// A counter's number, 64 bits of an amount and a mark; a PSN instead of the mark; queue pair,
		// three PSNs' worth of window, and the region.
		if r[0].Width != 97 || r[1].Width != 120 || r[2].Width != 24+48+16+64+32+64 {
			t.Errorf("widths %d, %d, %d", r[0].Width, r[1].Width, r[2].Width)
		}
		if table := c.part.Tables[0]; len(c.part.Tables) != 1 || table.KeyBits != 288 || table.ValueBits != 76 || table.Entries != rules.MaxRules {
			t.Errorf("%+v", c.part.Tables)
		}
		if c.part.Needs[0].Count != c.n || c.part.Needs[1].Count != 1 {
			t.Errorf("%+v", c.part.Needs)
		}
	}
	if sketch := newBed(t, "slots=64 rows=4").m.Spec(); sketch.Needs[1].Count != 4 {
		t.Errorf("a request of a sketch makes %d packets", sketch.Needs[1].Count)
	}
	n := transform.Note{}
	(&channel{}).Describe(requester.Tag{}, &n)
	if !n.Made || n.Why != "count" {
		t.Errorf("%+v", n)
	}
}
