package conntrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The states of flows in use are read as they are written.
func TestNamesOfStates(t *testing.T) {
	for s := Learning; s <= Closed; s++ {
		text, err := s.MarshalText()
		got := unused
		if err != nil || got.UnmarshalText(text) != nil || got != s {
			t.Errorf("%v is written as %q and read as %v", s, text, got)
		}
	}
	for _, name := range []string{"unused", "", "Open"} {
		got := Open
		if got.UnmarshalText([]byte(name)) == nil || got != Open {
			t.Errorf("%q is read as %v", name, got)
		}
	}
}

// The path MTUs are the powers of two from 256 to 4096, with the codes 1 to 5.
func TestPathMTUs(t *testing.T) {
	mtus := map[int]uint8{256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
	for n := range 8300 {
		if _, ok := mtus[n]; isMTU(n) != ok {
			t.Errorf("%d bytes can be an MTU: %v", n, !ok)
		}
	}
	for n, code := range mtus {
		if mtuOf(code) != n {
			t.Errorf("code %d is %d bytes", code, mtuOf(code))
		}
	}
	if mtuOf(0) != 0 || mtuOf(6) != 0 {
		t.Error("codes 0 and 6 have an MTU")
	}
	for _, c := range []struct {
		span int
		n    uint32
		want int
	}{{0, 1, 1}, {0, 256, 1}, {0, 257, 2}, {0, 512, 2}, {0, 1<<32 - 1, 1 << 24}, {1, 5000, 1}, {7, 1, 7}} {
		if got := maxSpan(c.span, c.n); got != c.want {
			t.Errorf("%d bytes, span %d: at most %d", c.n, c.span, got)
		}
	}
}

// A READ response shows the path MTU if it is a first or middle one, or longer than half of the
// largest MTU. A response of one packet shows that such READs take one PSN.
func TestMeasuredMTU(t *testing.T) {
	for _, c := range []struct {
		name    string
		op      wire.Opcode
		n       int
		mtu     int
		atLeast int
		open    uint32 // the length of the open READ
		synced  bool
	}{
		{"first", wire.RCReadResponseFirst, 1024, 1024, 1024, 3000, true},
		{"middle", wire.RCReadResponseMiddle, 512, 512, 512, 3000, true},
		{"first of another length", wire.RCReadResponseFirst, 1000, 0, 0, 3000, false},
		{"last", wire.RCReadResponseLast, 1024, 0, 0, 3000, false},
		{"only", wire.RCReadResponseOnly, 700, 0, 700, 700, true},
		{"only, to another READ", wire.RCReadResponseOnly, 700, 0, 700, 701, false},
		{"only, half of the largest", wire.RCReadResponseOnly, 2048, 0, 2048, 2048, true},
		{"only, longer", wire.RCReadResponseOnly, 2049, 4096, 4096, 2049, true},
		{"only, the largest", wire.RCReadResponseOnly, 4096, 4096, 4096, 4096, true},
		{"only, too long", wire.RCReadResponseOnly, 4097, 0, 0, 5000, false},
		{"ACK", wire.RCAck, 1024, 0, 0, 1024, false},
	} {
		fl := &Flow{}
		fl.sync, fl.open, fl.Expected = readOpen, readOf{100, c.open}, 100
		fl.measure(&wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: c.op}, Payload: make([]byte, c.n)}})
		if fl.PathMTU.MTU != c.mtu || fl.PathMTU.atLeast != c.atLeast || fl.Synced() != c.synced {
			t.Errorf("%s: MTU %d, at least %d, %v", c.name, fl.PathMTU.MTU, fl.PathMTU.atLeast, fl.sync)
		}
		want := wire.PSN(100)
		if c.synced {
			want = want.Add(fl.PathMTU.SpanOf(c.open))
		}
		if fl.Expected != want {
			t.Errorf("%s: expected %d, want %d", c.name, fl.Expected, want)
		}
		// Without an open READ, nothing is counted.
		fl = &Flow{}
		fl.sync, fl.open, fl.Expected = synced, readOf{100, c.open}, 100
		fl.measure(&wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: c.op}, Payload: make([]byte, c.n)}})
		if fl.Expected != 100 {
			t.Errorf("%s, no open READ: expected %d", c.name, fl.Expected)
		}
	}
}

// When two flows become peers, what one knows of the path MTU holds for the other, too; what it
// knows itself stays.
func TestMTUOfPeers(t *testing.T) {
	for _, c := range []struct{ mtu, atLeast, peer, peerAtLeast, want, wantAtLeast int }{
		{0, 0, 0, 0, 0, 0},
		{0, 300, 0, 700, 0, 700},
		{0, 700, 0, 300, 0, 700},
		{0, 0, 1024, 1024, 1024, 1024},
		{2048, 2048, 1024, 1024, 2048, 2048},
		{2048, 2048, 0, 300, 2048, 2048},
	} {
		r := newRig(t, nil)
		r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 1))
		r.ask(packet(2, 1, 0x11, wire.RCWriteOnly, 1))
		a, b := r.flow(1, 2, 0x22), r.flow(2, 1, 0x11)
		a.PathMTU, b.PathMTU = pathMTU{c.mtu, c.atLeast}, pathMTU{c.peer, c.peerAtLeast}
		r.pair(a, b)
		if a.PathMTU.MTU != c.want || a.PathMTU.atLeast != c.wantAtLeast {
			t.Errorf("%+v: MTU %d, at least %d", c, a.PathMTU.MTU, a.PathMTU.atLeast)
		}
	}
}

