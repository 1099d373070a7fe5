package lookuptable

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

func listing(t *testing.T, list []Item) string {
	t.Helper()
	var b strings.Builder
	if err := Print(&b, func(a netip.Addr) string { return "ms" + a.String()[len("10.0.0."):] }, list); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// An operator sees each table with its rule, what became of the packets, its entries, and which server has
// no connection. The counters and the tables of the switch say the same.
func TestTablesAreShown(t *testing.T) {
	const rule = "table=ms0,ms1 capacity=16 cells=3 cell=512 cache=5 depth=2"
	s := newServed(t, rule)
	const head = "RULE  MODE      FRAMES  CACHED  HITS  MISSES  FLIGHT  DROPPED  ENTRIES      CACHE   TABLE\n"
	if got := listing(t, s.m.list(0)); got != head+"r     hardened  0       0       0     0       0       0        0, 0 (0, 0)  0 of 8  -ms3, -ms4\n" {
		t.Errorf("without connections:\n%s", got)
	}
	s.attach()
	s.add(false, pinged("80")+" drop", pinged("81")+" dscp=1", pinged("82")+" src=10.0.0.77")
	s.add(true, pinged("81"))
	s.add(true, pinged("81"))
	for i := range 3 { // a hit, then from the cache
		s.send(ping(80, byte(i), 9))
	}
	s.send(ping(81, 4, 9))
	s.send(ping(81, 5, 2000)) // does not fit three cells
	s.held = true
	for i := range byte(10) {
		s.send(ping(uint16(100+i), i, 9))
	}
	s.add(false, pinged("90")+" drop")
	st := s.m.Stats()
	flight := s.m.InFlight()
	if flight != 6 || st.Full != 4 || st.Long != 1 || st.Denied != 3 || st.Hits != 1 || st.Cached != 2 || st.Misses != 1 {
		t.Fatalf("%d in flight, %+v", flight, st)
	}
	if got := listing(t, s.m.list(0)); got != head+"r     hardened  15      2       1     1       6       5        3, 1 (1, 1)  1 of 8  ms3, ms4\n" {
		t.Errorf("the listing is\n%s", got)
	}
	counts := map[string]uint64{}
	for _, c := range s.m.Info(0).Counters {
		counts[c.Name] = c.Value
	}
	for name, n := range map[string]uint64{
		"frames": 15, "cached": 2, "hits": 1, "misses": 1, "denied": 3, "full": 4, "long": 1, "written": 3, "removed": 1, "refused": 1,
		"in_flight": 6, "waiting": 1, "cells": 6,
	} {
		if got, ok := counts[name]; !ok || got != n {
			t.Errorf("%s is %d (%v), want %d", name, got, ok, n)
		}
	}
	sent := 0
	for i := range 2 {
		sent += len(s.server(i).requests)
	}
	if got := counts["requester_sent"]; got != uint64(sent) {
		t.Errorf("requester_sent is %d, and the servers got %d", got, sent)
	}
	published := New(Config{Kind: &handler.Kind{Mode: rules.Published}})
	for _, c := range published.Info(0).Counters {
		if strings.HasPrefix(c.Name, "requester_") {
			t.Errorf("a machine without a requester has the counter %q", c.Name)
		}
	}
	if mode := s.m.Info(0).Mode; mode != rules.Hardened || s.m.Kind() != &Kind {
		t.Errorf("mode %v", mode)
	}
	tables := fmt.Sprintf("%+v", s.m.Tables())
	want := fmt.Sprintf("%+v", []handler.Table{
		{Name: "lookup cache", Doc: "table entries that the switch keeps", Used: 1, Max: 8, Clear: true},
		{Name: "lookup cells", Doc: "cells in servers' memory with packets that wait for their entry", Used: 6, Max: 6},
		{Name: "lookup changes", Doc: "changes of table entries that have not ended", Used: 1, Max: 2 * (MaxWaiting + 1)},
	})
	if tables != want {
		t.Errorf("tables\n%s, want\n%s", tables, want)
	}
	if n := s.m.ClearTable("lookup cache"); n != 1 || s.m.Tables()[0].Used != 0 {
		t.Errorf("%d entries were cleared", n)
	}
	s.rule("")
	if s.m.Tables() != nil || len(s.m.list(0)) != 0 || s.m.Stats().Frames != 15 || s.m.Stats().Lost != 6 {
		t.Errorf("without a rule: %+v, %+v", s.m.Tables(), s.m.Stats())
	}
	if got := listing(t, nil); !strings.Contains(got, "no rule looks up packets") {
		t.Errorf("%q", got)
	}
}

// Dropped are the packets that the switch drops though no entry says so.
func TestDroppedPackets(t *testing.T) {
	b := newBed(t, "table=ms0")
	b.m.tables[0].stats = Stats{Torn: 1, Unfit: 10, Lost: 100, Full: 1000, Blocked: 10000, Long: 100000, Denied: 7, Misses: 7}
	if got := b.m.list(0)[0].Dropped; got != 111111 {
		t.Errorf("%d dropped", got)
	}
}

// What the machine declares for a switching chip is a golden file, so that a review shows a changed size.
func TestSpecIsAsReviewed(t *testing.T) {
	large := newBed(t, "table=ms0,ms1 cells=600 cache=5000").m
	published := New(Config{Kind: &handler.Kind{Mode: rules.Published}})
	text, err := json.MarshalIndent([]pipeline.Part{New(Config{Kind: &Kind}).Spec(), large.Spec(), published.Spec()}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/spec.json", string(text)+"\n")
}

// Each host with a rule has its own table, with its own connections. A rule whose host has no port, or whose
// server has no address yet, waits, and wants no connection.
func TestTablesOfPorts(t *testing.T) {
	ports := map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 0, netip.MustParseAddr("10.0.0.2"): 2}
	numbers := map[uint32]bool{}
	m := New(Config{
		Kind: &Kind,
		Server: func(_ *Link, number uint32) Server {
			numbers[number] = true
			return &patient{entries: map[Key]Action{}}
		},
		Port: func(a netip.Addr) int {
			if p, ok := ports[a]; ok {
				return p
			}
			return -1
		},
	})
	var marks pipeline.MarkedPorts
	m.MarkIn(&marks)
	set, err := ruleSet(t, "server=ms0 action=track", "id=a server=cn0 action=lookup table=ms0,ms1", "id=b server=cn1 action=lookup table=ms0 base=0x800000 depth=3 cache=0")
	if err != nil {
		t.Fatal(err)
	}
	m.SetRules(set)
	if len(m.tables) != 2 || m.tables[0].port != 0 || m.tables[1].port != 2 || len(m.Links.All) != 3 || len(m.idle) != 0 || len(numbers) != 3 {
		t.Errorf("%d tables, %d connections with the numbers %v, %v wait", len(m.tables), len(m.Links.All), numbers, m.idle)
	}
	if !marks.Has(0) || marks.Has(1) || !marks.Has(2) {
		t.Error("frames of the wrong ports are taken")
	}
	seen := map[switchconn.Key]bool{}
	for i, want := range []int{2, 1} {
		r := &set.All()[1+i]
		list := m.Wants(r)
		if len(list) != want {
			t.Errorf("rule %d wants %d connections, want %d", i, len(list), want)
		}
		for _, x := range list {
			if seen[x.Key] || !m.Uses(x.Key) || x.Target.Service != r.Service || x.Target.Depth != r.Depth() || x.Target.MTU != r.MTU || x.Key.Shard != switchconn.LookupShard+2*i {
				t.Errorf("rule %d wants %+v", i, x)
			}
			seen[x.Key] = true
		}
	}
	for i, text := range []string{"id=a server=cn0 action=lookup table=ms0,ms1", "id=a server=cn0 action=lookup table=ms0,ms1 miss=drop"} {
		if set, err = ruleSet(t, text); err != nil {
			t.Fatal(err)
		}
		if m.SetRules(set); !marks.Has(0) || marks.Has(2) || len(m.tables) != 1 || len(m.Links.All) != 2 || m.tables[0].DropMiss != (i == 1) {
			t.Errorf("%s: %d tables, %d connections", text, len(m.tables), len(m.Links.All))
		}
	}
	delete(ports, netip.MustParseAddr("10.0.0.1"))
	m.SetRules(set)
	if len(m.tables) != 0 || len(m.idle) != 1 || m.idle[0] != "a" || m.Wants(&set.All()[0]) != nil || marks.Has(0) {
		t.Errorf("%d tables, %v wait", len(m.tables), m.idle)
	}
	if m = New(Config{Kind: &Kind}); m.Wants(&set.All()[0]) != nil {
		t.Error("without ports a rule wants connections")
	}
	if m.SetRules(set); len(m.tables) != 0 || len(m.idle) != 1 {
		t.Errorf("without ports there are %d tables, %v wait", len(m.tables), m.idle)
	}
	r, err := rules.Parse("server=10.0.0.1 action=lookup table=ms0") // its addresses are not known yet
	if err != nil {
		t.Fatal(err)
	}
	m = New(Config{Kind: &Kind, Port: func(netip.Addr) int { return 0 }})
	if set, err = rules.NewSet([]rules.Rule{r}); err != nil {
		t.Fatal(err)
	}
	if m.SetRules(set); len(m.tables) != 0 || len(m.idle) != 1 {
		t.Errorf("without addresses there are %d tables, %v wait", len(m.tables), m.idle)
	}
}

// A packet with an entry in the cache leaves as its entry says, and the bytes of the frame that came in stay
// as they are.
func TestPacketsByTheCache(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=3 cell=512 cache=5")
	s.attach()
	s.add(false, pinged("80")+" dst=10.0.0.77:99 dscp=3 egress=port0", pinged("4791")+" egress=port2")
	s.send(ping(80, 1, 9))
	b := ping(80, 2, 9)
	s.notes = nil
	s.step(func(c *pipeline.Ctx) { s.m.Take(c, portOfFrom, packetio.Frame{Data: b}) })
	if string(b) != string(ping(80, 2, 9)) {
		t.Error("the frame that came in has changed")
	}
	for i, f := range s.left {
		if wire.MAC(f.Data[:6]) != (wire.MAC{2, 9, 9}) || f.Data[15] != 3<<2 || f.Data[33] != 77 || f.Data[37] != 99 || f.Port != 0 {
			t.Errorf("frame %d leaves by port %d as %x", i, f.Port, f.Data)
		}
	}
	if notes := strings.Join(s.notes, "\n"); len(s.left) != 2 || !strings.Contains(notes, "looked up: addresses rewritten dscp=3 egress=port0, by an entry in the switch") {
		t.Errorf("%d frames leave, notes %q", len(s.left), notes)
	}
	// An entry of a destination may rewrite; a RoCEv2 packet to it, found in the cache, is dropped.
	s = newServed(t, "table=ms0 capacity=16 cells=3 cell=512 cache=5 match=destination")
	s.attach()
	s.add(false, "to=10.0.0.2 src=10.0.0.77")
	s.send(ping(80, 1, 9))
	s.send(ping(rocePort, 2, 9))
	s.send(ping(81, 3, 9))
	if st := s.m.Stats(); st.Unfit != 1 || st.Hits != 1 || st.Cached != 1 {
		t.Errorf("%+v", st)
	}
}

// The counters of requests count those of connections that have gone, too.
func TestRequestsOfFormerConnectionsCount(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512")
	s.attach()
	s.add(false, pinged("80")+" drop")
	before, l := submitted(s.m), s.m.Links.All[0]
	s.rule("")
	during := submitted(s.m)
	s.step(func(c *pipeline.Ctx) { s.m.Detach(c, l.Key(), l.Generation()) })
	if after := submitted(s.m); before != 2 || during != before || after != before || len(s.m.Links.All) != 0 {
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
