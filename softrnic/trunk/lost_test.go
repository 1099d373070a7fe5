package trunk

import (
	"testing"
	"time"
)

// Padded probes that are too long for the path are not lost datagrams.
func TestShorterPathLosesNothing(t *testing.T) {
	for _, path := range []int{1400, 700} {
		r := newRig(t)
		refused := 0
		r.fate = func(_ int, d []byte) (int, int) {
			if len(d)+overIPv4 > path {
				refused++
				return 0, 0
			}
			return 1, 0
		}
		for side := range 2 {
			cfg := config(Side(side))
			cfg.MTU = 9000
			r.start(side, cfg)
		}
		r.up()
		for range 30 {
			r.run(10 * time.Second)
			if !r.carries() {
				t.Fatal("the trunk carries nothing")
			}
		}
		for side, e := range r.ends {
			if s := e.Stats(); s.Lost+s.Refused.Sum() > 0 {
				t.Errorf("path of %d: end %d: %+v", path, side, s)
			}
		}
		if refused < 20 {
			t.Errorf("path of %d: only %d datagrams were too long", path, refused)
		}
	}
}

// Datagrams that the sender's own kernel refuses are not lost in the network, and those that are lost
// beside them count.
func TestUnsentIsNotLost(t *testing.T) {
	r := newRig(t)
	n, refused, lost := 0, 0, 0
	r.full = func(_ int, d []byte) bool {
		n++
		if n%3 == 0 {
			refused++
		}
		return n%3 == 0
	}
	r.up()
	r.fate = func(from int, d []byte) (int, int) {
		if h, _ := parseHeader(d); from == 0 && h.kind == kindData && n%10 == 0 {
			lost++
			return 0, 0
		}
		return 1, 0
	}
	for range 50 {
		r.send(0, roce(1, 20, 1000))
		r.send(1, roce(1, 20, 1000))
		r.run(20 * time.Millisecond)
	}
	r.full = nil
	r.run(2 * Interval)
	if a, b := r.ends[0].Stats(), r.ends[1].Stats(); a.Lost > 0 || b.Lost != uint64(lost) || lost < 10 || refused < 100 {
		t.Errorf("%d were lost, %d refused: counted %d and %d", lost, refused, b.Lost, a.Lost)
	}
}

// What is on the way to an end when it is cut, or comes while it is, is not lost in the network, however
// short the cut is. What the network loses before and afterwards is.
func TestCutLosesNothing(t *testing.T) {
	for _, cut := range []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond, 300 * time.Millisecond, 450 * time.Millisecond, 10 * time.Second} {
		r := newRig(t)
		r.up()
		lose := func() {
			r.fate = func(int, []byte) (int, int) { return 0, 0 }
			r.send(1, roce(1, 1, 1000))
			r.fate = func(int, []byte) (int, int) { return 1, 0 }
			r.run(time.Second)
		}
		lose()
		r.send(1, roce(1, 20, 1000)) // on the way
		r.do(0, func(out *Out) { r.ends[0].Switch(r.now, false, out) })
		r.send(1, roce(1, 20, 1000)) // it does not know yet
		r.run(cut)
		r.do(0, func(out *Out) { r.ends[0].Switch(r.now, true, out) })
		r.run(time.Second)
		if a, b := r.ends[0].Stats(), r.ends[1].Stats(); a.Lost != 1 || b.Lost != 0 || a.Silences+b.Silences > 0 {
			t.Errorf("cut of %v: lost %d and %d, silences %d and %d", cut, a.Lost, b.Lost, a.Silences, b.Silences)
		}
		if !r.carries() {
			t.Errorf("cut of %v: the trunk stays down", cut)
		}
		lose()
		if a := r.ends[0].Stats(); a.Lost != 2 {
			t.Errorf("cut of %v: of what was lost afterwards, %d was counted", cut, a.Lost-1)
		}
	}
}

// Only a probe may have a counter of padded probes.
func TestCounterOfPaddedProbes(t *testing.T) {
	r := newRig(t)
	r.up()
	before := r.ends[1].Stats().Refused.Malformed
	s := r.ends[0].keys.sending()
	for _, k := range []kind{kindData, kindRenew} {
		d := make([]byte, 200)
		s.sealPadded(&header{version: Version, kind: k, epoch: s.out, rack: r.ends[0].id.rack, count: 1}, d)
		r.put(0, d)
	}
	r.run(time.Millisecond)
	if got := r.ends[1].Stats().Refused.Malformed - before; got != 2 {
		t.Errorf("%d of 2 were refused", got)
	}
}

// A padded probe that is repeated is refused.
func TestRepeatedPaddedProbe(t *testing.T) {
	r := newRig(t)
	r.up()
	for _, d := range r.seen[0] {
		if h, _ := parseHeader(d); h.counter&paddedBit != 0 {
			before := r.ends[1].Stats().Refused.Replayed
			r.put(0, d)
			r.run(time.Millisecond)
			if r.ends[1].Stats().Refused.Replayed != before+1 {
				t.Error("it was taken")
			}
			return
		}
	}
	t.Error("there was no padded probe")
}
