package statestore

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

func TestMeasureRules(t *testing.T) {
	const base = "server=ms0 action=measure "
	for text, want := range map[string]string{
		"store=ms1": "",
		"store=ms1,ms2 at=8 slots=4096 rows=8 by=service add=bytes sample=16 choose=chance seed=7 flows=10 depth=4 shards=2": "",
		"store=ms1 add=packets":               "",
		"":                                    "needs the key store",
		"store=ms1 service=none":              "name its service",
		"store=ms1 mode=published":            "no mode published",
		"store=ms1 range=0-4096":              "range and rkey select requests",
		"store=ms1 add=requests":              "use one of packets, bytes",
		"store=ms1 slots=7":                   "use an even number",
		"store=ms1 rows=2 slots=1048576":      "more than 1048576 counters",
		"store=ms1 choose=nth":                "choose has no meaning without sample",
		"store=ms1 sample=2 seed=1":           "seed has no meaning without choose=chance",
		"store=ms1 sample=0":                  "no number from 1",
		"store=ms1 by=colour":                 "use one of flow, pair",
		"store=ms1 per=flow":                  "per has no meaning with action measure",
		"store=ms1 flows=4097":                "no number from 1 to 4096",
		"store=ms1 sample=2 choose=at random": "",
	} {
		_, err := ruleSet(t, base+text)
		if text == "store=ms1 sample=2 choose=at random" {
			if err == nil {
				t.Error("a choice of two words is taken")
			}
			continue
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Rules of several hosts may count in one sketch if they agree about it. Otherwise their counters
// must not overlap.
func TestMeasureTogether(t *testing.T) {
	const one, two = "id=a server=ms0 action=measure store=ms2 slots=64 ", "id=b server=ms1 action=measure store=ms2 slots=64 "
	for text, want := range map[[2]string]string{
		{one, two}: "",
		{one + "sample=2 choose=chance seed=1", two + "sample=2 choose=chance seed=2"}: "",
		{one, two + "at=2560"}:                                          "",
		{one, two + "at=2552"}:                                          "overlap",
		{one, two + "by=source"}:                                        "the same in both",
		{one, two + "sample=2"}:                                         "the same in both",
		{one, two + "flows=10"}:                                         "sample and flows the same in both",
		{one, two + "add=bytes"}:                                        "the same in both",
		{one, two + "depth=4 at=2560"}:                                  "must be the same in both",
		{one, "id=b server=ms0 action=measure store=ms1"}:               "takes all of its requests",
		{one, "id=b server=ms0 action=count store=ms2"}:                 "need the same memory",
		{one, "id=b server=ms0 action=count store=ms2 at=2560 depth=4"}: "",
	} {
		_, err := ruleSet(t, text[0], text[1])
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v, want %q", text, err, want)
		}
	}
}

// measureBed is a machine with rules of action measure, whose stores answer each FETCH_ADD at once.
type measureBed struct {
	t      *testing.T
	sw     *pipeline.Switch
	m      *Machine
	memory map[uint64]uint64 // by offset
	now    clock.Time
}

const measureBase = 0x10000

func newMeasureBed(t *testing.T, texts ...string) *measureBed {
	t.Helper()
	b := &measureBed{t: t, memory: make(map[uint64]uint64), now: clock.Time(time.Second)}
	var err error
	if b.sw, err = pipeline.New(pipeline.Config{Ports: 4, Program: nothing{}}); err != nil {
		t.Fatal(err)
	}
	ports := map[netip.Addr]int{netip.MustParseAddr("10.0.0.1"): 1, netip.MustParseAddr("10.0.0.2"): 2, netip.MustParseAddr("10.0.0.3"): 3}
	b.m = New(handler.Env{Port: func(a netip.Addr) int {
		if p, ok := ports[a]; ok {
			return p
		}
		return -1
	}})
	b.m.MarkIn(new(pipeline.MarkedPorts))
	b.rules(texts...)
	g := memgrant.Grant{Conn: 1, Boot: 1, Region: memgrant.Region{Addr: measureBase, RKey: 7, Len: 1 << 16}}
	s := switchconn.Shared{
		Key: switchconn.Key{Server: netip.MustParseAddr("10.0.0.3"), Shard: switchconn.MeasureShard}, Generation: 1, ServerQPN: 0x20, OwnQPN: 0x30,
		MTU: 1024, Depth: 16, Answer: g.AppendTo([]byte{memgrant.Version, memgrant.Kind}),
	}
	s.To.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 9}, Dst: [4]byte{10, 0, 0, 3}, TTL: 64, Protocol: wire.ProtocolUDP}
	b.step(func(c *pipeline.Ctx) {
		if !b.m.Attach(c, s) {
			t.Error("the connection was refused")
		}
	})
	return b
}

