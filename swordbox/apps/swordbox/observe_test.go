package swordbox_test

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
)

// countRule counts all requests to the server.
var countRule = rules.Rule{ID: "hot", Server: benchIP(benchServer), Action: hotwords.Count}

// counted adds a counting rule to the rules of the program.
func counted(tb testing.TB, p *swordbox.Program) {
	tb.Helper()
	set, _, err := p.Rules().AddFirst(countRule)
	if err == nil {
		err = p.SetRules(set)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// counter returns the program with a counting rule and no other.
func counter(tb testing.TB) (*bench, *swordbox.Program) {
	p := swordbox.New(swordbox.Config{Own: own(tb), Handlers: []handler.Handler{hotwords.New()}, Track: conntrack.Config{Settle: -1}})
	counted(tb, p)
	return newBench(tb, p), p
}

// hottest returns the counts.
func hottest(p *swordbox.Program) []hotwords.Hot {
	for _, h := range p.Report(0).Handlers {
		if list, ok := h.Lists["hot"].([]hotwords.Hot); ok {
			return list
		}
	}
	return nil
}

// A request counts once, at its address; of a request of several packets the first one counts.
// Retransmissions, dropped requests and responses do not count. A request of a connection that the
// switch does not track counts, too.
func TestRequestsAreCounted(t *testing.T) {
	b, p := counter(t)
	read := func(psn wire.PSN, va uint64) *wire.Frame {
		f := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, psn)
		f.RETH = wire.RETH{VA: va, Length: 8, RKey: 5}
		return f
	}
	first := benchFrame(1, benchServer, benchQP(-1), wire.RCWriteFirst, 1)
	first.RETH, first.Payload = wire.RETH{VA: 0x2000, Length: 2 * benchMTU}, make([]byte, benchMTU)
	last := benchFrame(1, benchServer, benchQP(-1), wire.RCWriteLast, 2)
	last.Payload = make([]byte, benchMTU)
	ack := benchFrame(benchServer, 1, benchQP(1), wire.RCAck, 0)
	stranger := read(9, 0x1000)
	stranger.BTH.DestQP = 0x777
	for _, f := range []*wire.Frame{read(0, 0x1000), read(0, 0x1000), first, last, read(3, 0x1000), stranger} {
		if n := len(b.frame(1, f)); n != 1 {
			t.Errorf("%v: %d packets left", f.BTH, n)
		}
	}
	b.frame(benchServer, ack)
	spoofed := read(4, 0x1000)
	b.frame(2, spoofed)
	list := hottest(p)
	if len(list) != 17 || list[0].Address != 0x1000 || list[0].Reads != 3 || list[1].Address != 0x2000 || list[1].Writes != 1 {
		t.Errorf("%+v", list)
	}
	if tables := p.Tables(0); tables[len(tables)-1].Used != 17 {
		t.Errorf("%+v", tables)
	}
	if n, ok := p.ClearTable("hot"); n != 17 || !ok || hottest(p) != nil {
		t.Errorf("%d, %v", n, ok)
	}
}

// A damaged request does not count, on a connection that the switch tracks or not: its address may be
// wrong. The switch drops it, because a second fault could restore it behind the switch: then the
// server would execute a request that was not counted. Its retransmission counts.
func TestDamagedRequestIsNotCounted(t *testing.T) {
	b, p := counter(t)
	read := func(qpn, psn uint32) *wire.Frame {
		f := benchFrame(1, benchServer, wire.QPN(qpn), wire.RCReadRequest, wire.PSN(psn))
		f.RETH = wire.RETH{VA: 0x1000, Length: 8, RKey: 5}
		return f
	}
	own := uint32(benchQP(-1))
	b.frame(1, read(own, 0))
	for _, qpn := range []uint32{own, 0x777} {
		data := read(qpn, 1).AppendTo(nil)
		data[len(data)-1] ^= 1
		b.now = b.now.Add(time.Microsecond)
		b.out.Reset()
		b.sw.Frame(b.now, 1, packetio.Frame{Data: data}, &b.out)
		if len(b.out.Frames) != 0 {
			t.Errorf("%d packets left", len(b.out.Frames))
		}
	}
	if list := hottest(p); len(list) != 1 || list[0].Reads != 1 {
		t.Errorf("damaged requests count: %+v", list)
	}
	b.frame(1, read(own, 1))
	if list := hottest(p); len(list) != 1 || list[0].Reads != 2 {
		t.Errorf("the retransmission of a damaged request does not count: %+v", list)
	}
}

// A request that overtakes another one on its way to the switch counts once, whether it comes again or
// not.
func TestOvertakingRequestCountsOnce(t *testing.T) {
	b, p := counter(t)
	play := func(psns ...wire.PSN) {
		for _, psn := range psns {
			f := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, psn)
			f.RETH = wire.RETH{VA: 0x1000, Length: 8, RKey: 5}
			b.frame(1, f)
		}
	}
	for i, psns := range [][]wire.PSN{{0, 2, 1}, {2}, {3}, {5, 5, 6, 4, 5, 6}} {
		play(psns...)
		if got, want := hottest(p)[0].Reads, []uint64{3, 3, 4, 7}[i]; got != want {
			t.Errorf("after %v: %d requests, want %d", psns, got, want)
		}
	}
}

