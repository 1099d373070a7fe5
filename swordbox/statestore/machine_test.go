package statestore

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

func ruleSet(t testing.TB, texts ...string) (*rules.Set, error) {
	t.Helper()
	hosts := map[string]netip.Addr{"ms0": netip.MustParseAddr("10.0.0.1"), "ms1": netip.MustParseAddr("10.0.0.2"), "ms2": netip.MustParseAddr("10.0.0.3")}
	var list []rules.Rule
	for _, text := range texts {
		r, err := rules.Parse(text)
		if err == nil {
			err = r.Resolve(func(name string) []netip.Addr {
				if name == "fd00::2" { // the other address of ms1
					name = "ms1"
				}
				if a, ok := hosts[name]; ok {
					return []netip.Addr{a}
				}
				return nil
			})
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return rules.NewSet(list)
}

func TestRules(t *testing.T) {
	const base = "server=ms0 action=count "
	for text, want := range map[string]string{
		"store=ms1": "",
		"store=ms1,ms2 at=8 unit=page add=bytes depth=4 shards=2 mode=published": "",
		"slots=8":                         "slots has no meaning without store",
		"mode=published":                  "no mode published without store",
		"store=ms9":                       `"ms9" is no host`,
		"store=ms1,ms1":                   `"ms1" is there twice`,
		"store=fd00::9,fd00:0::9":         `"fd00::9" is there twice`,
		"store=ms1,FD00:0::2":             `"10.0.0.2" is there twice`,
		"store=,":                         "neither a host's name nor an address",
		"store=0.0.0.0":                   "no address of a machine",
		"store=a,b,c,d,e,f,g,h,i":         "9 servers; at most 8",
		"store=ms1 at=4":                  "use a multiple of 8",
		"store=ms1 slots=0":               "no number from 1 to 1073741824",
		"store=ms1 slots=1073741825":      "no number from 1 to 1073741824",
		"store=ms1 per=word":              "use one of flow, address",
		"store=ms1 add=packets":           "use one of requests, bytes",
		"store=ms1 top=5":                 "a rule with store has slots",
		"store=ms1 service=none":          "name its service",
		"store=ms1 cap=1Mbit dscp=63":     "",
		"cap=1Gbit":                       "cap has no meaning without store",
		"store=ms1 cap=1Kbit":             "use 1Mbit to 1Tbit",
		"store=ms1 cap=fast":              "fast",
		"store=ms1 dscp=64":               "no number from 0 to 63",
		"store=ms1 dscp=1 mode=published": "dscp: requests of a published rule have no limits",
	} {
		_, err := ruleSet(t, base+text)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	for _, tc := range []struct{ one, other, want string }{
		{"range=0-0x1000 store=ms1 slots=8", "range=0x1000-0x2000 store=ms2,ms1 slots=8 at=64", ""},
		{"range=0-0x1000 store=ms1 slots=8", "range=0x1000-0x2000 store=ms1 slots=8 at=56", "give one of them at=0x78"},
		{"range=0-0x1000 store=ms1 slots=8", "range=0x1000-0x2000 store=ms1 slots=8 at=64 depth=1", "must be the same in both"},
		{"range=0-0x1000 store=ms1 slots=8", "range=0x1000-0x2000 store=ms1 slots=8 at=64 cap=1Gbit", "cap and dscp must be the same in both"},
		{"range=0-0x1000 store=ms1 slots=8", "range=0x1000-0x2000 store=ms1 at=64 mode=published", "must be the same in both"},
		{"range=0-0x1000 store=fd00::9", "range=0x1000-0x2000 store=fd00:0::9", "their counters overlap"},
		{"range=0-0x1000 store=fd00:0::2 slots=8", "range=0x1000-0x2000 store=ms1 slots=8 at=64 depth=1", "must be the same in both"},
	} {
		_, err := ruleSet(t, base+tc.one, base+tc.other)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s, %s: %v, want %q", tc.one, tc.other, err, tc.want)
		}
	}
}

// The text of a resolved rule, which the journal and the listing have, is read again as the same rule.
func TestResolvedRuleIsReadAgain(t *testing.T) {
	set, err := ruleSet(t, "server=ms0 action=count store=ms1,ms2 slots=9")
	if err != nil {
		t.Fatal(err)
	}
	again, err := ruleSet(t, set.All()[0].String())
	if err != nil || again.All()[0].String() != set.All()[0].String() {
		t.Errorf("%v: %v", set.All()[0], err)
	}
}

// Each counter has its own place, within the bounds of its store.
func TestEveryCounterHasItsPlace(t *testing.T) {
	set, err := ruleSet(t, "server=ms0 action=count store=ms1,ms2 slots=9 at=16 shards=3")
	if err != nil {
		t.Fatal(err)
	}
	l := LayoutOf(&set.All()[0])
	type place struct {
		store int
		off   uint64
	}
	seen := make(map[place]bool)
	for slot := range l.Cells {
		store, shard, off := l.Place(slot)
		if seen[place{store, off}] || store >= 2 || shard >= 3 || off < 16 || off+8 > l.End() || off%8 != 0 {
			t.Errorf("slot %d is at store %d, shard %d, offset %d", slot, store, shard, off)
		}
		seen[place{store, off}] = true
	}
}

// The table of what waits behaves like a map with a queue, of MaxPending entries.
func TestPendingIsAMapInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var p pending
	p.reset()
	sums, order := map[uint64]uint64{}, []uint64(nil)
	full := 0
	for range 200_000 {
		if r.IntN(100) < 40 {
			off, n, ok := p.next()
			if ok != (len(order) > 0) || ok && (off != order[0] || n != sums[off]) {
				t.Fatalf("next: %d, %d, %v; want %v", off, n, ok, order[:min(1, len(order))])
			}
			if ok {
				delete(sums, off)
				order = order[1:]
			}
			continue
		}
		off, n := 8*uint64(r.IntN(3000)), uint64(r.IntN(5))
		_, known := sums[off]
		if ok := p.add(off, n); ok != (known || len(order) < MaxPending) {
			t.Fatalf("add: %v with %d entries", ok, len(order))
		} else if !ok {
			full++
			continue
		}
		if !known {
			order = append(order, off)
		}
		sums[off] += n
	}
	total := uint64(0)
	for _, n := range sums {
		total += n
	}
	if p.sum != total || p.used != len(order) || full == 0 {
		t.Errorf("%d in %d, want %d in %d; full %d times", p.sum, p.used, total, len(order), full)
	}
}

// nothing is a program that forwards everything.
type nothing struct{}

func (nothing) Spec() pipeline.Spec { return pipeline.Spec{Name: "nothing"} }

func (nothing) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (nothing) Tick(*pipeline.Ctx)                                      {}
func (nothing) Deadline() clock.Time                                    { return clock.Never }

// bed is a machine with one store that the test plays.
type bed struct {
	t         *testing.T
	sw        *pipeline.Switch
	m         *Machine
	rule      *rules.Rule
	now       clock.Time
	journal   uint64
	failed    int
	region    memgrant.Region
	lastPSN   wire.PSN
	sentAdds  []wire.AtomicETH
	connected uint32 // how often attach was called
}

func newBed(t *testing.T, text string) *bed {
	t.Helper()
	set, err := ruleSet(t, "server=ms0 action=count store=ms1 "+text)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{t: t, rule: &set.All()[0], now: clock.Time(time.Second), region: memgrant.Region{Addr: 0x10000, RKey: 7, Len: 1 << 16}}
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 2, Program: nothing{}}); err != nil {
		t.Fatal(err)
	}
	b.m = New(handler.Env{
		Behind: func(n uint64) { b.journal = n }, FormerlyBehind: func() uint64 { return 5 },
		Failed: func(*pipeline.Ctx, switchconn.Key, uint32, string) { b.failed++ },
	})
	b.m.SetRules(set)
	return b
}

