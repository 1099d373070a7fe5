package telemetry

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// stream fills a sketch with counts by a Zipf distribution over keys, and returns the true counts.
func stream(t *testing.T, s Sketch, seed uint64, keys, counts int) ([]uint64, *Reading) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, uint64(s.Rows)))
	zipf := rand.NewZipf(r, 1.2, 1, uint64(keys-1))
	truth, words := make([]uint64, keys), make([]uint64, s.Rows*s.Width)
	for range counts {
		i := zipf.Uint64()
		truth[i]++
		k := flowOf(int(i) + keys*int(seed))
		for row := range s.Rows {
			words[s.Slot(k.Hash(), row)]++
		}
	}
	reading, err := Read(s, words)
	if err != nil {
		t.Fatal(err)
	}
	return truth, reading
}

func flowOf(i int) Key {
	return Key{Type: 0x800, Proto: 17, Src: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), Dst: netip.AddrFrom4([4]byte{10, 1, 0, 1}), SrcPort: uint16(i), DstPort: 4791}
}

// Both estimators keep the bounds that they state, against exact counts: count-min is never too
// small, and each is outside of its bound at most as often as it says. The Count Sketch has no bias.
func TestEstimatesKeepTheirBounds(t *testing.T) {
	const keys, counts = 2000, 100_000
	for _, rows := range []int{1, 2, 4, 5, 8} {
		s := Sketch{Rows: rows, Width: 128}
		over, outside, bias, n := 0, 0, 0.0, 0
		variance := 0.0 // of the sum of all errors, if those of different keys are independent
		var overSure, withinSure float64
		for seed := range uint64(5) {
			truth, r := stream(t, s, seed, keys, counts)
			var most, within float64
			most, overSure = r.UpperBound()
			within, withinSure = r.CountBound()
			if r.Total() != counts {
				t.Fatalf("%d counted of %d", r.Total(), counts)
			}
			for i, want := range truth {
				k := flowOf(i + keys*int(seed))
				upper, count := r.Upper(k.Hash()), r.Count(k.Hash())
				if upper < want {
					t.Fatalf("%d rows: at most %d of %d", rows, upper, want)
				}
				if float64(upper-want) > most {
					over++
				}
				if off := count - float64(want); off > within || off < -within {
					outside++
				}
				bias += count - float64(want)
				n++
			}
			variance += keys * r.second / float64(s.Width/2)
		}
		if allowed := (1 - overSure) * float64(n); float64(over) > allowed {
			t.Errorf("%d rows: %d count-min estimates of %d beyond the bound, at most %.0f may be", rows, over, n, allowed)
		}
		if allowed := (1 - withinSure) * float64(n); float64(outside) > allowed {
			t.Errorf("%d rows: %d Count Sketch estimates of %d beyond the bound, at most %.0f may be", rows, outside, n, allowed)
		}
		if bias*bias > 25*variance {
			t.Errorf("%d rows: the Count Sketch is wrong by %.1f on average", rows, bias/float64(n))
		}
	}
}

// With 5 rows, all is as the papers say: e/Width of the sum with 1 - exp(-5), and Chebyshev's bound
// of 8 variances in 3 of 5 rows, 1 - (10·7² + 5·7 + 1)/8⁵.
func TestBounds(t *testing.T) {
	words := make([]uint64, 5*8)
	for row := range 5 {
		words[row*8], words[row*8+3] = 30, 10
	}
	r, err := Read(Sketch{5, 8}, words)
	if err != nil {
		t.Fatal(err)
	}
	over, sure := r.UpperBound()
	if over < 13.59 || over > 13.60 || sure < 0.9932 || sure > 0.9933 {
		t.Errorf("%v, %v", over, sure)
	}
	within, sure := r.CountBound() // the second moment is 30² + 10² = 1000, and 8·1000/4 = 2000
	if within < 44.72 || within > 44.73 || sure < 0.9839 || sure > 0.9840 {
		t.Errorf("%v, %v", within, sure)
	}
	for _, s := range []Sketch{{5, 7}, {0, 8}, {5, 0}, {4, 8}} {
		if _, err := Read(s, words); err == nil {
			t.Errorf("%+v is read", s)
		}
	}
}

// The report puts the heaviest keys first, and corrects for the sample.
func TestReport(t *testing.T) {
	s := Sketch{Rows: 5, Width: 4096}
	truth, r := stream(t, s, 0, 500, 50_000)
	var keys []Key
	for i := len(truth) - 1; i >= 0; i-- {
		keys = append(keys, flowOf(i))
	}
	p := r.Report(keys, 10)
	if p.Total != 500_000 || len(p.List) != 500 || p.Every != 10 {
		t.Fatalf("%d, %d keys", p.Total, len(p.List))
	}
	for i, h := range p.List[:10] {
		n := truth[h.Key.SrcPort] * 10
		if h.AtMost < n || h.Estimate > h.AtMost || h.Estimate+p.Within < n || i > 0 && h.Estimate > p.List[i-1].Estimate {
			t.Errorf("%d: %+v of %d", i, h, n)
		}
	}
	if first := p.List[0]; first.Key != flowOf(0) || first.Share < 0.1 {
		t.Errorf("%+v", first)
	}
}

// What was added between two readings is a sketch, too. A server that has lost its memory has
// counted from 0.
func TestSince(t *testing.T) {
	s := Sketch{1, 4}
	a, _ := Read(s, []uint64{5, 6, 7, 8})
	b, _ := Read(s, []uint64{9, 6, 2, 9})
	d, err := b.Since(a)
	if err != nil || d.words[0] != 4 || d.words[1] != 0 || d.words[2] != 2 || d.words[3] != 1 || b.words[0] != 9 {
		t.Errorf("%v, %v", d, err)
	}
}
