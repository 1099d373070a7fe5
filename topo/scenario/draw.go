package scenario

import (
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// draw makes the random choices of a run, from its seed.
type draw struct{ *rand.Rand }

func newDraw(seed uint64) *draw { return &draw{rand.New(rand.NewPCG(seed, 0x7363656e))} }

// between returns a number from low to high.
func (d *draw) between(low, high int) int { return low + d.IntN(high-low+1) }

// one returns an element of the list; all are equally probable.
func one[T any](d *draw, list ...T) T { return list[d.IntN(len(list))] }

// chance returns true with probability p.
func (d *draw) chance(p float64) bool { return d.Float64() < p }

// span returns a duration from low to high.
func (d *draw) span(low, high time.Duration) time.Duration {
	return low + time.Duration(d.Int64N(int64(high-low)+1))
}

// size returns a message length up to limit: short, around a multiple of the MTU, or long.
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

// psnNearWrap returns a first PSN so large that PSNs wrap around within a run.
func psnNearWrap(d *draw) wire.PSN { return wire.PSN(0).Add(-d.between(1, 400)) }
