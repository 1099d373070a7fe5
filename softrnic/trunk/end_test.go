package trunk

import (
	"bytes"
	"testing"
	"time"
)

func TestTrunkCarriesFrames(t *testing.T) {
	r := newRig(t)
	r.up()
	if m := r.ends[0].mtu.good; m != 1500 {
		t.Errorf("the path MTU is %d", m)
	}
	want := roce(1, 40, 4112)
	want = append(want, roce(2, 3, 20)...)
	want = append(want, roce(3, 200, 100)...)
	for side := range 2 {
		r.send(side, want)
		r.run(time.Millisecond)
		got := r.take(1 - side)
		if len(got) != len(want) {
			t.Fatalf("%d packets of %d came: %+v", len(got), len(want), r.ends[1-side].Stats())
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i].Data) {
				t.Fatalf("packet %d has changed", i)
			}
		}
		if s := r.ends[1-side].Stats(); s.Lost+s.Refused.Sum()+s.Reordered+s.Incomplete > 0 {
			t.Errorf("%+v", s)
		}
	}
	r.run(time.Second)
	s := r.ends[0].Stats()
	if s.RoundTrip < 2*r.back || s.RoundTrip > 2*r.back+200*time.Microsecond {
		t.Errorf("the round trip is %v", s.RoundTrip)
	}
	if d := s.Ahead - time.Hour; d.Abs() > s.Shortest/2 {
		t.Errorf("the clock of the peer is %v ahead, with a round trip of %v", s.Ahead, s.Shortest)
	}
}

// An end that was made again says so.
func TestStarted(t *testing.T) {
	cfg := config(Near)
	for _, wall := range []int64{5, 6} {
		cfg.Wall = wall
		if got := New(cfg).Stats().Started; got != wall {
			t.Errorf("started at %d, want %d", got, wall)
		}
	}
}
