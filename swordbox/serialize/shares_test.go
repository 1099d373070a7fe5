package serialize

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// fill makes the host at a port hold as many requests as it may.
func (s *shares) fill(port int) (n int) {
	for s.room(port) {
		s.take(port)
		n++
	}
	return n
}

// One host alone may not hold all places. Two hosts that fill up in turn may hold the same number.
// A host that comes last has its reserve, however many the others hold.
func TestSharesAreFair(t *testing.T) {
	s := newShares(1024)
	s.fit(8)
	if want := s.limit(0); s.fill(0) != want || want < 512 || want > 640 {
		t.Errorf("one host alone holds %d; its limit was %d, want about 544", s.hosts[1].held, want)
	}
	for p := 1; p < 8; p++ {
		if n := s.fill(p); n < s.reserve {
			t.Errorf("host %d holds %d beside those before it, want its reserve of %d", p, n, s.reserve)
		}
	}
	// When the first hosts release requests, and all fill up again, all hold the same number.
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		p := r.IntN(8)
		if s.hosts[p+1].held > 0 && r.IntN(2) == 0 {
			s.giveBack(p)
		} else {
			s.fill(p)
		}
	}
	for p := range 8 {
		s.fill(p)
	}
	for p := range 8 {
		if n := s.hosts[p+1].held; n < 100 || n > 150 {
			t.Errorf("host %d of 8 holds %d of %d", p, n, s.most)
		}
	}
}

// After any sequence of steps, and of changes of the number of ports, the counts are right, the
// bound holds, and while the number of ports stays the same each host has its reserve.
func TestSharesHold(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		s := newShares(1 + r.IntN(300))
		ports := 1 + r.IntN(12)
		s.fit(ports)
		changed := false
		for range 2000 {
			p := r.IntN(ports+1) - 1
			switch h := &s.hosts[p+1]; {
			case r.IntN(300) == 0:
				ports = min(pipeline.MaxPorts, ports+r.IntN(3))
				changed = changed || ports != s.ports
				s.fit(ports)
			case r.IntN(5) < 2 && h.held > 0:
				s.giveBack(p)
			case s.room(p):
				s.take(p)
			case h.held < s.reserve && p >= 0 && !changed:
				t.Fatalf("seed %d: port %d holds %d and has no room; its reserve is %d of %d", seed, p, h.held, s.reserve, s.most)
			}
			inUse, taken := 0, 0
			for _, h := range s.hosts {
				inUse += h.held
				taken += max(0, h.held-s.reserve)
			}
			if s.inUse != inUse || s.taken != taken || inUse > s.most {
				t.Fatalf("seed %d: in use %d, want %d of %d; common %d, want %d of %d",
					seed, s.inUse, inUse, s.most, s.taken, taken, s.common)
			}
		}
	}
}

// A host alone can hold a request, however small the pool is.
func TestSmallestPool(t *testing.T) {
	for most := 1; most < 20; most++ {
		s := newShares(most)
		s.fit(16)
		if n := s.fill(3); n == 0 || n > most {
			t.Errorf("of %d places a host alone gets %d", most, n)
		}
	}
}
