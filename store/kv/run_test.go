package kv

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// The frequencies of ranks follow the distribution, at every skew.
func TestZipf(t *testing.T) {
	const n, draws = 1024, 400_000
	for _, theta := range []float64{0, 0.5, 0.99, 1, 1.2, 1.5} {
		r := rand.New(rand.NewPCG(1, 2))
		z := NewZipf(n, theta)
		var got [n]float64
		for range draws {
			got[z.Next(r)]++
		}
		sum := 0.0
		for k := 1; k <= n; k++ {
			sum += math.Pow(float64(k), -theta)
		}
		for _, k := range []int{1, 2, 3, 10, 100} {
			want := draws * math.Pow(float64(k), -theta) / sum
			if d := math.Abs(got[k-1] - want); d > 5*math.Sqrt(want)+1 {
				t.Errorf("theta %g: rank %d was drawn %.0f times, want %.0f", theta, k, got[k-1], want)
			}
		}
	}
}

// All ranks of a few have their frequencies, also the last one.
func TestZipfOfFew(t *testing.T) {
	const draws = 200_000
	for n := 1; n <= 5; n++ {
		for _, theta := range []float64{0.3, 1, 1.5} {
			r, z, sum := rand.New(rand.NewPCG(8, 9)), NewZipf(uint64(n), theta), 0.0
			got := make([]float64, n)
			for range draws {
				got[z.Next(r)]++
			}
			for k := range n {
				sum += math.Pow(float64(k+1), -theta)
			}
			for k := range n {
				want := draws * math.Pow(float64(k+1), -theta) / sum
				if math.Abs(got[k]-want) > 5*math.Sqrt(want) {
					t.Errorf("theta %g: rank %d of %d was drawn %.0f times, want %.0f", theta, k, n, got[k], want)
				}
			}
		}
	}
}

func TestScrambleIsTheSameForAll(t *testing.T) {
	count := func(seed uint64) uint64 {
		z := NewZipf(100, 1.5)
		z.Scramble(7)
		r := rand.New(rand.NewPCG(seed, 1))
		hits := map[uint64]int{}
		best := uint64(0)
		for range 10_000 {
			k := z.Next(r)
			if hits[k]++; hits[k] > hits[best] {
				best = k
			}
		}
		return best
	}
	if a, b := count(1), count(2); a != b || a == 0 {
		t.Errorf("the most popular keys are %d and %d", a, b)
	}
}

func TestWorkloads(t *testing.T) {
	for _, w := range Workloads() {
		if sum := w.Read + w.Update + w.Insert + w.Scan + w.ReadModify; math.Abs(sum-1) > 1e-9 {
			t.Errorf("%s: shares add up to %g", w.Name, sum)
		}
		r := rand.New(rand.NewPCG(1, 1))
		var got [kinds]float64
		for range 100_000 {
			got[w.pick(r.Float64())]++
		}
		for k, share := range []float64{w.Read, w.Update, w.Insert, w.Scan, w.ReadModify} {
			if math.Abs(got[k]/100_000-share) > 0.01 {
				t.Errorf("%s: %v is %g of the operations, want %g", w.Name, Kind(k), got[k]/100_000, share)
			}
		}
	}
	if w, err := FindWorkload("5"); err != nil || w.Update != 0.05 {
		t.Errorf("%+v %v", w, err)
	}
	for _, bad := range []string{"", "z", "101", "-1"} {
		if w, err := FindWorkload(bad); err == nil {
			t.Errorf("%q is workload %+v", bad, w)
		}
	}
}

func TestResults(t *testing.T) {
	a, b := &Result{Clients: 1, Span: time.Second}, &Result{Clients: 1, Span: 2 * time.Second}
	for i := range 100 {
		a.note(KindRead, time.Duration(i+1)*time.Microsecond, Cost{RTTs: 1})
		b.note(KindUpdate, time.Millisecond, Cost{RTTs: 4, Retries: i % 2})
	}
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	a.Merge(&back)
	s := a.Summary()
	if s.Ops != 200 || s.Clients != 2 || s.Throughput != 100 || s.FirstTry != 0.5 || s.Retries != 50 || s.RTTsPerOp != 2.5 {
		t.Errorf("%+v", s)
	}
	if p := a.Percentile(KindRead, 50); p < 49*time.Microsecond || p > 52*time.Microsecond {
		t.Errorf("median of reads %v", p)
	}
	if p := a.Percentile(KindUpdate, 99); p < 990*time.Microsecond || p > 1010*time.Microsecond {
		t.Errorf("p99 of updates %v", p)
	}
}