// step runs a step and notes the FETCH_ADDs that leave.
func (b *bed) step(f func(c *pipeline.Ctx)) {
	var out packetio.Batch
	b.now = b.now.Add(time.Microsecond)
	b.sw.Step(b.now, &out, f)
	seen := -1
	for _, x := range out.Frames { // the switch does not know the store's port, so it sends a copy to each
		var w wire.Frame
		if err := wire.ParseFrame(x.Data, &w); err != nil || w.BTH.Opcode != wire.RCFetchAdd {
			b.t.Fatalf("%v: %v", w.BTH, err)
		}
		if x.Port == out.Frames[0].Port {
			b.sentAdds = append(b.sentAdds, w.AtomicETH)
			b.lastPSN = w.BTH.PSN
		}
		seen++
	}
	amount := b.m.Stats().Amount
	pending, inFlight := b.m.Waiting()
	s := b.m.Stats()
	if s.Applied+pending+inFlight+s.Uncertain+s.Dropped != amount {
		b.t.Fatalf("%+v, pending %d, in flight %d", s, pending, inFlight)
	}
	if b.journal != pending+inFlight+s.Uncertain {
		b.t.Errorf("the journal has %d, want %d", b.journal, pending+inFlight+s.Uncertain)
	}
}

func (b *bed) attach(depth int, psn wire.PSN) {
	b.connected++
	g := memgrant.Grant{Conn: 1, Boot: 1, Region: b.region}
	s := switchconn.Shared{
		Key: switchconn.Key{Server: netip.MustParseAddr("10.0.0.2"), Shard: switchconn.CountShard}, Generation: b.connected, ServerQPN: 0x20, OwnQPN: 0x30,
		SendPSN: psn, MTU: 1024, Depth: depth, Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	s.To.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 9}, Dst: [4]byte{10, 0, 0, 2}, TTL: 64, Protocol: wire.ProtocolUDP}
	s.To.Eth.Dst = wire.MAC{2, 0, 0, 0, 0, 2}
	b.step(func(c *pipeline.Ctx) {
		if !b.m.Attach(c, s) {
			b.t.Error("the connection was refused")
		}
	})
}

