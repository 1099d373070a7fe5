package portqueue

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// drainAll lets everything leave, and calls f for each frame.
func drainAll(b *Bank, now clock.Time, f func(now clock.Time, fr packetio.Frame)) clock.Time {
	var out packetio.Batch
	for at := b.Deadline(); at != clock.Never; at = b.Deadline() {
		now = max(now, at)
		out.Reset()
		b.Due(now, &out)
		for _, fr := range out.Frames {
			f(now, fr)
		}
	}
	return now
}

// A port sends at its rate, to the picosecond in the long run, and an idle port saves no time.
func TestRate(t *testing.T) {
	for _, rate := range []int64{1e6, 3e8 + 7, 1e9, 4e10, 1e11} {
		b := bank(t, Config{Rate: rate, Overhead: Overhead, Own: 64 << 20}, 1)
		const frames, start = 1000, clock.Time(time.Second)
		f := roce(0, wire.NotECT, 1074)
		for range frames {
			b.Offer(start, -1, 0, packetio.Frame{Data: f}, "")
		}
		n := 0
		drainAll(b, start, func(now clock.Time, _ packetio.Frame) {
			want := float64(n) * float64(len(f)+Overhead) * 8 * 1e9 / float64(rate)
			if got := float64(now.Sub(start)); math.Abs(got-want) > 2 {
				t.Fatalf("rate %d: frame %d leaves after %.0f ns, want %.0f", rate, n, got, want)
			}
			n++
		})
		if n != frames {
			t.Errorf("%d frames left", n)
		}
	}
}

// Due that is called late makes up for at most the lateness.
func TestLateness(t *testing.T) {
	const rate = 1e9
	b := bank(t, Config{Rate: rate, Own: 64 << 20, Lateness: 100 * time.Microsecond}, 1)
	f := roce(0, wire.NotECT, 1250) // 10 microseconds
	for range 100 {
		b.Offer(0, -1, 0, packetio.Frame{Data: f}, "")
	}
	var out packetio.Batch
	for _, c := range []struct {
		at   time.Duration
		want int
	}{{0, 1}, {45 * time.Microsecond, 4}, {45 * time.Microsecond, 0}, {time.Millisecond, 10}} {
		out.Reset()
		b.Due(clock.Time(c.at), &out)
		if n := len(out.Frames); n < c.want || n > c.want+1 {
			t.Errorf("at %v: %d frames, want %d", c.at, n, c.want)
		}
	}
	// An idle port has nothing to make up for.
	drainAll(b, 0, func(clock.Time, packetio.Frame) {})
	late := clock.Time(time.Second)
	for range 5 {
		b.Offer(late, -1, 0, packetio.Frame{Data: f}, "")
	}
	out.Reset()
	if b.Due(late, &out); len(out.Frames) != 1 {
		t.Errorf("%d frames leave an idle port at once", len(out.Frames))
	}
}

// With a wake time, several frames leave at once, at the same rate.
func TestWake(t *testing.T) {
	b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Lateness: time.Millisecond, Wake: 50 * time.Microsecond}, 1)
	f := roce(0, wire.NotECT, 1250) // 10 microseconds
	const frames = 1000
	for range frames {
		b.Offer(1, -1, 0, packetio.Frame{Data: f}, "")
	}
	calls, left := map[clock.Time]int{}, 0
	end := drainAll(b, 1, func(now clock.Time, _ packetio.Frame) { calls[now]++; left++ })
	if ideal := time.Duration(frames*len(f)*8) * time.Nanosecond; left != frames || len(calls) > frames/4 || end.Sub(1) > ideal+60*time.Microsecond || end.Sub(1) < ideal-60*time.Microsecond {
		t.Errorf("%d frames left in %d calls until %v, want %v", left, len(calls), end, ideal)
	}
}

