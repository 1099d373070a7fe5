package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// exchanges are the hot paths: one work request, all its packets, and its completion.
func exchanges(a, b *side) map[string]verbs.SendWR {
	return map[string]verbs.SendWR{
		"write8": {Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 8)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()},
		"write8inline": {
			Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: make([]byte, 8), RemoteAddr: b.mem.Base(), RKey: b.mem.RKey(),
		},
		"write64k": {Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 1<<16)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()},
		"read4k":   {Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 4096)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()},
		"cas": {
			Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 8)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey(), Swap: 1,
		},
		"send64": {Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 64)}},
	}
}

func fastPair(t testing.TB) (a, b *side) {
	a = newSide(t, "a", 1, 1<<16, Config{QPN: 0x11})
	b = newSide(t, "b", 2, 1<<16, Config{QPN: 0x12, CoalesceAcks: true})
	l := defaultLink
	l.mtu = verbs.MTU4096
	connect(t, a, b, l)
	return a, b
}

// exchange runs one work request to its completion.
func exchange(t testing.TB, now clock.Time, a, b *side, wr *verbs.SendWR, recv *verbs.RecvWR, wc []verbs.WC) {
	if wr.Op == verbs.OpSend {
		if err := b.qp.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.qp.PostSend(now, wr, &a.out); err != nil {
		t.Fatal(err)
	}
	for {
		n := a.deliver(now, b)
		b.qp.FlushAcks(now, &b.out)
		if n+b.deliver(now, a) == 0 {
			break
		}
	}
	b.rcq.Poll(wc)
	if a.scq.Poll(wc) != 1 || wc[0].Status != verbs.Success {
		t.Fatalf("%v: %+v", wr.Op, wc[0])
	}
}

// Once buffers have their size, an exchange allocates no memory.
func TestExchangeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b := fastPair(t)
	recv := &verbs.RecvWR{SGL: []verbs.SGE{b.sge(0, 4096)}}
	wc := make([]verbs.WC, 4)
	for name, wr := range exchanges(a, b) {
		if n := testing.AllocsPerRun(200, func() { exchange(t, 0, a, b, &wr, recv, wc) }); n != 0 {
			t.Errorf("%s: %v allocations an exchange", name, n)
		}
	}
}

// BenchmarkExchange measures a work request with all its packets on a wire without codec.
func BenchmarkExchange(bm *testing.B) {
	a, b := fastPair(bm)
	recv := &verbs.RecvWR{SGL: []verbs.SGE{b.sge(0, 4096)}}
	wc := make([]verbs.WC, 4)
	for _, name := range []string{"write8", "write8inline", "write64k", "read4k", "cas", "send64"} {
		wr := exchanges(a, b)[name]
		bm.Run(name, func(bm *testing.B) {
			bm.ReportAllocs()
			for i := range bm.N {
				exchange(bm, clock.Time(i), a, b, &wr, recv, wc)
			}
		})
	}
}

// BenchmarkPoll measures the completion queue alone.
func BenchmarkPoll(bm *testing.B) {
	c, err := cq.New(64)
	if err != nil {
		bm.Fatal(err)
	}
	wc, s := make([]verbs.WC, 16), c.Source()
	for range bm.N {
		s.Push(0, &verbs.WC{ID: 1})
		c.Poll(wc)
	}
}