func (b *bed) observe(va uint64) {
	b.step(func(c *pipeline.Ctx) {
		b.m.Observe(c, b.rule, handler.Target{Opcode: wire.RCReadRequest, VA: va, Length: 8})
	})
}

// answer plays the store's answer to the request with a PSN.
func (b *bed) answer(psn wire.PSN, s wire.Syndrome) {
	p := &pipeline.Parsed{}
	p.IPv4.Src, p.IPv4.Dst = [4]byte{10, 0, 0, 2}, [4]byte{10, 0, 0, 9}
	p.BTH = wire.BTH{Opcode: wire.RCAtomicAck, DestQP: 0x30, PSN: psn}
	if p.AETH.Syndrome = s; !s.IsAck() {
		p.BTH.Opcode = wire.RCAck
	}
	b.step(func(c *pipeline.Ctx) { b.m.Owned(c, p) })
}

// No more FETCH_ADDs than depth are in flight. What is counted meanwhile is added up by counter, and
// leaves when answers arrive, also when no request follows. PSNs wrap around.
func TestWhatWaitsIsAddedUp(t *testing.T) {
	for _, depth := range []int{1, 4, 16} {
		b := newBed(t, "per=address slots=64 depth="+map[int]string{1: "1", 4: "4", 16: "16"}[depth])
		psn := wire.PSN(0).Add(-2)
		b.attach(16, psn)
		for i := range 100 {
			b.observe(uint64(8 * (i % 20)))
		}
		if len(b.sentAdds) != depth {
			t.Errorf("%d FETCH_ADDs in flight, want %d", len(b.sentAdds), depth)
		}
		for i := 0; i < len(b.sentAdds); i++ {
			b.answer(psn.Add(i), wire.AckNoCredits)
		}
		sums := make(map[uint64]uint64)
		for _, a := range b.sentAdds {
			sums[a.VA] += a.SwapOrAdd
		}
		for i := range uint64(20) {
			if got := sums[b.region.Addr+8*i]; got != 5 {
				t.Errorf("depth %d: counter %d has %d, want 5", depth, i, got)
			}
		}
		if s := b.m.Stats(); s.Applied != 100 || len(sums) != 20 || b.journal != 0 {
			t.Errorf("%+v, journal %d", s, b.journal)
		}
	}
}

// The server's NIC may grant less than depth.
func TestTheServersDepthIsKept(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=16")
	b.attach(2, 0)
	for i := range uint64(10) {
		b.observe(8 * i)
	}
	if pending, inFlight := b.m.Waiting(); len(b.sentAdds) != 2 || pending != 8 || inFlight != 2 {
		t.Errorf("%d FETCH_ADDs in flight with %d, %d pending; want 2, 2, 8", len(b.sentAdds), inFlight, pending)
	}
}

// A FETCH_ADD that is sent again has its PSN, counter and amount, whatever was counted meanwhile.
func TestARetransmissionIsTheSame(t *testing.T) {
	b := newBed(t, "slots=1 depth=1")
	b.attach(16, 0xffffff)
	b.observe(0)
	b.observe(0)
	b.answer(0xffffff, wire.NakPSNSequence)
	if len(b.sentAdds) != 2 || b.sentAdds[0] != b.sentAdds[1] || b.lastPSN != 0xffffff {
		t.Errorf("%v, psn %v", b.sentAdds, b.lastPSN)
	}
}

