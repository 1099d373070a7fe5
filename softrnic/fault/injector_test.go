package fault

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// packet builds the headers of a RoCEv2 packet over IPv4 that rules match.
func packet(op wire.Opcode, qpn wire.QPN, psn wire.PSN, syndrome wire.Syndrome) []byte {
	b := make([]byte, 14+20+8+12+16+4)
	binary.BigEndian.PutUint16(b[12:], wire.EtherTypeIPv4)
	b[14], b[23] = 0x45, 17
	copy(b[30:], []byte{10, 0, 0, 2})
	binary.BigEndian.PutUint16(b[36:], wire.UDPPort)
	b[42] = byte(op)
	binary.BigEndian.PutUint32(b[46:], uint32(qpn))
	binary.BigEndian.PutUint32(b[50:], uint32(psn))
	b[54] = byte(syndrome)
	return b
}

// message builds a 1RMA message, of which only the headers count.
func message(kind onerma.Kind, op onerma.Op) []byte {
	f := onerma.Frame{Header: onerma.Header{Kind: kind, Op: op, Length: 1}}
	return append(f.AppendOpen(nil, 0), make([]byte, onerma.TagLen)...)
}

// Rules with a class of 1RMA hit the messages of that kind or operation and nothing else.
func TestClassesOfOneRMA(t *testing.T) {
	frames := map[string][]byte{
		"roce": packet(wire.RCWriteOnly, 17, 1, 0), "arp": arp(), "short": message(onerma.Data, onerma.Read)[:60],
		"request of READ": message(onerma.Request, onerma.Read), "data of READ": message(onerma.Data, onerma.Read),
		"pull of WRITE": message(onerma.Pull, onerma.Write), "done of REKEY": message(onerma.Done, onerma.Rekey), "NACK of READ": message(onerma.Nack, onerma.Read),
		"AUTHFAIL of WRITE": message(onerma.AuthFail, onerma.Write),
	}
	for class, want := range map[string][]string{
		"onerma":         {"request of READ", "data of READ", "pull of WRITE", "done of REKEY", "NACK of READ", "AUTHFAIL of WRITE"},
		"onerma_request": {"request of READ"}, "onerma_data": {"data of READ"}, "onerma_pull": {"pull of WRITE"}, "onerma_done": {"done of REKEY"},
		"onerma_refusal": {"NACK of READ", "AUTHFAIL of WRITE"}, "onerma_read": {"request of READ", "data of READ", "NACK of READ"},
		"onerma_write": {"pull of WRITE", "AUTHFAIL of WRITE"}, "onerma_rekey": {"done of REKEY"}, "roce": {"roce"},
	} {
		r := Rule{Link: "cn0", Kind: Loss, Match: Match{Class: class}}
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		in := NewInjector(1, "cn0", Up, []Rule{r})
		for name, b := range frames {
			if hit := in.Frame(0, b).Drop; hit != slices.Contains(want, name) {
				t.Errorf("class %s: %s is lost: %v", class, name, hit)
			}
		}
	}
}

func arp() []byte {
	b := make([]byte, 60)
	binary.BigEndian.PutUint16(b[12:], wire.EtherTypeARP)
	return b
}

func ptr[T any](v T) *T { return &v }

// clone copies a verdict, which the next call overwrites.
func clone(v Verdict) Verdict {
	v.Rules = slices.Clone(v.Rules)
	return v
}

func TestSamePlanSameVerdicts(t *testing.T) {
	rules := []Rule{
		{Link: "cn0", Kind: Loss, Probability: 0.1},
		{Link: "cn0", Kind: Delay, Delay: time.Millisecond, Jitter: time.Microsecond},
		{Link: "cn0", Kind: Corrupt, Probability: 0.2},
		{Link: "cn1", Kind: Loss, Probability: 0.5},
	}
	run := func(noise bool) []Verdict {
		a := NewInjector(7, "cn0", Up, rules)
		b := NewInjector(7, "cn1", Up, rules)
		var out []Verdict
		for i := range 2000 {
			if noise { // another link's frames, and other traffic on this one
				b.Frame(clock.Time(i), packet(wire.RCSendOnly, 1, 2, 0))
				a.Frame(clock.Time(i), arp())
			}
			out = append(out, clone(a.Frame(clock.Time(i), packet(wire.RCWriteOnly, 17, wire.PSN(i), 0))))
		}
		return out
	}
	plain := run(false)
	for i, v := range run(true) {
		if v.Drop != plain[i].Drop || v.Delay != plain[i].Delay || v.Bit != plain[i].Bit || !slices.Equal(v.Rules, plain[i].Rules) {
			t.Fatalf("frame %d: %+v with other traffic, %+v without", i, v, plain[i])
		}
	}
}