func (b *measureBed) rules(texts ...string) {
	b.t.Helper()
	set, err := ruleSet(b.t, texts...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.m.SetRules(set)
}

// step runs a step, and executes the FETCH_ADDs that leave.
func (b *measureBed) step(f func(c *pipeline.Ctx)) {
	for f != nil {
		var out packetio.Batch
		var acks []wire.PSN
		b.now = b.now.Add(time.Microsecond)
		b.sw.Step(b.now, &out, f)
		f = nil
		for _, x := range out.Frames {
			var w wire.Frame
			if err := wire.ParseFrame(x.Data, &w); err != nil || w.BTH.Opcode != wire.RCFetchAdd {
				b.t.Fatalf("%v: %v", w.BTH, err)
			}
			if x.Port == out.Frames[0].Port {
				b.memory[w.AtomicETH.VA-measureBase] += w.AtomicETH.SwapOrAdd
				acks = append(acks, w.BTH.PSN)
			}
		}
		if len(acks) > 0 {
			f = func(c *pipeline.Ctx) {
				for _, psn := range acks {
					p := &pipeline.Parsed{}
					p.IPv4.Src, p.IPv4.Dst = [4]byte{10, 0, 0, 3}, [4]byte{10, 0, 0, 9}
					p.BTH = wire.BTH{Opcode: wire.RCAtomicAck, DestQP: 0x30, PSN: psn}
					p.AETH.Syndrome = wire.AckNoCredits
					b.m.Owned(c, p)
				}
			}
		}
	}
}

// udp makes a frame of UDP, with n bytes in all, from 10.1.0.host to 10.2.0.1.
func udp(host byte, port uint16, n int) []byte {
	ip := wire.IPv4{TTL: 64, Protocol: 17, Src: [4]byte{10, 1, 0, host}, Dst: [4]byte{10, 2, 0, 1}}
	l4 := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, port), 53)
	l4 = append(l4, make([]byte, n-14-20-len(l4))...)
	eth := wire.Ethernet{Type: wire.EtherTypeIPv4}
	return append(ip.AppendTo(eth.AppendTo(nil), len(l4)), l4...)
}

func (b *measureBed) take(in int, f packetio.Frame) {
	b.step(func(c *pipeline.Ctx) {
		if b.m.Take(c, in, f) {
			b.t.Error("the frame does not go on")
		}
	})
}

func (b *measureBed) sum() (sum uint64) {
	for _, v := range b.memory {
		sum += v
	}
	return sum
}

// Each packet of a measured host adds to one counter of each row; those of other ports add nothing.
// A super-frame has the packets of its segments, and their bytes with add=bytes.
func TestPacketsAreCounted(t *testing.T) {
	for _, add := range []string{"packets", "bytes"} {
		b := newMeasureBed(t, "id=a server=ms0 action=measure store=ms2 rows=3 slots=64 add="+add)
		for range 10 {
			b.take(1, packetio.Frame{Data: udp(1, 5000, 100)})
			b.take(2, packetio.Frame{Data: udp(1, 5000, 100)})
			b.take(3, packetio.Frame{Data: udp(1, 5000, 100)})
		}
		b.take(1, packetio.Frame{Data: udp(2, 5000, 42+4*100), SegSize: 100})
		unit := map[string][2]uint64{"packets": {1, 4}, "bytes": {100, 442}}[add]
		if want := 3 * (10*unit[0] + unit[1]); b.sum() != want || b.m.Stats().Packets != 14 || b.m.Stats().Applied != want {
			t.Errorf("%s: %d in memory, want %d; %+v", add, b.sum(), want, b.m.Stats())
		}
		k := b.m.flows(0)
		if len(k) != 2 || k[0].Count != 10*unit[0] || k[1].Count != unit[1] || k[0].Key.SrcPort != 5000 {
			t.Errorf("%+v", k)
		}
	}
}