// A READ that overtakes another request counts once, also if a part of its responses is lost: then the
// requester asks for the rest, with a PSN within the READ, and the switch has not seen the READ in order.
func TestRestOfOvertakingReadIsNotCounted(t *testing.T) {
	for _, packets := range []int{2, 8, 70, 300} {
		b, p := counter(t)
		read := func(psn wire.PSN, va uint64, packets int) {
			f := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, psn)
			f.RETH = wire.RETH{VA: va, Length: uint32(packets) * benchMTU, RKey: 5}
			b.frame(1, f)
		}
		want := func(n uint64, when string) {
			t.Helper()
			got := uint64(0)
			for _, h := range hottest(p) {
				got += h.Reads
			}
			if got /= 16; got != n { // the handler counts the first 16 words of each READ
				t.Errorf("a READ of %d packets: %d requests are counted %s, want %d", packets, got, when, n)
			}
		}
		read(0, 0x1000, 1)
		read(2, 0x100000, packets)
		read(1, 0x1000, 1)
		want(3, "in the wrong order")
		for skip := 1; skip < packets; skip++ {
			read(wire.PSN(2+skip), 0x100000+uint64(skip)*benchMTU, packets-skip)
		}
		want(3, "with the rest of a READ")
		read(2, 0x100000, packets)
		for psn := range wire.PSN(3) {
			read(wire.PSN(2+packets)+psn, 0x1000, 1)
		}
		want(6, "with those behind it")
	}
}

// Requests that overtake others do not keep those behind them from counting, however many PSNs they
// take and however long the answers are away.
func TestRequestsBehindAnOvertakingOneCount(t *testing.T) {
	for _, packets := range []int{1, 2, 62, 63, 64, 70, 300} {
		b, p := counter(t)
		read := func(psn wire.PSN, va uint64, packets int) {
			f := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, psn)
			f.RETH = wire.RETH{VA: va, Length: uint32(packets) * benchMTU, RKey: 5}
			if n := len(b.frame(1, f)); n != 1 {
				t.Errorf("PSN %d: %d packets leave", psn, n)
			}
		}
		read(0, 0x1000, 1)
		read(2, 0x1000, packets)
		read(1, 0x1000, 1)
		for i := range wire.PSN(80) {
			read(wire.PSN(2+packets)+i, 0x1000, 1)
		}
		if n := hottest(p)[0].Reads; n != 83 {
			t.Errorf("a READ of %d packets overtakes: %d of 83 requests are counted", packets, n)
		}
	}
}

// Requests count that are far ahead of one that they overtake: behind the switch they may be in order
// again. If they come again, they do not count twice.
func TestRequestsFarAheadCount(t *testing.T) {
	for _, packets := range []int{1, 62, 63, 64, 300} {
		for _, again := range []bool{false, true} {
			b, p := counter(t)
			read := func(psn wire.PSN, packets int) {
				f := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, psn)
				f.RETH = wire.RETH{VA: 0x1000, Length: uint32(packets) * benchMTU, RKey: 5}
				b.frame(1, f)
			}
			const behind = 200
			ahead := func() {
				read(2, packets)
				for i := range wire.PSN(behind) {
					read(wire.PSN(2+packets)+i, 1)
				}
			}
			read(0, 1)
			if ahead(); again {
				ahead()
			}
			if read(1, 1); again {
				ahead()
			}
			if n := hottest(p)[0].Reads; n != 3+behind {
				t.Errorf("a READ of %d packets and %d requests overtake, again %v: %d of %d requests are counted", packets, behind, again, n, 3+behind)
			}
		}
	}
}

// Of requests ahead with gaps between them, the switch remembers a bounded number. Those in order count.
func TestRequestsWithGapsCount(t *testing.T) {
	b, p := counter(t)
	read := func(psn wire.PSN) {
		f := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, psn)
		f.RETH = wire.RETH{VA: 0x1000, Length: 8, RKey: 5}
		b.frame(1, f)
	}
	read(0)
	const n = 300
	for i := range wire.PSN(n) {
		read(2 + 2*i)
	}
	if got := hottest(p)[0].Reads; got != 1+64 {
		t.Errorf("%d requests with gaps are counted", got)
	}
	for psn := range wire.PSN(2 * n) {
		read(1 + psn)
	}
	if got := hottest(p)[0].Reads; got != 1+2*n {
		t.Errorf("%d requests are counted, want %d", got, 1+2*n)
	}
}

