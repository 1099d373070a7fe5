package engine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// operations are one message of each kind that stores use.
func operations(p *pair) map[string][]verbs.SendWR {
	a, b := p.a, p.b
	return map[string][]verbs.SendWR{
		"write-8": {{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 8)}, RemoteAddr: b.base, RKey: b.key}},
		"read-4k": {{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 4096)}, RemoteAddr: b.base, RKey: b.key}},
		"cas":     {{Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 8)}, RemoteAddr: b.base, RKey: b.key, Swap: 1}},
		"write-8 x32": func() (list []verbs.SendWR) {
			for range 32 {
				list = append(list, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.sge(0, 8)}, RemoteAddr: b.base, RKey: b.key})
			}
			list[31].Flags = verbs.Signalled
			return list
		}(),
	}
}

// roundTrip runs a whole RC exchange: post, encode with ICRC, check and decode, execute, answer,
// complete, poll.
func roundTrip(t testing.TB, p *pair, wrs []verbs.SendWR) {
	p.now += 1000
	if err := p.a.qp.PostSend(p.now, wrs, &p.a.out); err != nil {
		t.Fatal(err)
	}
	for p.exchange(p.a, p.b)+p.exchange(p.b, p.a) > 0 {
	}
	var wc [1]verbs.WC
	q, _ := p.a.cq.Queue()
	if n := q.Poll(wc[:]); n != 1 || wc[0].Status != verbs.Success {
		t.Fatalf("%d completions, %v", n, wc[0].Status)
	}
}

// A full exchange allocates nothing, in the requester, in the responder and in the codec.
func TestExchangeAllocatesNothing(t *testing.T) {
	p := connectPair(t, newSide(t, newEngine(t, "a", 1, macA, nil, ipA)), newSide(t, newEngine(t, "b", 2, macB, nil, ipB)), 0, verbs.MTU4096)
	for name, wrs := range operations(p) {
		for range 100 {
			roundTrip(t, p, wrs) // buffers grow to their final size
		}
		if n := testing.AllocsPerRun(200, func() { roundTrip(t, p, wrs) }); n != 0 {
			t.Errorf("%s: %v allocations a message", name, n)
		}
	}
}

// BenchmarkExchange measures the processor time of a message in both NICs together.
func BenchmarkExchange(b *testing.B) {
	p := connectPair(b, newSide(b, newEngine(b, "a", 1, macA, nil, ipA)), newSide(b, newEngine(b, "b", 2, macB, nil, ipB)), 0, verbs.MTU4096)
	for _, name := range []string{"write-8", "read-4k", "cas", "write-8 x32"} {
		b.Run(name, func(b *testing.B) {
			wrs := operations(p)[name]
			b.ReportAllocs()
			for b.Loop() {
				roundTrip(b, p, wrs)
			}
		})
	}
}
