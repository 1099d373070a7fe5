package tracestore

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

func TestTraceRules(t *testing.T) {
	const base = "server=ms0 action=trace "
	for text, want := range map[string]string{
		"store=ms1": "",
		"store=ms1,ms2 at=8 records=1048576 batch=32 combine=10ms sample=16 choose=chance seed=7 depth=4 mtu=4096": "",
		"":                            "needs the key store",
		"store=ms1 service=none":      "name its service",
		"store=ms1 mode=published":    "no mode published",
		"store=ms1 range=0-4096":      "range and rkey select requests",
		"store=ms1 records=0":         "no number from 1 to 1048576",
		"store=ms1 records=1048577":   "no number from 1 to 1048576",
		"store=ms1 batch=33":          "no number from 1 to 32",
		"store=ms1 combine=11ms":      "no time from 0 to 10ms",
		"store=ms1 choose=nth":        "choose has no meaning without sample",
		"store=ms1 sample=2 seed=1":   "seed has no meaning without choose=chance",
		"store=ms1 shards=2":          "shards has no meaning with action trace",
		"store=ms1 slots=2":           "slots has no meaning with action trace",
		"store=ms1 cap=2Gbit dscp=46": "",
		"store=ms1 at=4":              "use a multiple of 8",
		"store=ms9":                   `"ms9" is no host`,
	} {
		_, err := ruleSet(t, base+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Rules of several hosts may write to one ring if they agree about it. Otherwise their rings must not
// overlap, nor other memory of the switch.
func TestTraceTogether(t *testing.T) {
	const one, two = "id=a server=ms0 action=trace store=ms2 records=16 ", "id=b server=ms1 action=trace store=ms2 records=16 "
	for text, want := range map[[2]string]string{
		{one, two}:                                                        "",
		{one, two + "at=2048"}:                                            "",
		{one, two + "at=2040"}:                                            "give one of them at=0xff8",
		{one, two + "batch=2"}:                                            "the same in both",
		{one, two + "combine=1ms"}:                                        "the same in both",
		{one, two + "sample=2"}:                                           "the same in both",
		{one, two + "depth=2 at=2048"}:                                    "service, depth, mtu, cap and dscp",
		{one, two + "cap=1Gbit at=2048"}:                                  "cap and dscp",
		{one, two + "mtu=256 at=2048"}:                                    "service, depth, mtu, cap and dscp",
		{one + "sample=2", two + "sample=2 choose=chance"}:                "",
		{one, "id=b server=ms1 action=measure store=ms2 slots=2"}:         "need the same memory",
		{one, "id=b server=ms1 action=measure store=ms2 slots=2 at=2048"}: "",
		{one, "id=b server=ms0 action=trace store=ms1"}:                   "takes all of its requests",
	} {
		_, err := ruleSet(t, text[0], text[1])
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v, want %q", text, err, want)
		}
	}
}

// Records of neighbouring cells share WRITEs; the last WRITE before the end of the ring is shorter. A
// record that waits alone leaves after the time of combine.
func TestBatchesAndTheEndOfTheRing(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 at=64 records=10 batch=4 combine=50us")
	b.connect("10.0.0.3", 1024, bedBytes)
	for i := range byte(10) {
		b.take(time.Microsecond, 1, udp(i))
	}
	if got := b.numbers("10.0.0.3", 64, 10); !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 0, 0}) || len(b.frames) != 2 {
		t.Errorf("%v by %d WRITEs", got, len(b.frames))
	}
	b.take(time.Microsecond, 1, udp(10)) // for the first cell: the two before it leave without it
	if got := b.numbers("10.0.0.3", 64, 10); !slices.Equal(got, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}) || len(b.frames) != 3 {
		t.Errorf("%v by %d WRITEs", got, len(b.frames))
	}
	due := b.m.Deadline()
	if d := due.Sub(b.now); d != 50*time.Microsecond {
		t.Errorf("the next batch is due in %v", d)
	}
	b.tick(49 * time.Microsecond)
	if len(b.frames) != 3 {
		t.Error("the record leaves before its time")
	}
	b.tick(time.Microsecond)
	if got := b.numbers("10.0.0.3", 64, 10); got[0] != 11 || len(b.frames) != 4 || b.m.Stats().Stored != 11 {
		t.Errorf("%v by %d WRITEs; %+v", got, len(b.frames), b.m.Stats())
	}
}

