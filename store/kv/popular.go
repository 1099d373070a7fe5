package kv

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
)

// Shapes of popularity: how the operations of a workload choose their keys.
const (
	ShapeZipf    = "zipf"    // a Zipf distribution (RunConfig.Zipf); without Scramble the smallest keys are the most popular
	ShapeUniform = "uniform" // all keys are equally popular
	// ShapeLatest is a Zipf distribution (RunConfig.Zipf); the keys inserted last are the most
	// popular.
	ShapeLatest  = "latest"
	ShapeHotspot = "hotspot" // some keys get most operations: see Popularity.HotKeys
	// ShapeOwn means that each client uses its own part of the loaded keys (see Load), one key
	// after the other. Programs choose this shape; ParsePopularity does not know it.
	ShapeOwn = "own"
)

// Popularity says which keys the operations of a workload use. The zero value means ShapeZipf, or
// ShapeLatest for a Workload with Latest.
type Popularity struct {
	Shape string `json:"shape,omitempty"`
	// HotKeys is the share of the keys that is hot. HotOps is the share of the operations that use
	// hot keys. Both are from 0 to 1, and only ShapeHotspot uses them.
	HotKeys float64 `json:"hotKeys,omitempty"`
	HotOps  float64 `json:"hotOps,omitempty"`
	// MoveTime and MoveOps say after what time, and after how many operations of all clients, other
	// keys become the popular ones; 0 means that the popular keys stay. Each client counts its own
	// time, and its own operations times the number of clients. All clients move to the same keys.
	MoveTime time.Duration `json:"moveTimeNs,omitempty"`
	MoveOps  uint64        `json:"moveOps,omitempty"`
}

// ParsePopularity parses zipf, uniform, latest, or hotspot:KEYS:OPERATIONS: the fraction KEYS of
// the keys gets the fraction OPERATIONS of the operations. Both are from 0 to 1, or percentages
// with %.
func ParsePopularity(text string) (p Popularity, err error) {
	const want = "want zipf, uniform, latest, or hotspot:KEYS:OPERATIONS like hotspot:20%:80%"
	parts := strings.Split(text, ":")
	p.Shape = parts[0]
	switch {
	case len(parts) == 3 && p.Shape == ShapeHotspot:
		if p.HotKeys, err = fraction(parts[1]); err == nil {
			p.HotOps, err = fraction(parts[2])
		}
		if err == nil && p.HotKeys == 0 {
			err = fmt.Errorf("no key is hot with %.20q of the keys", parts[1])
		}
	case len(parts) == 1 && (p.Shape == ShapeZipf || p.Shape == ShapeUniform || p.Shape == ShapeLatest):
	default:
		meant := ""
		if p.Shape != ShapeHotspot {
			meant = nearest.Meant(p.Shape, []string{ShapeZipf, ShapeUniform, ShapeLatest, ShapeHotspot}, shapesMeant)
		}
		return Popularity{}, fmt.Errorf("unknown distribution %.40q; %s%s", text, meant, want)
	}
	if err != nil {
		return Popularity{}, fmt.Errorf("%w; %s", err, want)
	}
	return p, nil
}

// shapesMeant are words of other tools for distributions.
var shapesMeant = map[string]string{"zipfian": ShapeZipf, "random": ShapeUniform, "hot": ShapeHotspot, "hotset": ShapeHotspot, "newest": ShapeLatest}

// fraction parses a number from 0 to 1, or a percentage.
func fraction(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(number, 64)
	if percent {
		x /= 100
	}
	if err != nil || !(x >= 0 && x <= 1) {
		return 0, fmt.Errorf("%.20q is no fraction: want a number from 0 to 1, or a percentage like 20%%", text)
	}
	return x, nil
}

// ParseMove parses when the popular keys move: after a time like 5s, or after a number of
// operations.
func (p *Popularity) ParseMove(text string) error {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > 0 {
		p.MoveOps = n
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return fmt.Errorf("%.40q: want a time like 5s, or a number of operations like 10000", text)
	}
	p.MoveTime = d
	return nil
}

func (p *Popularity) check() error {
	switch {
	case p.Shape == ShapeLatest && (p.MoveTime > 0 || p.MoveOps > 0):
		return fmt.Errorf("workload: with distribution latest the popular keys move by themselves, with each insert; use zipf or hotspot")
	case p.Shape == ShapeUniform && (p.MoveTime > 0 || p.MoveOps > 0):
		return fmt.Errorf("workload: with distribution uniform no keys are popular that could move; use zipf or hotspot")
	case p.Shape == ShapeHotspot && !(p.HotKeys > 0 && p.HotKeys <= 1 && p.HotOps >= 0 && p.HotOps <= 1):
		return fmt.Errorf("workload: %g of the keys and %g of the operations are hot; want fractions from 0 to 1", p.HotKeys, p.HotOps)
	case p.MoveTime < 0:
		return fmt.Errorf("workload: a time is negative")
	}
	switch p.Shape {
	case "", ShapeZipf, ShapeUniform, ShapeLatest, ShapeHotspot, ShapeOwn:
		return nil
	}
	return fmt.Errorf("workload: unknown distribution %.40q", p.Shape)
}