// On a flow whose PSNs no response has confirmed, the responder is assumed to expect the first
// request and those that follow it in order.
func TestClassesWithoutConfirmation(t *testing.T) {
	var q Sequence
	for _, c := range []struct {
		psn      wire.PSN
		span     int
		expected wire.PSN
	}{{100, 1, 101}, {101, 4, 105}, {107, 1, 105}, {105, 1, 106}, {100, 1, 106}} {
		if got := q.classify(c.psn, c.span); got != Unsynced || q.Expected != c.expected {
			t.Errorf("PSN %d: %v, expected %d, want %d", c.psn, got, q.Expected, c.expected)
		}
		q.reach(c.psn, c.span, 8)
	}
	q.sync.on(evAnswered)
	q.Advance(0) // a READ of unknown span
	if got := q.classify(q.Expected, 1); got != Unsynced || q.Expected != 106 || q.quiet() {
		t.Errorf("behind an open READ: %v, expected %d", got, q.Expected)
	}
	q = Sequence{Expected: 100, sync: synced}
	for psn, want := range map[wire.PSN]Class{99: Duplicate, 100: New, 101: Ahead} {
		if got := q.classify(psn, 1); got != want || q.Expected != 100 {
			t.Errorf("PSN %d: %v, want %v", psn, got, want)
		}
	}
}

// The PSNs of requests and responses only rise, and one counts as reached once a request had it.
func TestReachedPSNs(t *testing.T) {
	for _, base := range []wire.PSN{0, 100, 0xffffff} {
		var q Sequence
		if q.reached(base) || q.reached(base.Add(-1)) {
			t.Error("a PSN is reached without requests")
		}
		q.reach(base, 1, 8)
		if !q.reached(base) || q.reached(base.Next()) || q.seen != oneRequest || q.from != base {
			t.Errorf("after a request: %+v", q)
		}
		q.reach(base, 1, 8)
		if q.reached(base.Next()) || q.seen != moreRequests {
			t.Errorf("after it came again: %+v", q)
		}
		q.reach(base.Next(), 1, 8)
		if q.high != base.Add(2) {
			t.Errorf("after the next one: high %d", q.high)
		}
		for _, c := range []struct{ psn, want wire.PSN }{{5, 5}, {4, 5}, {5, 5}, {7, 7}} {
			if q.acked(base.Add(int(c.psn))); !q.HasAcked || q.Acked != base.Add(int(c.want)) {
				t.Errorf("acknowledged %d: %d", c.psn, q.Acked)
			}
		}
	}
}

// The budget grows by one comparison every 200 ns, up to its burst, and never twice for the same
// time.
func TestBudgetOfLearning(t *testing.T) {
	b := budget{left: 0, at: 1000}
	for _, c := range []struct {
		now  clock.Time
		left int
	}{
		{1000, 0},
		{1199, 0},
		{1200, 1},
		{1200, 1},
		{1399, 1},
		{1401, 2},
		{1600, 3},
		{clock.Time(time.Second), 5_000_000 - 5},
		{clock.Time(time.Hour), budgetBurst},
	} {
		want := min(c.left, budgetBurst)
		if open := b.open(c.now); open != (want > 0) || b.left != want {
			t.Errorf("at %d: %d left, want %d; open %v", c.now, b.left, want, open)
		}
	}
}