// What the server has refused was not executed, and waits for the next connection. What a connection
// leaves unanswered is uncertain.
func TestEndsOfConnections(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=2")
	b.observe(0) // no connection yet
	b.attach(16, 0)
	b.observe(8)
	b.observe(16)
	b.answer(0, wire.NakRemoteAccess)
	if pending, _ := b.m.Waiting(); pending != 3 || b.failed != 1 || b.m.Stats().Failures != 1 || b.m.Mine(0x30) {
		t.Errorf("%d wait, %d failed", pending, b.failed)
	}
	b.sentAdds = nil
	b.attach(16, 100)
	b.answer(100, wire.AckNoCredits)
	b.step(func(c *pipeline.Ctx) {
		b.m.Detach(c, switchconn.Key{Server: netip.MustParseAddr("10.0.0.2"), Shard: switchconn.CountShard}, b.connected)
	})
	if s := b.m.Stats(); s.Applied != 1 || s.Uncertain != 2 {
		t.Errorf("%+v", s)
	}
	if b.m.Formerly() != 5 {
		t.Errorf("former %d", b.m.Formerly())
	}
	if list := b.m.slots(b.now); len(list) != 3 || list[2].Slot != 2 || list[2].Offset != 16 || list[2].Address != 16 {
		t.Errorf("%+v", list)
	}
	names := []string{}
	for _, c := range b.m.Info(b.now).Counters {
		names = append(names, c.Name)
	}
	if !slices.Contains(names, "former") || !slices.Contains(names, "requester_refusals") {
		t.Errorf("%v", names)
	}
}

// A counter behind the end of the store's memory is not counted, and said to be dropped.
func TestCounterOutsideTheRegion(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=2")
	b.region.Len = 16
	b.attach(16, 0)
	b.observe(8)
	b.observe(16)
	if s := b.m.Stats(); s.Outside != 1 || s.Dropped != 1 || len(b.sentAdds) != 1 {
		t.Errorf("%+v, %v", s, b.sentAdds)
	}
}

// A service that lends no memory is refused with a reason.
func TestServiceWithoutMemory(t *testing.T) {
	b := newBed(t, "")
	b.step(func(c *pipeline.Ctx) {
		key := switchconn.Key{Server: netip.MustParseAddr("10.0.0.2"), Shard: switchconn.CountShard}
		if b.m.Attach(c, switchconn.Shared{Key: key, Generation: 1, OwnQPN: 0x30, Answer: []byte{1, 9}}) {
			t.Error("the connection was accepted")
		}
	})
	list := b.m.list(b.now)
	var out strings.Builder
	if err := PrintStores(&out, func(a netip.Addr) string { return a.String() }, list); err != nil || !strings.Contains(out.String(), "is not that of a memory service") {
		t.Errorf("%s, %v", out.String(), err)
	}
}

// Counting a request does not allocate.
func TestObserveDoesNotAllocate(t *testing.T) {
	b := newBed(t, "depth=1")
	b.attach(16, 0)
	var out packetio.Batch
	n := testing.AllocsPerRun(100, func() {
		b.sw.Step(b.now, &out, func(c *pipeline.Ctx) { b.m.Observe(c, b.rule, handler.Target{Opcode: wire.RCReadRequest, Length: 8}) })
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// When the last rule of a store goes while there is no connection, what waits is dropped, and nothing
// stays in the switch for the store.
func TestRuleGoesWithoutAConnection(t *testing.T) {
	b := newBed(t, "slots=8")
	b.observe(0)
	empty, err := rules.NewSet(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.m.SetRules(empty)
	p, f := b.m.Waiting()
	if st := b.m.Stats(); p != 0 || f != 0 || st.Amount != 1 || st.Dropped != 1 || len(b.m.Links.All) != 0 || b.journal != 0 {
		t.Errorf("%d pending, %d in flight, %d channels, %d in the journal, %+v", p, f, len(b.m.Links.All), b.journal, st)
	}
}

// A rule's new depth holds for the next connection.
func TestDepthOfTheNextConnection(t *testing.T) {
	for was, is := range map[string]int{"1": 16, "16": 1} {
		b := newBed(t, "slots=64 per=address depth="+was)
		b.attach(16, 0)
		set, err := ruleSet(t, fmt.Sprintf("server=ms0 action=count store=ms1 slots=64 per=address depth=%d", is))
		if err != nil {
			t.Fatal(err)
		}
		b.m.SetRules(set)
		b.rule = &set.All()[0]
		b.attach(16, 100)
		for i := range uint64(20) {
			b.observe(8 * i)
		}
		if _, f := b.m.Waiting(); f != uint64(is) {
			t.Errorf("depth %s, then %d: %d in flight", was, is, f)
		}
	}
}
