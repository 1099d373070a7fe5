package kv

import (
	"math"
	"math/rand/v2"
)

// Zipf draws ranks from 0 to n-1. Rank k has a probability proportional to 1/(k+1)^theta. Zipf uses
// rejection-inversion (Hörmann and Derflinger, 1996), which needs no table and works for every
// theta from 0 (uniform) on, also above 1.
type Zipf struct {
	n, q      float64 // number of ranks, and theta
	x1, xn, s float64 // constants of the method
	uniform   bool    // true if theta is 0
	ranks     uint64  // n as an integer
	scramble  bool
	shared    uint64 // seed of Scramble
}

// NewZipf makes a Zipf for n ranks, at least 1, and theta >= 0.
func NewZipf(n uint64, theta float64) *Zipf {
	z := &Zipf{n: float64(n), q: theta, ranks: n, uniform: theta == 0}
	if z.uniform {
		return z
	}
	z.x1 = z.integral(1.5) - 1
	z.xn = z.integral(z.n + 0.5)
	z.s = 2 - z.inverse(z.integral(2.5)-z.h(2))
	return z
}

// Scramble spreads the ranks over the keys, so that popular keys are no neighbours. Every client
// must use the same seed. Some keys get several ranks, and others none.
func (z *Zipf) Scramble(seed uint64) { z.scramble, z.shared = true, seed }

func (z *Zipf) Next(r *rand.Rand) uint64 {
	k := z.rank(r)
	if z.scramble {
		k = mix(k^z.shared) % z.ranks
	}
	return k
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (z *Zipf) rank(r *rand.Rand) uint64 {
	if z.uniform {
		return r.Uint64N(z.ranks)
	}
	for {
		u := z.xn + r.Float64()*(z.x1-z.xn)
		x := z.inverse(u)
		k := math.Min(z.n, math.Max(1, math.Floor(x+0.5)))
		if k-x <= z.s || u >= z.integral(k+0.5)-z.h(k) {
			return uint64(k) - 1
		}
	}
}

// h is the density of the distribution, without the factor that makes its sum 1. integral is the
// integral of h up to a constant. inverse is the inverse function of integral. integral and inverse
// are continuous in q at q = 1.
func (z *Zipf) h(x float64) float64 { return math.Exp(-z.q * math.Log(x)) }

func (z *Zipf) integral(x float64) float64 {
	l := math.Log(x)
	return ratio(math.Expm1, (1-z.q)*l) * l
}

func (z *Zipf) inverse(x float64) float64 {
	t := math.Max(-1, x*(1-z.q))
	return math.Exp(ratio(math.Log1p, t) * x)
}

// ratio returns f(x)/x. For the two functions that are used, it tends to 1 as x tends to 0.
func ratio(f func(float64) float64, x float64) float64 {
	if math.Abs(x) < 1e-8 {
		return 1
	}
	return f(x) / x
}
