package trunk

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// recordings returns the hellos in clear text that each end has sent in some incarnations of both, at times
// before the test.
func recordings(t *testing.T, incarnations int) (hellos [2][][]byte) {
	r := newRig(t)
	for k := range incarnations {
		for side := range 2 {
			cfg := config(Side(side))
			cfg.Random = func() [32]byte { return [32]byte{byte(k), byte(side), 1} }
			r.start(side, cfg)
		}
		r.run(Silence)
		r.up()
	}
	for side := range 2 {
		for _, d := range r.seen[side] {
			if h, _ := parseHeader(d); h.kind == kindHello {
				hellos[side] = append(hellos[side], d)
			}
		}
	}
	return hellos
}

// A flood of hellos that were recorded, thrown back, forged, changed or cut keeps two ends that call from
// nothing: they agree on a key in time, make few key pairs, answer seldom, and keep nothing of the flood.
func TestFloodOfHellos(t *testing.T) {
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	const each = 100 // hostile datagrams at a time
	pause := time.Second * each / time.Duration(n)
	recorded := recordings(t, 20)
	if len(recorded[0]) < 40 || len(recorded[1]) < 40 {
		t.Fatalf("%d and %d hellos were recorded", len(recorded[0]), len(recorded[1]))
	}
	r := newRig(t)
	r.fate = func(int, []byte) (int, int) { return 0, 0 } // the flood begins before the ends hear each other
	pairs := [2]int{}
	for side := range 2 {
		cfg := config(Side(side))
		cfg.Wall += int64(time.Hour) // the recordings are older
		random := cfg.Random
		cfg.Random = func() [32]byte { pairs[side]++; return random() }
		r.start(side, cfg)
	}
	rnd := rand.New(rand.NewPCG(5, 5))
	buf := make([]byte, 0, 70_000)
	var working clock.Time
	healed := r.now.Add(50 * time.Millisecond)
	for k := range n {
		side := k & 1
		e := r.ends[side]
		d := append(buf[:0], recorded[1-side][rnd.IntN(len(recorded[1-side]))]...)
		switch rnd.IntN(8) {
		case 0: // thrown back
			d = append(buf[:0], recorded[side][rnd.IntN(len(recorded[side]))]...)
		case 1: // changed
			d[rnd.IntN(len(d))] ^= 1 << rnd.IntN(8)
		case 2: // cut
			d = d[:rnd.IntN(len(d))]
		case 3: // too long
			d = append(d, make([]byte, rnd.IntN(60_000))...)
		case 4: // made up
			for i := headerLen; i < len(d); i++ {
				d[i] = byte(rnd.Uint32())
			}
		}
		r.do(side, func(out *Out) { e.Receive(r.now, d, &r.got[side], out) })
		if k%each == each-1 {
			r.run(pause)
			if r.now >= healed {
				r.fate = func(int, []byte) (int, int) { return 1, 0 }
			}
			if working == 0 && r.ends[0].Working() && r.ends[1].Working() {
				working = r.now
			}
		}
	}
	if working == 0 || working.Sub(healed) > 3*Interval {
		t.Errorf("the ends hear each other %v after the network has healed (0 is never): %+v and %+v", max(0, working.Sub(healed)), r.ends[0].Stats(), r.ends[1].Stats())
	}
	elapsed := r.now.Sub(1)
	for side, e := range r.ends {
		s := e.Stats()
		if pairs[side] > 4 || s.Keys > 3 {
			t.Errorf("end %d has made %d key pairs and %d keys", side, pairs[side], s.Keys)
		}
		if got, most := len(r.seen[side]), int(elapsed/answerPause+4*elapsed/Interval)+40; got > most {
			t.Errorf("end %d has sent %d datagrams in %v", side, got, elapsed)
		}
		if s.Refused.Sum() < uint64(n)/2-100 {
			t.Errorf("end %d has refused %d of %d: %+v", side, s.Refused.Sum(), n/2, s.Refused)
		}
	}
	if !r.carries() {
		t.Error("the trunk carries nothing afterwards")
	}
}