// Strict priorities leave first, and weights share what is left, whatever the lengths of frames are.
func TestSharesOfPriorities(t *testing.T) {
	var classes [Priorities]Class
	classes[1].Weight, classes[2].Weight, classes[3].Weight, classes[6].Strict = 50, 30, 20, true
	b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Classes: classes}, 1)
	for range 20000 {
		b.Offer(0, -1, 0, packetio.Frame{Data: roce(1, wire.NotECT, 1500)}, "")
		b.Offer(0, -1, 0, packetio.Frame{Data: roce(2, wire.NotECT, 300)}, "")
		b.Offer(0, -1, 0, packetio.Frame{Data: roce(3, wire.NotECT, 900)}, "")
	}
	for range 100 {
		b.Offer(0, -1, 0, packetio.Frame{Data: roce(6, wire.NotECT, 100)}, "")
	}
	var bytes [Priorities]int
	total, n := 0, 0
	var out packetio.Batch
	for total < 6_000_000 {
		out.Reset()
		b.Due(b.Deadline(), &out)
		for _, fr := range out.Frames {
			p := b.Priority(fr.Data)
			if n < 100 && p != 6 {
				t.Fatalf("frame %d has priority %d; 6 is strict", n, p)
			}
			n++
			bytes[p] += len(fr.Data)
			total += len(fr.Data)
		}
	}
	for p, want := range map[int]float64{1: .5, 2: .3, 3: .2} {
		if got := float64(bytes[p]) / float64(total); math.Abs(got-want) > .02 {
			t.Errorf("priority %d has %.3f of the bytes, want %.2f", p, got, want)
		}
	}
}

// C4, SONiC's EGRESS_ECN: with KMin = KMax = N KB, 2N packets of 1 KB that waited behind a pause: all
// leave, the first is marked, the last is not.
func TestEgressECN(t *testing.T) {
	const n = 100
	for _, enqueue := range []bool{false, true} {
		var classes [Priorities]Class
		classes[3] = Class{Lossless: true, ECN: RED{KMin: n << 10, KMax: n << 10, PMax: 50_000, AtEnqueue: enqueue}}
		b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Classes: classes}, 1)
		b.Pause(0, 0, 3, 0xffff)
		for range 2 * n {
			b.Offer(0, -1, 0, packetio.Frame{Data: roce(3, wire.ECT0, 1024)}, "")
		}
		b.Pause(1, 0, 3, 0)
		var marked []bool
		drainAll(b, 1, func(_ clock.Time, fr packetio.Frame) {
			e, _ := wire.ECNOf(fr.Data)
			marked = append(marked, e == wire.CE)
			var f wire.Frame
			if err := wire.ParseFrame(fr.Data, &f); err != nil || !wire.CheckICRC(fr.Data) {
				t.Fatalf("after the mark: %v, ICRC %t", err, wire.CheckICRC(fr.Data))
			}
		})
		if len(marked) != 2*n || marked[0] == enqueue || marked[2*n-1] != enqueue {
			t.Errorf("at enqueue %t: %d packets, first %t, last %t", enqueue, len(marked), marked[0], marked[len(marked)-1])
		}
	}
}

// C4, SONiC's ECN_ACCURACY: KMin 500, KMax 2000 KB, PMax 5 %; KMax + 10 packets of 1 KB, 200 rounds. Of
// each bin of 100 KB, the share of marks is within 3 sigma of the line; packets that are not
// ECN-capable are never marked.
func TestECNAccuracy(t *testing.T) {
	const rounds, kmin, kmax = 200, 500, 2000
	ect, plain := roce(3, wire.ECT0, 1024), roce(4, wire.NotECT, 1024)
	kb := len(ect) // the frame nearest to 1 KB is the unit of all lengths
	var classes [Priorities]Class
	classes[3].ECN = RED{KMin: kmin * kb, KMax: kmax * kb, PMax: 50_000}
	classes[4].ECN = classes[3].ECN
	b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Classes: classes, Seed: 7}, 1)
	seen, marks, want := map[int]int{}, map[int]int{}, map[int]float64{}
	for range rounds {
		for range kmax + 10 {
			b.Offer(0, -1, 0, packetio.Frame{Data: ect}, "")
		}
		for range kmax + 10 {
			b.Offer(0, -1, 0, packetio.Frame{Data: plain}, "")
		}
		i := 0
		drainAll(b, 0, func(_ clock.Time, fr packetio.Frame) {
			e, _ := wire.ECNOf(fr.Data)
			if b.Priority(fr.Data) == 4 {
				if e != wire.NotECT {
					t.Fatal("a packet that is not ECN-capable has a mark")
				}
				return
			}
			i++
			queued := kmax + 10 - i
			bin := queued / 100
			seen[bin]++
			if e == wire.CE {
				marks[bin]++
			}
			switch {
			case queued > kmax:
				want[bin]++
			case queued > kmin:
				want[bin] += .05 * float64(queued-kmin) / (kmax - kmin)
			}
		})
	}
	for bin, n := range seen {
		p := want[bin] / float64(n)
		sigma := math.Sqrt(float64(n)*p*(1-p)) + 1e-9
		if d := math.Abs(float64(marks[bin]) - want[bin]); d > 3*sigma {
			t.Errorf("%d to %d KB: %d marks of %d, want %.0f with sigma %.1f", bin*100, bin*100+100, marks[bin], n, want[bin], sigma)
		}
	}
}

