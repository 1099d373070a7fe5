package switchd

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/stall"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
)

// steady returns a switch of two hosts whose loop does not run, and a function that passes a burst
// through one round.
func steady(tb testing.TB, faults ...fault.Rule) (burst int, round func()) {
	tb.Helper()
	var hosts, ends [2]*memcable.Port
	for i := range hosts {
		hosts[i], ends[i] = memcable.Pair(memcable.Config{})
	}
	d, err := New(Config{
		Program: forward.Program{}, NewWaiter: newWaiter, Links: []Link{{Host: "h0", Ifname: "p0"}, {Host: "h1", Ifname: "p1"}}, Faults: Faults{Rules: faults},
		Open: func(i int, _ Link) (packetio.Port, error) { return ends[i], nil },
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		d.captures.stop()
		_ = d.ports.waiter.Close()
		_ = d.ports.closePorts()
	})
	var out, in packetio.Batch
	out.Add(0, frame(1, -1))
	if _, err := hosts[1].Send(&out); err != nil {
		tb.Fatal(err)
	}
	d.traffic.round()
	out.Reset()
	burst = 32
	for i := range burst {
		out.Add(0, roce(0, 1, wire.RCSendOnly, wire.PSN(i)))
	}
	return burst, func() {
		if _, err := hosts[0].Send(&out); err != nil {
			tb.Fatal(err)
		}
		d.traffic.round()
		for n := 1; n > 0; {
			n, _ = hosts[1].Recv(&in)
		}
	}
}

func TestRoundAllocatesNothing(t *testing.T) {
	for name, faults := range map[string][]fault.Rule{
		"plain":   nil,
		"faults":  {{Link: "h0", Kind: fault.Loss, Probability: 0.1}, {Link: "h1", Kind: fault.Corrupt, Probability: 0.1}, {Link: "h1", Kind: fault.Duplicate, Probability: 0.1}},
		"delayed": {{Link: "h0", Kind: fault.Delay, Delay: 1}},
	} {
		_, round := steady(t, faults...)
		// warm-up: buffers grow to their final size, also those of all 1024 slots of a port
		for range 200 {
			round()
		}
		if n := testing.AllocsPerRun(200, round); n != 0 {
			t.Errorf("%s: %v allocations a round", name, n)
		}
	}
}

func BenchmarkRound(b *testing.B) {
	burst, round := steady(b)
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*burst), "ns/frame")
}

// A round that comes much later than it was due is a stall of the process.
func TestLateRound(t *testing.T) {
	_, end := memcable.Pair(memcable.Config{})
	d, err := New(Config{
		Program: forward.Program{}, NewWaiter: newWaiter, Links: []Link{{Host: "h0", Ifname: "p0"}}, Open: func(int, Link) (packetio.Port, error) { return end, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.captures.stop()
		_ = d.ports.waiter.Close()
		_ = d.ports.closePorts()
	})
	count := func() uint64 {
		if s := stall.OfProcess.Summary(); s != nil {
			return s.Count
		}
		return 0
	}
	was := count()
	d.traffic.now = clock.Time(time.Hour)
	d.late(0)           // the first round
	d.late(clock.Never) // no timer
	d.late(d.traffic.now.Add(-stall.Least + 1))
	d.late(d.traffic.now.Add(-stall.Least))
	if got := count() - was; got != 1 {
		t.Errorf("%d stalls, want 1", got)
	}
}