// With combine=0 each record leaves at once. A path MTU that has room for two records bounds the batch.
func TestNoWaitAndShortMTU(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 records=64 combine=0s")
	b.connect("10.0.0.3", 1024, bedBytes)
	b.take(0, 1, udp(1))
	if len(b.frames) != 1 {
		t.Errorf("%d WRITEs", len(b.frames))
	}
	b = newBed(t, "id=a server=ms0 action=trace store=ms2 records=64 batch=32")
	b.connect("10.0.0.3", 256, bedBytes)
	for i := range byte(4) {
		b.take(0, 1, udp(i))
	}
	if s := b.m.Stats(); s.Writes != 2 || s.Stored != 4 {
		t.Errorf("%+v", s)
	}
}

// Neighbouring records of two servers go to both by turns, and in batches.
func TestTwoServers(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms1,ms2 records=5 batch=2")
	b.connect("10.0.0.2", 1024, bedBytes)
	b.connect("10.0.0.3", 1024, bedBytes)
	for i := range byte(5) {
		b.take(0, 1, udp(i))
	}
	b.tick(time.Millisecond)
	if one, two := b.numbers("10.0.0.2", 0, 3), b.numbers("10.0.0.3", 0, 2); !slices.Equal(one, []uint64{1, 3, 5}) || !slices.Equal(two, []uint64{2, 4}) {
		t.Errorf("%v, %v", one, two)
	}
	if s := b.m.Stats(); s.Writes != 3 || s.Stored != 5 {
		t.Errorf("%+v", s)
	}
}

// Two rules with one ring write to it in the order in which packets come in. A sample is taken by each
// rule; a super-frame has one record.
func TestOneRingOfTwoHosts(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 records=64 sample=2 combine=0s", "id=b server=ms1 action=trace store=ms2 records=64 sample=2 combine=0s")
	b.connect("10.0.0.3", 1024, bedBytes)
	for i := range byte(4) {
		b.take(0, 1, udp(i))
		b.take(0, 2, udp(i))
	}
	super := packetio.Frame{Data: append(udp(1).Data[:42], make([]byte, 500)...), SegSize: 100}
	b.take(0, 1, super)
	tr := packettrace.New(b.m.list(0)[0].Epoch)
	tr.Add(b.memory[netip.MustParseAddr("10.0.0.3")][:64*packettrace.Size])
	var ports []uint16
	for _, r := range tr.Records() {
		ports = append(ports, r.Port)
	}
	if !slices.Equal(ports, []uint16{1, 2, 1, 2, 1}) {
		t.Errorf("ports %v", ports)
	}
	last := tr.Records()[4]
	if last.Packets != 5 || last.Taken != 2 || last.Length != 542 || b.m.Stats().Packets != 13 || b.m.Stats().Sampled != 6 {
		t.Errorf("%+v; %+v", last, b.m.Stats())
	}
	if l := b.m.list(0); len(l) != 1 || fmt.Sprint(l[0].Rules) != "[a b]" || l[0].Newest != 5 || l[0].Every != 2 || !l[0].Servers[0].Up {
		t.Errorf("%+v", l)
	}
}

// Without a connection, and while a server does not answer, records wait as far as there is room, and
// are then dropped. A dropped record has its number, so the trace shows that it is missing.
func TestServerTakesNothing(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 records=64 batch=1 combine=0s depth=2")
	b.take(0, 1, udp(0))
	if s := b.m.Stats(); s.Dropped != 1 {
		t.Errorf("without a connection: %+v", s)
	}
	b.connect("10.0.0.3", 1024, bedBytes)
	b.deaf = true
	for i := range byte(8) {
		b.take(0, 1, udp(i))
	}
	waiting, inFlight := b.m.Waiting()
	if s := b.m.Stats(); waiting != 1 || inFlight != 3 || s.Dropped != 1+4 || len(b.frames) != 2 {
		t.Errorf("%d waiting, %d in flight, %d WRITEs; %+v", waiting, inFlight, len(b.frames), s)
	}
	b.deaf = false
	b.tick(2 * time.Millisecond) // the ACK timer
	b.take(0, 1, udp(9))
	if s := b.m.Stats(); s.Stored != 5 || s.Records != 10 {
		t.Errorf("%+v", s)
	}
	tr := packettrace.New(b.m.list(0)[0].Epoch)
	tr.Add(b.memory[netip.MustParseAddr("10.0.0.3")][:64*packettrace.Size])
	if tr.Missing() != 4 || len(tr.Records()) != 5 {
		t.Errorf("%d missing, %d there", tr.Missing(), len(tr.Records()))
	}
}