func TestLinksDirectionsSeedsAndRulesDiffer(t *testing.T) {
	pattern := func(seed uint64, link string, dir Dir, id string) (bits []bool) {
		in := NewInjector(seed, link, dir, []Rule{{ID: id, Link: link, Kind: Loss, Probability: 0.5}})
		for range 64 {
			bits = append(bits, in.Frame(0, arp()).Drop)
		}
		return bits
	}
	base := pattern(1, "cn0", Up, "a")
	for _, other := range [][]bool{
		pattern(2, "cn0", Up, "a"), pattern(1, "cn1", Up, "a"),
		pattern(1, "cn0", Down, "a"), pattern(1, "cn0", Up, "b"),
	} {
		if slices.Equal(base, other) {
			t.Error("two different streams gave the same 64 verdicts")
		}
	}
}

func TestProbabilities(t *testing.T) {
	for _, p := range []float64{0.01, 0.1, 0.5, 0.9} {
		in := NewInjector(3, "cn0", Up, []Rule{{Link: "cn0", Kind: Loss, Probability: p}})
		const n = 100_000
		drops := 0.0
		for range n {
			if in.Frame(0, arp()).Drop {
				drops++
			}
		}
		if sigma := math.Sqrt(n * p * (1 - p)); math.Abs(drops-n*p) > 5*sigma {
			t.Errorf("p=%v: %v of %v frames dropped", p, drops, n)
		}
	}
}

// event is one packet of a test of rules for exact packets, and whether the rule must hit it.
type event struct {
	frame []byte
	hit   bool
}