// Requests that overtake one and change places with their neighbours are one run when all have come, so
// that they need no more room than those in order.
func TestRequestsInPairsCount(t *testing.T) {
	b, p := counter(t)
	read := func(psn wire.PSN) {
		f := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, psn)
		f.RETH = wire.RETH{VA: 0x1000, Length: 8, RKey: 5}
		b.frame(1, f)
	}
	read(0)
	const pairs = 300
	for range 2 { // they come again
		for i := range wire.PSN(pairs) {
			read(3 + 2*i)
			read(2 + 2*i)
		}
	}
	if read(1); hottest(p)[0].Reads != 2+2*pairs {
		t.Errorf("%d of %d requests are counted", hottest(p)[0].Reads, 2+2*pairs)
	}
}

// A request that the switch holds and gives up counts once, though its retransmission is in order.
func TestGivenUpRequestCountsOnce(t *testing.T) {
	b, p := ruledWith(t, rules.Hardened, hotwords.New())
	counted(t, p)
	next := b.warm()
	read := benchFrame(1, benchServer, benchQP(-1), wire.RCReadRequest, wire.PSN(next+1))
	read.RETH = wire.RETH{VA: 0x9000, Length: 8, RKey: 5}
	b.frame(1, faa(next)) // moved, and not answered
	if n := len(b.frame(1, read)); n != 0 {
		t.Fatalf("the READ leaves as %d packets", n)
	}
	b.now = b.now.Add(100 * time.Millisecond)
	b.out.Reset()
	b.sw.Tick(b.now, &b.out)
	b.frame(1, read)
	for _, h := range hottest(p) {
		if h.Address == 0x9000 && h.Reads != 1 {
			t.Errorf("one READ counts %d times", h.Reads)
		}
	}
}

// A NIC takes a frame that claims too many segments for one packet; so does the switch.
func TestFrameOfTooManySegmentsCounts(t *testing.T) {
	b, p := counter(t)
	f := benchFrame(1, benchServer, benchQP(-1), wire.RCWriteOnly, 0)
	f.RETH, f.Payload = wire.RETH{VA: 0x1000, Length: 1024, RKey: 5}, make([]byte, 1024)
	send := func(data []byte) int {
		b.now = b.now.Add(time.Microsecond)
		b.out.Reset()
		b.sw.Frame(b.now, 1, packetio.Frame{Data: data, SegSize: 4}, &b.out)
		return len(b.out.Frames)
	}
	data := f.AppendTo(nil)
	data[len(data)-9] ^= 1
	if n := send(data); n != 0 {
		t.Errorf("%d damaged packets leave", n)
	}
	if n, list := send(f.AppendTo(nil)), hottest(p); n != 1 || len(list) == 0 || list[0].Writes != 1 {
		t.Errorf("%d packets leave, %v", n, list)
	}
}

// A counting rule changes no packet: the switch sends the same packets with it and without it, also
// where another rule replaces atomics. The handler gets requests as they arrived.
func TestCountingChangesNothing(t *testing.T) {
	play := func(count bool) (all [][]byte, p *swordbox.Program) {
		b, p := ruledWith(t, rules.Hardened, hotwords.New())
		if count {
			counted(t, p)
		}
		next := b.warm()
		var shots [roundPackets]shot
		each(b.atomics(next, p))(shots[:], 0)
		for _, s := range shots {
			b.now += 1000
			b.out.Reset()
			b.sw.Frame(b.now, s.port, packetio.Frame{Data: s.data}, &b.out)
			for _, f := range b.out.Frames {
				all = append(all, slices.Clone(f.Data))
			}
		}
		return all, p
	}
	with, p := play(true)
	without, _ := play(false)
	if !slices.EqualFunc(with, without, slices.Equal[[]byte]) || len(with) != roundPackets {
		t.Errorf("%d packets with counting, %d without, or not the same", len(with), len(without))
	}
	list := hottest(p)
	if len(list) != 1 || list[0].Address != benchWord || list[0].Atomics < roundPackets/2 {
		t.Errorf("%+v", list)
	}
}

// BenchmarkCostCounted measures a packet of a connection whose requests are counted.
func BenchmarkCostCounted(b *testing.B) {
	c, _ := counter(b)
	race(b, c, each(writes(benchClients, 64)))
}