func (p *Popularity) shape(w *Workload) string {
	switch {
	case p.Shape != "":
		return p.Shape
	case w.Latest:
		return ShapeLatest
	}
	return ShapeZipf
}

// Popular describes in words which keys are popular.
func (c *RunConfig) Popular() (text string) {
	switch shape := c.Popularity.shape(&c.Workload); shape {
	case ShapeHotspot:
		text = fmt.Sprintf("hotspot %g%%:%g%%", 100*c.Popularity.HotKeys, 100*c.Popularity.HotOps)
	case ShapeLatest:
		text = fmt.Sprintf("latest, Zipf %g", c.Zipf)
	case ShapeUniform:
		text = ShapeUniform
	default:
		text = fmt.Sprintf("Zipf %g", c.Zipf)
	}
	if c.Popularity.MoveTime > 0 {
		text += fmt.Sprintf(", moves every %v", c.Popularity.MoveTime)
	}
	if c.Popularity.MoveOps > 0 {
		text += fmt.Sprintf(", moves every %d operations", c.Popularity.MoveOps)
	}
	return text
}

// chooser draws the keys for the operations of one client.
type chooser struct {
	cfg   *RunConfig
	shape string
	zipf  *Zipf
	hot   uint64 // number of hot keys of a hotspot
}

// chooser returns the chooser of one client.
func (c *RunConfig) chooser() *chooser {
	x := &chooser{cfg: c, shape: c.Popularity.shape(&c.Workload)}
	theta := c.Zipf
	if x.shape == ShapeUniform {
		theta = 0
	}
	x.zipf = NewZipf(c.Keys, theta)
	if c.Scramble && x.shape == ShapeZipf {
		x.zipf.Scramble(scrambleSeed)
	}
	x.hot = min(c.Keys, max(1, uint64(math.Ceil(c.Popularity.HotKeys*float64(c.Keys)))))
	return x
}

// scrambleSeed is the same for all clients of all runs. It does not matter which keys are popular,
// but they must be the same keys for all clients.
const scrambleSeed = 0x5eed

// draw draws a key or, for ShapeLatest, the rank of a key (see runner.key). `since` is the time
// since the client began. ops is the number of operations that the client has begun.
func (c *chooser) draw(r *rand.Rand, since time.Duration, ops uint64) uint64 {
	var k uint64
	switch {
	case c.shape != ShapeHotspot:
		k = c.zipf.Next(r)
	case r.Float64() < c.cfg.Popularity.HotOps || c.hot == c.cfg.Keys:
		k = c.place(r.Uint64N(c.hot))
	default:
		k = c.place(c.hot + r.Uint64N(c.cfg.Keys-c.hot))
	}
	if n := c.moves(since, ops); n > 0 {
		k = (k + mix(n)%c.cfg.Keys) % c.cfg.Keys
	}
	return k
}

// place returns the key of a rank in a hotspot. The ranks below c.hot are the hot keys.
func (c *chooser) place(rank uint64) uint64 {
	if !c.cfg.Scramble {
		return rank
	}
	return permute(rank, c.cfg.Keys, scrambleSeed)
}

// permute returns element k of a permutation of the numbers 0 to n-1, which the seed chooses. It
// applies a Feistel network on a power of 4 that is at least n, until the result is below n.
func permute(k, n, seed uint64) uint64 {
	half := (bits.Len64(n-1) + 1) / 2
	mask := uint64(1)<<half - 1
	for {
		left, right := k>>half, k&mask
		for round := range uint64(4) {
			left, right = right, left^mix(right^seed+round<<32)&mask
		}
		if k = left<<half | right; k < n {
			return k
		}
	}
}

// moves returns how many times the popular keys have moved. The arguments are those of draw.
func (c *chooser) moves(since time.Duration, ops uint64) (n uint64) {
	if t := c.cfg.Popularity.MoveTime; t > 0 {
		n += uint64(since / t)
	}
	if every := c.cfg.Popularity.MoveOps; every > 0 {
		n += ops * uint64(c.cfg.Clients) / every
	}
	return n
}