func TestExactEvents(t *testing.T) {
	w := func(psn wire.PSN) []byte { return packet(wire.RCWriteLast, 0x11, psn, 0) }
	ack := func(s wire.Syndrome) []byte { return packet(wire.RCAck, 0x11, 5, s) }
	tests := []struct {
		name  string
		match Match
		count int
		run   []event
	}{
		{"once", Match{Opcodes: []wire.Opcode{wire.RCAtomicAck}}, 1, []event{
			{w(1), false},
			{packet(wire.RCAtomicAck, 0x11, 1, 0), true},
			{packet(wire.RCAtomicAck, 0x11, 2, 0), false},
		}},
		{"offset across the wrap", Match{PSNOffset: ptr(3)}, 0, []event{
			{w(0xfffffe), false},
			{w(0xffffff), false},
			{w(0), false},
			{w(1), true},
			{w(2), false},
			{w(1), true},
		}},
		{"offset of a queue pair reused", Match{PSNOffset: ptr(1)}, 0, []event{
			{w(100), false},
			{w(101), true},
			{w(0x900000), false},
			{w(0x900001), true},
		}},
		{"offset of a connection, and not of management datagrams", Match{Class: "request", PSNOffset: ptr(1)}, 1, []event{
			{packet(wire.UDSendOnly, 1, 100, 0), false},
			{packet(wire.UDSendOnly, 1, 101, 0), false},
			{w(100), false},
			{w(101), true},
		}},
		{"offset of management datagrams", Match{QPN: ptr(wire.QPN(1)), PSNOffset: ptr(1)}, 0, []event{
			{packet(wire.UDSendOnly, 1, 100, 0), false},
			{packet(wire.UDSendOnly, 1, 101, 0), true},
		}},
		{"second transmission", Match{Transmission: 2}, 0, []event{
			{w(1), false},
			{w(2), false},
			{w(1), true},
			{w(1), false},
			{w(2), true},
		}},
		{"first two transmissions of one packet", Match{Opcodes: []wire.Opcode{wire.RCWriteLast}, SamePacket: true}, 2, []event{
			{w(7), true},
			{w(9), false},
			{w(7), true},
			{w(7), false},
			{w(9), false},
		}},
		{"queue pair", Match{QPN: ptr(wire.QPN(0x12))}, 0, []event{{w(1), false}, {packet(wire.RCSendOnly, 0x12, 1, 0), true}}},
		{"PSN", Match{PSN: ptr(wire.PSN(4))}, 0, []event{{w(3), false}, {w(4), true}}},
		{"ack", Match{Class: "ack"}, 0, []event{{ack(wire.AckNoCredits), true}, {ack(wire.NakPSNSequence), false}, {w(1), false}}},
		{"nak", Match{Class: "nak"}, 0, []event{{ack(wire.AckNoCredits), false}, {ack(wire.NakRemoteAccess), true}, {ack(wire.RNRNak | 3), false}}},
		{"rnr", Match{Class: "rnr"}, 0, []event{{ack(wire.RNRNak | 3), true}, {ack(wire.NakInvalid), false}}},
		{"roce", Match{Class: "roce"}, 0, []event{{arp(), false}, {w(1), true}}},
		{"any", Match{}, 2, []event{{arp(), true}, {w(1), true}, {w(2), false}}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := Rule{ID: "x", Link: "cn0", Dir: Down, Kind: Loss, Match: tc.match, Count: tc.count}
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
			in := NewInjector(1, "cn0", Down, []Rule{r})
			var hits uint64
			for i, e := range tc.run {
				v := in.Frame(0, e.frame)
				if v.Drop != e.hit || (v.Rules != nil) != e.hit {
					t.Errorf("frame %d: verdict %+v, want drop %v", i, v, e.hit)
				}
				if e.hit {
					hits++
				}
			}
			if s := in.state("x"); s == nil || s.hits != hits { // the rule is listed, also after it has expired
				t.Errorf("the rule is %+v, want %d hits", s, hits)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	one := func(r Rule) Verdict {
		r.Link, r.ID = "cn0", "r"
		if err := r.Validate(); err != nil {
			t.Fatal(err)
		}
		return clone(NewInjector(1, "cn0", Up, []Rule{r}).Frame(0, arp()))
	}
	if v := one(Rule{Kind: Duplicate}); v.Copies != 1 || v.Drop {
		t.Errorf("duplicate: %+v", v)
	}
	if v := one(Rule{Kind: Delay, Delay: time.Millisecond}); v.Delay != time.Millisecond {
		t.Errorf("delay: %+v", v)
	}
	if v := one(Rule{Kind: Reorder}); v.Delay != defaultReorder {
		t.Errorf("reorder: %+v", v)
	}
	if v := one(Rule{Kind: Blackhole}); !v.Drop {
		t.Errorf("blackhole: %+v", v)
	}
	frame := arp()
	v := one(Rule{Kind: Corrupt})
	FlipBit(frame, v.Bit)
	changed := 0
	for i, b := range arp() {
		if b != frame[i] {
			changed++
			if x := b ^ frame[i]; i < 14 || x&(x-1) != 0 {
				t.Errorf("corrupt changed byte %d by %#x", i, x)
			}
		}
	}
	if !v.Corrupt || changed != 1 {
		t.Errorf("corrupt: %+v changed %d bytes", v, changed)
	}
}

func TestRateQueuesThenDrops(t *testing.T) {
	in := NewInjector(1, "cn0", Up, []Rule{{Link: "cn0", Kind: Rate, BitsPerSecond: 1_000_000_000}})
	frame := make([]byte, 1250) // 10 µs each
	var sent int
	for i := range 1000 {
		v := in.Frame(0, frame)
		if v.Drop {
			sent = i
			break
		}
		if want := time.Duration(i+1) * 10 * time.Microsecond; v.Delay != want {
			t.Fatalf("frame %d waits %v, want %v", i, v.Delay, want)
		}
	}
	if want := rateQueueBytes / 1250; sent < want || sent > want+2 {
		t.Errorf("%d frames queued before the first drop, want about %d", sent, want)
	}
	if v := in.Frame(clock.Time(time.Second), frame); v.Drop || v.Delay != 10*time.Microsecond {
		t.Errorf("an idle line gives %+v", v)
	}
}

func TestForEndsARule(t *testing.T) {
	in := NewInjector(1, "cn0", Up, nil)
	in.Add(100, Rule{ID: "a", Link: "cn0", Kind: Loss, For: 50})
	if !in.Frame(149, arp()).Drop {
		t.Error("the rule ended early")
	}
	if in.Frame(150, arp()).Drop || in.Active() {
		t.Error("the rule outlived its time")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	in := NewInjector(1, "cn0", Up, []Rule{{Link: "cn0", Kind: Loss, Match: Match{Transmission: 2}}})
	for i := range 3 * maxTracked {
		in.Frame(0, packet(wire.RCSendOnly, wire.QPN(i), 0, 0))
	}
	if n := len(in.conns.ring.vals); n != maxConnections {
		t.Errorf("%d connections remembered, want %d", n, maxConnections)
	}
	if n := len(in.rules[0].seen.vals); n != maxTracked {
		t.Errorf("%d packets remembered, want %d", n, maxTracked)
	}
}

func FuzzInjector(f *testing.F) {
	f.Add(packet(wire.RCSendOnly, 1, 2, 3), uint64(1))
	f.Add(arp(), uint64(2))
	f.Add([]byte{}, uint64(3))
	f.Fuzz(func(t *testing.T, frame []byte, seed uint64) {
		in := NewInjector(seed, "a", Up, []Rule{
			{Link: "a", Kind: Corrupt},
			{Link: "a", Kind: Loss, Match: Match{Transmission: 1, PSNOffset: ptr(0)}},
		})
		v := in.Frame(0, frame)
		if v.Corrupt {
			FlipBit(frame, v.Bit)
		}
		if len(frame) > 14 && v.Bit >= (len(frame)-14)*8 {
			t.Fatalf("bit %d of %d bytes", v.Bit, len(frame))
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	frame := packet(wire.RCWriteOnly, 17, 1, 0)
	for name, rules := range map[string][]Rule{
		"idle":  nil,
		"loss":  {{Link: "cn0", Kind: Loss, Probability: 0.1}},
		"three": {{Link: "cn0", Kind: Loss, Probability: 0.1}, {Link: "cn0", Kind: Duplicate, Probability: 0.05}, {Link: "cn0", Kind: Corrupt, Probability: 0.01}},
	} {
		b.Run(name, func(b *testing.B) {
			in := NewInjector(1, "cn0", Up, rules)
			b.ReportAllocs()
			for b.Loop() {
				in.Frame(0, frame)
			}
		})
	}
}