// What a flow without a peer remembers of its requests decides which responses may answer it.
func TestEvidence(t *testing.T) {
	ask := func(op wire.Opcode, psn wire.PSN, n uint32) *wire.Frame {
		f := packet(1, 2, 0x22, op, psn)
		f.RETH.Length = n
		return f
	}
	type response struct {
		op   wire.Opcode
		psn  wire.PSN
		want match
	}
	const write, get, swap = wire.RCWriteOnly, wire.RCReadRequest, wire.RCCmpSwap
	const ack, data, atomicAck = wire.RCAck, wire.RCReadResponseOnly, wire.RCAtomicAck
	for _, c := range []struct {
		name      string
		requests  []*wire.Frame
		runs      int
		responses []response
	}{
		{"WRITEs", []*wire.Frame{ask(write, 100, 8), ask(write, 101, 8), ask(write, 102, 8)}, 1, []response{
			{ack, 100, matching}, {ack, 102, matching}, {ack, 103, impossible}, {ack, 99, impossible}, {data, 101, impossible}, {atomicAck, 101, impossible},
		}},
		{"an atomic", []*wire.Frame{ask(write, 100, 8), ask(swap, 101, 0), ask(write, 102, 8)}, 3, []response{
			{ack, 100, matching}, {atomicAck, 101, matching}, {ack, 101, impossible}, {ack, 102, matching}, {atomicAck, 102, impossible},
		}},
		{"a READ of two packets", []*wire.Frame{ask(get, 100, 400), ask(write, 102, 8)}, 2, []response{
			{data, 100, matching}, {data, 101, matching}, {ack, 100, impossible}, {ack, 102, matching}, {data, 102, impossible},
		}},
		{"a READ of fewer packets than it could have", []*wire.Frame{ask(get, 100, 1000), ask(write, 102, 8)}, 2, []response{
			{data, 101, matching}, {ack, 102, matching}, {ack, 103, impossible}, {data, 102, impossible},
		}},
		{"a retransmission", []*wire.Frame{ask(write, 100, 8), ask(write, 101, 8), ask(write, 100, 8)}, 1, []response{
			{ack, 101, matching}, {ack, 102, impossible},
		}},
		{"a READ again", []*wire.Frame{ask(write, 99, 8), ask(get, 100, 1000), ask(get, 100, 1000)}, 2, []response{
			{data, 103, matching}, {data, 104, impossible},
		}},
		{"a lower PSN than the first", []*wire.Frame{ask(write, 100, 8), ask(write, 90, 8)}, 1, []response{
			{ack, 100, matching}, {ack, 95, possible}, {ack, 89, impossible},
		}},
		{"a gap", []*wire.Frame{ask(write, 100, 8), ask(write, 110, 8)}, 2, []response{
			{ack, 105, possible}, {data, 105, possible}, {ack, 110, matching},
		}},
		{"a long way", []*wire.Frame{ask(write, 100, 8), ask(write, 101+longAgo, 8)}, 2, []response{
			{ack, 101, possible}, {ack, 99, impossible},
		}},
	} {
		for _, base := range []int{0, 0xfffff0} {
			l := &learning{out: make([]uint64, 1)}
			for _, f := range c.requests {
				g := *f
				g.BTH.PSN = f.BTH.PSN.Add(base)
				l.request(&g, spanOf(f))
			}
			if l.n != c.runs {
				t.Errorf("%s: %d runs", c.name, l.n)
			}
			for _, x := range c.responses {
				if got := l.compare(packet(2, 1, 0x11, x.op, x.psn.Add(base))); got != x.want {
					t.Errorf("%s, from %d: %v of %d is %d, want %d", c.name, base, x.op, x.psn, got, x.want)
				}
			}
		}
	}
	// Only the newest 32 runs are remembered; what is older is possible.
	l := &learning{}
	for i := range wire.PSN(40) {
		l.request(ask(swap, 100+i, 0), 1)
	}
	for psn, want := range map[wire.PSN]match{99: impossible, 100: possible, 107: possible, 108: matching, 139: matching, 140: impossible} {
		if got := l.compare(packet(2, 1, 0x11, atomicAck, psn)); got != want {
			t.Errorf("40 atomics: the response to %d is %d, want %d", psn, got, want)
		}
	}
	// A NAK shows nothing about a PSN that was requested.
	nak := packet(2, 1, 0x11, ack, 120)
	if nak.AETH.Syndrome = wire.NakPSNSequence; l.compare(nak) != possible {
		t.Error("a NAK excludes a flow")
	}
}

// spanOf returns the span that the table passes for a request: 0 for a READ whose span is not known.
func spanOf(f *wire.Frame) int {
	if f.BTH.Opcode == wire.RCReadRequest && f.RETH.Length > minMTU {
		return 0
	}
	return 1
}

// A flow forgets what it has concluded about another one when that one stops learning, and only
// that; starting over forgets everything.
func TestConclusionsAreForgotten(t *testing.T) {
	a, b, c := &Flow{}, &Flow{}, &Flow{}
	la, lb := &learning{slot: 70}, &learning{slot: 3}
	l := &learning{out: make([]uint64, 2), fits: a, votes: 2, claim: b}
	l.exclude(la)
	l.exclude(lb)
	if !l.any || !l.excludes(la) || !l.excludes(lb) || l.excludes(&learning{slot: 6}) {
		t.Errorf("%+v", l)
	}
	if l.forget(c, la); l.excludes(la) || !l.excludes(lb) || l.fits != a || l.votes != 2 || l.claim != b {
		t.Errorf("another flow: %+v", l)
	}
	if l.forget(b, lb); l.excludes(lb) || l.fits != a || l.claim != nil {
		t.Errorf("the flow that claims it: %+v", l)
	}
	if l.forget(a, la); l.fits != nil || l.votes != 0 {
		t.Errorf("the flow that fits: %+v", l)
	}
	l.exclude(la)
	l.fits, l.votes = a, 2
	if l.restart(); l.any || l.excludes(la) || l.fits != nil || l.votes != 0 {
		t.Errorf("after a new start: %+v", l)
	}
}