// The same packets get the same marks whatever the times are; another seed gives others.
func TestMarksDependOnSeedAndOrder(t *testing.T) {
	run := func(seed uint64, late time.Duration) (list []bool) {
		var classes [Priorities]Class
		classes[3].ECN = RED{KMin: 0, KMax: 100_000, PMax: Million / 2}
		b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Classes: classes, Seed: seed}, 1)
		for range 200 {
			b.Offer(0, -1, 0, packetio.Frame{Data: roce(3, wire.ECT1, 500)}, "")
		}
		drainAll(b, clock.Time(late), func(_ clock.Time, fr packetio.Frame) {
			e, _ := wire.ECNOf(fr.Data)
			list = append(list, e == wire.CE)
		})
		return list
	}
	same := func(a, b []bool) bool {
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return len(a) == len(b)
	}
	if !same(run(1, 0), run(1, time.Second)) || same(run(1, 0), run(2, 0)) {
		t.Error("the marks do not follow the seed alone")
	}
}

// A super-frame is queued as its packets, and each has its own mark.
func TestSuperFrame(t *testing.T) {
	var classes [Priorities]Class
	classes[3].ECN = RED{KMin: 2000, KMax: 2000}
	b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Classes: classes}, 1)
	var frames []packetio.Frame
	for i := range 8 {
		var f wire.Frame
		if err := wire.ParseFrame(roce(3, wire.ECT0, 1000), &f); err != nil {
			t.Fatal(err)
		}
		f.IPv4.ID = uint16(i)
		frames = append(frames, packetio.Frame{Data: f.AppendTo(nil)})
	}
	run := packetio.FirstRun(frames, 9000)
	head, super := run.AppendHeaders(nil, frames)
	for i := range run.Frames {
		head = append(head, frames[i].Data[run.Headers:]...)
	}
	super.Data = head
	if run.Frames != 8 {
		t.Fatalf("%d frames in the super-frame", run.Frames)
	}
	b.Offer(0, -1, 0, super, "")
	var marked []bool
	drainAll(b, 0, func(_ clock.Time, fr packetio.Frame) {
		e, _ := wire.ECNOf(fr.Data)
		marked = append(marked, e == wire.CE)
		var f wire.Frame
		if err := wire.ParseFrame(fr.Data, &f); err != nil {
			t.Fatal(err)
		}
	})
	for i, m := range marked {
		if m != (7-i > 2) {
			t.Errorf("packet %d of %d: marked %t", i, len(marked), m)
		}
	}
}

// F7: a pause stops a priority at once, lets the others go on, and ends by itself after its quanta.
func TestPauseExpires(t *testing.T) {
	var classes [Priorities]Class
	classes[3].Lossless = true
	const rate = 1e9
	b := bank(t, Config{Rate: rate, Own: 64 << 20, Classes: classes}, 1)
	p := wire.Pause{Enabled: 1<<3 | 1<<4, Time: [8]uint16{3: 100, 4: 100}}
	if !b.Control(0, 0, p.AppendTo(nil)) || b.Control(0, 0, roce(3, 0, 100)) {
		t.Fatal("pause frames are not told from others")
	}
	b.Control(0, 0, (&wire.Pause{Global: true, Time: [8]uint16{0xffff}}).AppendTo(nil))
	b.Control(0, 0, p.AppendTo(nil)[:40])
	for _, prio := range []int{3, 4, 5} {
		b.Offer(0, -1, 0, packetio.Frame{Data: roce(prio, 0, 100)}, "")
	}
	left := map[int]clock.Time{}
	drainAll(b, 0, func(now clock.Time, fr packetio.Frame) { left[b.Priority(fr.Data)] = now })
	const quantum = 512
	if left[3] != 100*quantum || left[4] > 2000 || left[5] > 2000 {
		t.Errorf("left at %v; priority 3 was paused for %d ns, 4 is lossy", left, 100*quantum)
	}
	st := b.Port(clock.Time(time.Second), 0)
	if st[3].RxPause != 1 || st[3].RxTransition != 1 || st[3].RxDuration != 51 || st[4].RxPause != 1 || st[4].RxTransition != 0 {
		t.Errorf("counters %+v", st[3])
	}
	if g, m := b.Pauses(); g != 1 || m != 1 {
		t.Errorf("%d global, %d malformed", g, m)
	}
	// XON ends a pause early.
	b.Pause(0, 0, 3, 0xffff)
	b.Offer(1, -1, 0, packetio.Frame{Data: roce(3, 0, 100)}, "")
	b.Pause(5000, 0, 3, 0)
	if b.Deadline() > 60_000 {
		t.Errorf("the priority goes on at %v", b.Deadline())
	}
}

