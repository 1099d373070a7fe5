package portqueue

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// forgedPause returns a pause frame that must have no effect: of lossy priorities with any time, of no
// priority, a global one, one with reserved bits, for another address, or cut off.
func forgedPause(r *rand.Rand, lossless uint8, buf []byte) []byte {
	p := wire.Pause{Src: wire.MAC{2, 0, 0, 0, 0, byte(r.Uint32())}, Enabled: uint8(r.Uint32()) &^ lossless}
	for i := range p.Time {
		p.Time[i] = uint16(r.Uint32())
	}
	const vectorAt, destAt = 16, 5
	kind := r.IntN(5)
	if p.Global = kind == 1; p.Global {
		p.Enabled, p.Time = 0, [8]uint16{p.Time[0]}
	}
	b := p.AppendTo(buf[:0])
	switch kind {
	case 2: // the upper byte of the class-enable vector is reserved
		binary.BigEndian.PutUint16(b[vectorAt:], 0x0100|uint16(r.Uint32()))
	case 3:
		b[destAt] ^= 1 + byte(r.Uint32()&0x7f)
		b[vectorAt+1] = 0xff
	case 4:
		b[vectorAt+1] = 0xff
		b = b[:14+r.IntN(len(b)-14)]
	}
	return b
}

// A million forged pause frames of lossy priorities, global, malformed and truncated ones neither delay a
// frame nor take memory nor start a timer: with and without them the same frames leave at the same times.
func TestFloodOfPauses(t *testing.T) {
	const flood, ports, rate = 1_000_000, 4, 1e9
	var classes [Priorities]Class
	classes[3].Lossless = true
	cfg := Config{Rate: rate, Own: 64 << 20, Classes: classes, Watchdog: Watchdog{Detect: time.Millisecond, Restore: time.Millisecond}}
	type left struct {
		at         clock.Time
		port, prio int
	}
	run := func(forged int) (list []left, b *Bank) {
		b = bank(t, cfg, ports)
		traffic, forger := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(2, 2))
		var out packetio.Batch
		var buf [64]byte
		frames := make([][]byte, Priorities)
		for i := range frames {
			frames[i] = roce(i, 0, 200+i*100)
		}
		const steps = 20_000
		for i := range steps {
			now := clock.Time(i * 4000)
			if traffic.IntN(2) == 0 {
				b.Offer(now, -1, traffic.IntN(ports), packetio.Frame{Data: frames[traffic.IntN(Priorities)]}, "")
			}
			for range forged / steps {
				if f := forgedPause(forger, 1<<3, buf[:0]); wire.IsPause(f) && !b.Control(now, forger.IntN(ports), f) {
					t.Fatalf("a pause frame went on: % x", f)
				}
			}
			out.Reset()
			b.Due(now, &out)
			for _, f := range out.Frames {
				list = append(list, left{now, f.Port, b.Priority(f.Data)})
			}
		}
		if at := b.Deadline(); at != clock.Never {
			t.Errorf("%d forged frames: a deadline at %v at rest", forged, at)
		}
		return list, b
	}
	calm, _ := run(0)
	got, b := run(flood)
	if !slices.Equal(calm, got) || len(calm) < 5000 {
		t.Errorf("%d frames left without forged pauses, %d others with", len(calm), len(got))
	}
	counted := uint64(0)
	for i := range ports {
		for prio, st := range b.Port(0, i) {
			counted += st.RxPause
			if st.RxDuration != 0 || st.Storms != 0 || st.Paused || prio == 3 && st.RxPause != 0 {
				t.Errorf("port %d: %+v", i, st)
			}
		}
	}
	global, malformed := b.Pauses()
	if t.Logf("%d pauses of lossy priorities counted, %d global, %d malformed", counted, global, malformed); counted < flood/2 || global < flood/10 || malformed < flood/10 {
		t.Errorf("%d pauses of lossy priorities counted, %d global, %d malformed", counted, global, malformed)
	}
	r := rand.New(rand.NewPCG(3, 3))
	var buf [64]byte
	if n := testing.AllocsPerRun(1000, func() {
		if f := forgedPause(r, 1<<3, buf[:0]); wire.IsPause(f) {
			b.Control(0, 0, f)
		}
	}); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

// A flood of pauses of the lossless priority stops it until the watchdog finds the storm, and takes no memory;
// other priorities go on.
func TestFloodOfLosslessPauses(t *testing.T) {
	var classes [Priorities]Class
	classes[3].Lossless = true
	const detect, restore = time.Millisecond, 2 * time.Millisecond
	b := bank(t, Config{Rate: 1e9, Own: 64 << 20, Classes: classes, Watchdog: Watchdog{Detect: detect, Restore: restore, Forward: true}}, 1)
	r := rand.New(rand.NewPCG(4, 4))
	var out packetio.Batch
	var left [Priorities]int
	frames := [Priorities][]byte{3: roce(3, 0, 100), 4: roce(4, 0, 100)}
	for i := range 10_000 {
		now := clock.Time(i * 1000)
		for _, prio := range []int{3, 4} {
			b.Offer(now, -1, 0, packetio.Frame{Data: frames[prio]}, "")
		}
		for range 10 {
			b.Pause(now, 0, 3, uint16(1+r.IntN(0xffff)))
		}
		out.Reset()
		b.Due(now, &out)
		for _, f := range out.Frames {
			left[b.Priority(f.Data)]++
		}
	}
	st := b.Port(0, 0)[3]
	if left[4] < 5000 || st.Storms != 1 || left[3] < 4000 {
		t.Errorf("priority 3 sent %d frames, priority 4 %d; %d storms", left[3], left[4], st.Storms)
	}
	t.Logf("of 10000 frames each, priority 3 sent %d, priority 4 %d", left[3], left[4])
}
