package kv

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The most popular of 1,024 keys has 12.9 % of the requests at Zipf 0.99 and 39 % at 1.5, by the sum of the
// distribution and as drawn. SwordBox's appendix says 17 % and more than half. The first is the share of some
// 176 keys, of which the hottest has 41 % at 1.5; more than half it has of ten keys or fewer.
func TestShareOfTheHottestKey(t *testing.T) {
	share := func(keys int, theta float64) float64 {
		sum := 0.0
		for k := 1; k <= keys; k++ {
			sum += math.Pow(float64(k), -theta)
		}
		return 1 / sum
	}
	for theta, want := range map[float64]float64{0.99: 0.129, 1.5: 0.392} {
		if got := share(1024, theta); math.Abs(got-want) > 0.002 {
			t.Errorf("Zipf %v: %.4f, want %v", theta, got, want)
		}
		z, d := NewZipf(1024, theta), rand.New(rand.NewPCG(1, 2))
		const draws = 200_000
		hot := 0
		for range draws {
			if z.Next(d) == 0 {
				hot++
			}
		}
		if got := float64(hot) / draws; math.Abs(got-share(1024, theta)) > 0.01 {
			t.Errorf("Zipf %v: the generator gives %.4f, the distribution %.4f", theta, got, share(1024, theta))
		}
	}
	one, other := 1.0, 1.0 // sums for 0.99 and 1.5
	for keys := 2; keys < 1<<16; keys++ {
		one += math.Pow(float64(keys), -0.99)
		other += math.Pow(float64(keys), -1.5)
		if 1/one < 0.18 && 1/other > 0.42 {
			t.Errorf("of %d keys the hottest has %.3f at 0.99 and %.3f at 1.5", keys, 1/one, 1/other)
		}
	}
}
