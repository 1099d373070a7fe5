package scenario

import (
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// draw makes the choices of a seed.
type draw struct{ *rand.Rand }

func newDraw(seed uint64) *draw { return &draw{rand.New(rand.NewPCG(seed, 0x7363656e))} }

// between is uniform in [low, high].
func (d *draw) between(low, high int) int { return low + d.IntN(high-low+1) }

// one picks an element.
func one[T any](d *draw, list ...T) T { return list[d.IntN(len(list))] }

// chance is true with probability p.
func (d *draw) chance(p float64) bool { return d.Float64() < p }

// span is uniform in [low, high].
func (d *draw) span(low, high time.Duration) time.Duration {
	return low + time.Duration(d.Int64N(int64(high-low)+1))
}

// size draws a message length: short ones, ones around a packet boundary, and long ones.
func (d *draw) size(mtu, limit int) int {
	n := 0
	switch d.IntN(4) {
	case 0:
		n = d.IntN(65)
	case 1:
		n = mtu*d.between(1, 4) + d.between(-1, 1)
	case 2:
		n = d.IntN(2 * mtu)
	default:
		n = d.IntN(limit + 1)
	}
	return max(0, min(n, limit))
}

// psnNearWrap draws a first PSN whose successors wrap within a run.
func psnNearWrap(d *draw) wire.PSN { return wire.PSN(0).Add(-d.between(1, 400)) }
