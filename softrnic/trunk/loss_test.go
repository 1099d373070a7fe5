package trunk

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// A datagram that is lost costs the packets that have bytes in it, and those of a super-frame whose headers
// it had; all others come.
func TestALostPieceCostsItsPackets(t *testing.T) {
	frames := append(roce(1, 12, 1040), packetio.Frame{Data: roce(9, 1, 700)[0].Data})
	frames = append(frames, roce(2, 5, 600)...)
	pieces := 0
	for lost := 0; lost == 0 || lost < pieces; lost++ {
		r := newRig(t)
		r.up()
		r.take(1)
		n := 0
		r.fate = func(int, []byte) (int, int) {
			n++
			if n-1 == lost {
				return 0, 0
			}
			return 1, 0
		}
		r.send(0, frames)
		pieces = n
		r.fate = func(int, []byte) (int, int) { return 1, 0 }
		r.run(2 * trainWait)
		piece := r.ends[0].mtu.good - 28 - Overhead
		var want [][]byte
		at := 0 // where the records stand in the train
		for _, run := range [][]packetio.Frame{frames[:12], frames[12:13], frames[13:]} {
			heads := at + recordLen
			at = heads + 42
			for _, f := range run {
				from, to := at, at+len(f.Data)-42
				at = to
				in := func(from, to int) bool { return from/piece <= lost && lost <= (to-1)/piece }
				if !in(heads-recordLen, heads+42) && !in(from, to) {
					want = append(want, f.Data)
				}
			}
		}
		if got := r.take(1); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("piece %d of %d is lost: %d packets came, want %d", lost, pieces, len(got), len(want))
		}
		r.run(200 * time.Millisecond) // the next probe shows the gap
		if s := r.ends[1].Stats(); s.Lost != 1 || s.Incomplete != 1 {
			t.Errorf("piece %d is lost: counted %d lost, %d incomplete", lost, s.Lost, s.Incomplete)
		}
	}
	if pieces < 10 {
		t.Errorf("the train had %d pieces", pieces)
	}
}

// Over a network that loses, doubles and reorders, each packet comes unchanged and at most once, and
// what is missing is counted.
func TestBadNetwork(t *testing.T) {
	for seed := range uint64(30) {
		r := newRig(t)
		r.up()
		before := r.ends[1].Stats()
		rnd := rand.New(rand.NewPCG(seed, 3))
		lost, doubled, data := 0, 0, true
		r.fate = func(from int, d []byte) (int, int) {
			if h, _ := parseHeader(d); from == 1 || !data || h.kind != kindData {
				return 1, 0
			}
			switch rnd.IntN(20) {
			case 0:
				lost++
				return 0, 0
			case 1:
				doubled++
				return 2, 0
			case 2:
				return 1, 1 + rnd.IntN(4)
			}
			return 1, 0
		}
		sent := map[string]int{}
		var got [][]byte
		for range 60 {
			frames := roce(int(rnd.Uint32()&0xff), 1+rnd.IntN(30), 20+rnd.IntN(4000))
			for i := range frames {
				sent[string(frames[i].Data)]++
			}
			r.send(0, frames)
			r.run(time.Duration(rnd.IntN(int(time.Millisecond))))
			got = append(got, r.take(1)...)
		}
		data = false
		r.run(300 * time.Millisecond)
		got = append(got, r.take(1)...)
		for _, p := range got {
			if sent[string(p)]--; sent[string(p)] < 0 {
				t.Fatalf("seed %d: a packet that was not sent, or came twice: %x", seed, p)
			}
		}
		s := r.ends[1].Stats()
		if s.Lost-before.Lost != uint64(lost) || s.Refused.Replayed != uint64(doubled) || s.Reordered == 0 {
			t.Errorf("seed %d: %d lost and %d doubled, but counted %+v", seed, lost, doubled, s)
		}
		if len(got) < 100 || !r.ends[1].Working() {
			t.Errorf("seed %d: %d packets came", seed, len(got))
		}
	}
}

// A datagram that was sealed is found fresh once, and old when it is too far behind.
func TestWindow(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var w window
		seen := map[uint64]bool{}
		at := uint64(1)
		for range 20_000 {
			at += uint64(r.IntN(3))
			if r.IntN(500) == 0 {
				at += uint64(r.IntN(3 * windowLen))
			}
			c := at - min(at-1, uint64(r.IntN(windowLen+100)))
			if r.IntN(2) == 0 {
				c = at
			}
			want := fresh
			switch {
			case c <= w.highest && w.highest-c >= windowLen:
				want = old
			case seen[c]:
				want = replayed
			}
			if got := w.look(c); got != want {
				t.Fatalf("seed %d: counter %d with highest %d: %d, want %d", seed, c, w.highest, got, want)
			}
			if want == fresh {
				w.accept(c)
				seen[c] = true
			}
		}
	}
}