// Two rules with one sketch count together, and the switch remembers their flows together.
func TestOneSketchOfTwoHosts(t *testing.T) {
	const a, c = "id=a server=ms0 action=measure store=ms2 slots=64 by=source", "id=c server=ms1 action=measure store=ms2 slots=64 by=source"
	b := newMeasureBed(t, a, c)
	for i := range 30 {
		b.take(1+i%2, packetio.Frame{Data: udp(7, uint16(i), 60)})
	}
	list := b.m.flows(0)
	if b.sum() != 30*defaultRows || len(b.memory) != defaultRows || len(list) != 1 || list[0].Count != 30 || !slices.Equal(list[0].Rules, []string{"a", "c"}) {
		t.Errorf("%d in %d counters, flows %+v", b.sum(), len(b.memory), list)
	}
	var out strings.Builder
	if err := printFlows(&out, netip.Addr.String, list); err != nil || !strings.Contains(out.String(), "10.1.0.7 > any") || !strings.Contains(out.String(), "a,c") {
		t.Error(out.String())
	}
	b.rules(a) // the rule that stays keeps the flows
	if list := b.m.flows(0); len(list) != 1 || list[0].Count != 30 {
		t.Errorf("after a change of the other rule: %+v", list)
	}
	b.take(2, packetio.Frame{Data: udp(7, 1, 60)})
	if b.sum() != 30*defaultRows {
		t.Error("a removed rule counts")
	}
	b.rules(strings.Replace(a, "by=source", "by=flow", 1))
	if list := b.m.flows(0); len(list) != 0 {
		t.Errorf("a rule that counts something else has flows: %+v", list)
	}
}

// The switch remembers the flows that it has counted most often, whatever else comes.
func TestHeavyFlowsAreRemembered(t *testing.T) {
	b := newMeasureBed(t, "id=a server=ms0 action=measure store=ms2 slots=64 rows=1 flows=8")
	for i := range 2000 {
		b.take(1, packetio.Frame{Data: udp(1, uint16(1000+i), 60)})
		if i%5 == 0 {
			b.take(1, packetio.Frame{Data: udp(2, 99, 60)})
		}
	}
	list := b.m.flows(0)
	at := slices.IndexFunc(list, func(f Flow) bool { return f.Key.SrcPort == 99 })
	if at < 0 || len(list) != 8 || list[at].Count < 400 || list[at].Count-list[at].Over > 400 {
		t.Errorf("%+v", list)
	}
	tables := b.m.Tables()
	if n := len(tables); n != 2 || tables[1].Used != 8 || b.m.ClearTable(tables[0].Name) != 0 || b.m.ClearTable(tables[1].Name) != 8 || len(b.m.flows(0)) != 0 {
		t.Errorf("%+v", tables)
	}
}

// A rule that has not changed goes on with its sample; the switch counts one packet of N.
func TestSampleGoesOn(t *testing.T) {
	const rule = "id=a server=ms0 action=measure store=ms2 slots=64 rows=1 sample=3"
	b := newMeasureBed(t, rule)
	for range 100 {
		b.take(1, packetio.Frame{Data: udp(1, 1, 60)})
		b.rules(rule)
	}
	if s := b.m.Stats(); b.sum() != 33 || s.Sampled != 33 || s.Packets != 100 || b.m.flows(0)[0].Every != 3 {
		t.Errorf("%d; %+v", b.sum(), s)
	}
	if p := fmt.Sprintf("%+v", b.m.Spec()); !strings.Contains(p, tableFlows) {
		t.Error(p)
	}
}

// Counting a packet allocates nothing.
func TestMeasureAllocatesNothing(t *testing.T) {
	b := newMeasureBed(t, "id=a server=ms0 action=measure store=ms2 slots=64 depth=1")
	frames := make([]packetio.Frame, 500)
	for i := range frames {
		frames[i].Data = udp(1, uint16(i), 60)
	}
	var out packetio.Batch
	b.sw.Step(b.now, &out, func(c *pipeline.Ctx) {
		b.m.Take(c, 1, frames[0]) // the only FETCH_ADD in flight; the others wait
		i := 0
		if n := testing.AllocsPerRun(100, func() { i++; b.m.Take(c, 1, frames[i%len(frames)]) }); n != 0 {
			t.Errorf("%v allocations a packet", n)
		}
	})
}