// F8: a storm as long as detect is found then, a shorter one never. Its frames are dropped, or go on
// with `forward`; the priority works again after `restore` without pause frames; counters balance.
func TestWatchdog(t *testing.T) {
	const detect, restore = 200 * time.Millisecond, 300 * time.Millisecond
	for _, c := range []struct {
		lasts   time.Duration
		forward bool
		found   bool
	}{{195 * time.Millisecond, false, false}, {250 * time.Millisecond, false, true}, {250 * time.Millisecond, true, true}} {
		var classes [Priorities]Class
		classes[3].Lossless = true
		b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Classes: classes, Watchdog: Watchdog{Detect: detect, Restore: restore, Forward: c.forward}}, 1)
		var out packetio.Batch
		offered, left, dropped := 0, 0, 0
		var found, restored clock.Time
		for now := clock.Time(0); now < clock.Time(time.Second); now = now.Add(time.Millisecond) {
			if now < clock.Time(c.lasts) {
				b.Pause(now, 0, 3, 9000) // 4.6 ms
			}
			offered++
			dropped += b.Offer(now, -1, 0, packetio.Frame{Data: roce(3, 0, 200)}, "")
			out.Reset()
			b.Due(now, &out)
			left += len(out.Frames)
			switch storm := b.Port(now, 0)[3].Storm; {
			case storm && found == 0:
				found = now
			case !storm && found != 0 && restored == 0:
				restored = now
			}
		}
		st := b.Port(clock.Time(time.Second), 0)[3]
		if c.found != (found != 0) || c.found != (st.Storms == 1) {
			t.Fatalf("storm of %v: found %v, %d storms", c.lasts, found, st.Storms)
		}
		if c.found && (found != clock.Time(detect) || restored.Sub(clock.Time(c.lasts)) > restore+time.Millisecond || restored.Sub(clock.Time(c.lasts)) < restore-2*time.Millisecond) {
			t.Errorf("found at %v, restored at %v", found, restored)
		}
		if uint64(offered) != uint64(left)+st.Discarded+uint64(st.Frames) || (st.Discarded > 0) != (c.found && !c.forward) {
			t.Errorf("%d offered, %d left, %d discarded (%d at arrival), %d wait", offered, left, st.Discarded, dropped, st.Frames)
		}
	}
}