// An end whose machine has set its clock back before the switch was started again is taken in, though its
// hellos look older than those that have come.
func TestClockSetBack(t *testing.T) {
	for side := range 2 {
		r := newRig(t)
		r.up()
		cfg := config(Side(side))
		cfg.Random = func() [32]byte { return [32]byte{9, byte(side)} }
		cfg.Wall -= int64(24 * time.Hour)
		r.start(side, cfg)
		r.run(Silence + 3*Interval)
		if !r.ends[0].Working() || !r.ends[1].Working() || !r.carries() {
			t.Errorf("end %d: %+v and %+v", side, r.ends[0].Stats(), r.ends[1].Stats())
		}
	}
}

// A hello recorded of each end, replayed when the clocks of both were set back, keeps the trunk down for no
// longer than the handshake takes; also if it is replayed again and again.
func TestBothClocksSetBack(t *testing.T) {
	for _, replays := range []int{1, 20} {
		recorded := recordings(t, 1)
		r := newRig(t)
		pairs := 0
		for side := range 2 {
			cfg := config(Side(side))
			cfg.Random = func() [32]byte { pairs++; return [32]byte{9, byte(side), byte(pairs)} }
			cfg.Wall -= int64(24 * time.Hour)
			r.ends[side] = New(cfg)
			r.do(side, func(out *Out) { r.ends[side].Switch(r.now, true, out) })
		}
		for range replays {
			for side := range 2 {
				hellos := recorded[1-side]
				d := slices.Clone(hellos[len(hellos)-1])
				r.do(side, func(out *Out) { r.ends[side].Receive(r.now, d, &r.got[side], out) })
			}
			r.run(7 * time.Millisecond)
		}
		r.run(5 * Interval)
		if !r.ends[0].Working() || !r.ends[1].Working() || !r.carries() {
			t.Errorf("%d replays: %+v and %+v", replays, r.ends[0].Stats(), r.ends[1].Stats())
		}
		if pairs > 6 {
			t.Errorf("%d replays: %d key pairs were made", replays, pairs)
		}
	}
}

// Hellos that look like repetitions are answered once in each Interval.
func TestRepetitionsAreAnsweredSeldom(t *testing.T) {
	recorded := recordings(t, 1)[1]
	r := newRig(t)
	r.fate = func(int, []byte) (int, int) { return 0, 0 }
	last := recorded[len(recorded)-1]
	r.do(0, func(out *Out) { r.ends[0].Receive(r.now, slices.Clone(last), &r.got[0], out) })
	r.run(time.Second)
	before := len(r.seen[0])
	r.run(time.Second)
	usual := len(r.seen[0]) - before
	before = len(r.seen[0])
	for range 1000 {
		r.do(0, func(out *Out) { r.ends[0].Receive(r.now, slices.Clone(last), &r.got[0], out) })
		r.run(time.Millisecond)
	}
	if n := len(r.seen[0]) - before - usual; n < 5 || n > 12 {
		t.Errorf("1000 repetitions in a second got %d answers", n)
	}
}

// A hello that is refused allocates nothing.
func TestHellosAllocateNothing(t *testing.T) {
	recorded := recordings(t, 2)[1]
	forged := slices.Clone(recorded[0])
	forged[40] ^= 1
	r := newRig(t)
	cfg := config(Near)
	r.start(0, cfg)
	var out Out
	e := r.ends[0]
	for _, d := range recorded {
		e.Receive(r.now, slices.Clone(d), &r.got[0], &out)
	}
	for name, d := range map[string][]byte{"forged": forged, "repeated": recorded[0]} {
		before := e.stats.Refused.Sum()
		if allocs := testing.AllocsPerRun(100, func() { e.Receive(r.now, d, &r.got[0], &out) }); allocs > 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
		if got := e.stats.Refused.Sum() - before; got != 101 {
			t.Errorf("%s: %d of 101 were refused", name, got)
		}
	}
}