// What is in flight when a connection ends is uncertain. The ring goes on with the next connection, and
// one with a shorter path MTU cannot take the batch that waits.
func TestNextConnection(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 records=64 batch=4")
	b.connect("10.0.0.3", 1024, bedBytes)
	b.deaf = true
	for i := range byte(7) {
		b.take(0, 1, udp(i))
	}
	b.step(0, func(c *pipeline.Ctx) { b.m.Detach(c, keyOf(netip.MustParseAddr("10.0.0.3")), b.ended) })
	if s := b.m.Stats(); s.Uncertain != 4 {
		t.Errorf("%+v", s)
	}
	b.accounted()
	b.deaf = false
	epoch := b.m.list(0)[0].Epoch
	b.connect("10.0.0.3", 256, bedBytes)
	b.tick(time.Millisecond)
	if s := b.m.Stats(); s.Dropped != 3 || b.m.list(0)[0].Epoch != epoch {
		t.Errorf("%+v", s)
	}
	b.take(0, 1, udp(8))
	b.tick(time.Millisecond)
	if s := b.m.Stats(); s.Stored != 1 {
		t.Errorf("%+v", s)
	}
}

// A server whose memory is too small is not used. Rules that change keep their ring if it is the same,
// and begin one with another epoch if it is not.
func TestRulesChange(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 records=64 batch=4")
	if b.connect("10.0.0.3", 1024, 64*packettrace.Size-1) {
		t.Error("a memory that is too small is taken")
	}
	b.rules("id=a server=ms0 action=trace store=ms2 records=63 batch=4")
	b.connect("10.0.0.3", 1024, 64*packettrace.Size-1)
	b.take(0, 1, udp(0))
	epoch := b.m.list(0)[0].Epoch
	b.rules("id=a server=ms0 action=trace store=ms2 records=63 batch=4", "id=b server=ms1 action=trace store=ms2 records=63 batch=4")
	if l := b.m.list(0)[0]; l.Epoch != epoch || l.Newest != 1 || l.Waiting != 1 {
		t.Errorf("%+v", l)
	}
	b.rules("id=a server=ms0 action=trace store=ms2 records=62 batch=4")
	b.accounted()
	b.take(0, 1, udp(0))
	if l := b.m.list(0)[0]; l.Epoch == epoch || l.Epoch == 0 || l.Newest != 1 || b.m.Stats().Dropped != 1 {
		t.Errorf("%+v; %+v", l, b.m.Stats())
	}
	b.rules()
	b.accounted()
	b.take(0, 1, udp(0))
	if s := b.m.Stats(); s.Records != 2 || len(b.m.list(0)) != 0 {
		t.Errorf("%+v", s)
	}
}

// Packets of another host to the switch's queue pair are dropped and counted.
func TestStrangers(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 records=64")
	b.connect("10.0.0.3", 1024, bedBytes)
	b.step(0, func(c *pipeline.Ctx) {
		p := &pipeline.Parsed{}
		p.IPv4.Src, p.BTH = [4]byte{10, 0, 0, 2}, wire.BTH{Opcode: wire.RCAck, DestQP: 0x30}
		if v := b.m.Owned(c, p); v != pipeline.Drop(ReasonStranger) {
			t.Errorf("%+v", v)
		}
	})
	if b.m.Stats().Strangers != 1 {
		t.Error("not counted")
	}
}

// Recording allocates nothing.
func TestTakeDoesNotAllocate(t *testing.T) {
	b := newBed(t, "id=a server=ms0 action=trace store=ms2 records=64")
	b.connect("10.0.0.3", 1024, bedBytes)
	f := udp(1)
	var out packetio.Batch
	take := func(c *pipeline.Ctx) {
		if b.m.rings[0].batches[0].records == 7 {
			b.m.rings[0].batches[0].records, b.m.rings[0].batches[0].bytes = 0, b.m.rings[0].batches[0].bytes[:0]
		}
		b.m.Take(c, 1, f)
	}
	if n := testing.AllocsPerRun(100, func() { b.sw.Step(b.now, &out, take) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