// F10: at any time, each byte of a queued frame is in exactly one account, and at rest all are 0;
// whatever comes, leaves, is paused, discarded or found to be a storm.
func TestConservation(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		var classes [Priorities]Class
		for p := range classes {
			classes[p] = Class{
				Weight: 1 + r.IntN(9), Strict: r.IntN(3) == 0, Lossless: r.IntN(2) == 0, XOFF: int64(r.IntN(2)) * int64(r.IntN(40_000)),
				AlphaNum: 1, AlphaDen: 1 + int64(r.IntN(8)), XON: int64(r.IntN(4000)), Headroom: int64(r.IntN(9000)), Reserve: int64(r.IntN(3000)),
				ECN: RED{KMin: r.IntN(9000), KMax: 9000 + r.IntN(9000), PMax: r.IntN(Million + 1)},
			}
		}
		const ports = 4
		b := bank(t, Config{Rate: 1e9, Buffer: 1 << 20, Own: 20_000, Classes: classes, Seed: seed, Watchdog: Watchdog{Detect: 300 * time.Microsecond, Restore: time.Millisecond}}, ports)
		var now clock.Time
		var out packetio.Batch
		check := func() {
			var queued, sources int64
			for i := range ports {
				for _, st := range b.Port(now, i) {
					queued += st.Bytes
					sources += st.Source.Total()
				}
			}
			u := b.Used()
			if queued != u.Total() || sources != u.Total()-u.Own || u.Own < 0 || u.Shared < 0 || u.Headroom < 0 || u.Reserve < 0 || u.Total() > 1<<20 {
				t.Fatalf("seed %d at %v: %d bytes are queued; accounts %+v, of sources %d", seed, now, queued, u, sources)
			}
		}
		for range 4000 {
			now = now.Add(time.Duration(r.IntN(4000)))
			switch k := r.IntN(100); {
			case k < 70:
				b.Offer(now, r.IntN(ports+1)-1, r.IntN(ports), packetio.Frame{Data: roce(r.IntN(8), wire.ECN(r.IntN(4)), 80+r.IntN(1400))}, "")
			case k < 80:
				b.Pause(now, r.IntN(ports), r.IntN(8), uint16(r.IntN(2)*r.IntN(1000)))
			case k == 80:
				b.Discard(now, r.IntN(ports))
			default:
				out.Reset()
				b.Due(now, &out)
			}
			check()
		}
		drainAll(b, now, func(clock.Time, packetio.Frame) {})
		now = now.Add(time.Second)
		check()
		if u := b.Used(); u != (Usage{}) {
			t.Errorf("seed %d: at rest %+v", seed, u)
		}
		for i := range ports {
			for _, st := range b.Port(now, i) {
				if st.Pausing {
					t.Errorf("seed %d: port %d pauses its peer at rest, priority %d", seed, i, st.Priority)
				}
			}
		}
	}
}

// Frames that came in at no port, such as those that a switch program has held, have memory of their
// own: they cause no pause and take nothing from others.
func TestOwnFramesNeverPause(t *testing.T) {
	var classes [Priorities]Class
	classes[3] = Class{Lossless: true, XOFF: 10_000, Headroom: 10_000}
	b := bank(t, Config{Rate: 1e9, Buffer: 100_000, Own: 20_000, Classes: classes}, 2)
	f := packetio.Frame{Data: roce(3, 0, 1000)}
	dropped := 0
	for range 30 {
		dropped += b.Offer(0, -1, 1, f, "")
	}
	if st := b.Port(0, 0)[3]; dropped == 0 || st.Pausing {
		t.Errorf("%d dropped, pausing %t", dropped, st.Pausing)
	}
	if n := b.Offer(0, 0, 1, f, ""); n != 0 {
		t.Error("frames of the program took the memory of a port")
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	var classes [Priorities]Class
	classes[3] = Class{Lossless: true, XOFF: 3000, Headroom: 100_000, ECN: RED{KMin: 1000, KMax: 5000, PMax: Million / 2}}
	b := bank(t, Config{Rate: 1e9, Buffer: 1 << 20, Own: 1000, Classes: classes}, 2)
	f := packetio.Frame{Data: roce(3, wire.ECT0, 1000)}
	var out packetio.Batch
	now := clock.Time(0)
	step := func() {
		for range 8 {
			b.Offer(now, 0, 1, f, "note")
		}
		for range 8 {
			now = max(now, b.Deadline())
			out.Reset()
			b.Due(now, &out)
		}
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(200, step); n != 0 {
		t.Errorf("%v allocations for 8 packets", n)
	}
}

func BenchmarkQueue(b *testing.B) {
	var classes [Priorities]Class
	classes[3] = Class{ECN: RED{KMin: 1000, KMax: 5000, PMax: Million / 2}}
	q := bank(b, Config{Rate: MaxRate, Own: 1 << 20, Classes: classes}, 2)
	f := packetio.Frame{Data: roce(3, wire.ECT0, 1074)}
	var out packetio.Batch
	now := clock.Time(0)
	b.ReportAllocs()
	for b.Loop() {
		q.Offer(now, 0, 1, f, "")
		now = max(now, q.Deadline())
		out.Reset()
		q.Due(now, &out)
	}
}

// A port that is added takes none of the memory that the others share.
func TestAddedPortBringsItsMemory(t *testing.T) {
	b := bank(t, lossless(1<<20), 2)
	was := b.buffer.shared(&b.cfg)
	for range 20 {
		b.AddPort()
	}
	if is := b.buffer.shared(&b.cfg); is != was {
		t.Errorf("%d bytes are shared with 22 ports, %d with two", is, was)
	}
}
