package telemetry

import (
	"fmt"
	"math"
	"slices"
)

// Sketch is the form of the counters of keys: Rows rows of Width counters each, one behind the
// other. Each key has one counter in each row. A sketch of one row is an array of counters that keys
// share.
type Sketch struct {
	Rows, Width int
}

// Slot returns the number of the counter of a key, whose hash is `hash`, in a row.
func (s *Sketch) Slot(hash uint64, row int) int { return row*s.Width + Place(hash, row, s.Width) }

// Place returns the place of a key in a row of width counters. The places of a key in different
// rows are independent of each other.
func Place(hash uint64, row, width int) int {
	return int(mix(hash+uint64(row)*0x9e3779b97f4a7c15) % uint64(width))
}

// Reading is a copy of the counters of a sketch.
type Reading struct {
	Sketch
	words  []uint64
	total  uint64  // sum of the counters of a row
	second float64 // estimate of the sum of the squares of the counts of all keys (second moment)
}

// Read makes a Reading of a copy of all counters, which it keeps.
func Read(s Sketch, words []uint64) (*Reading, error) {
	if s.Rows < 1 || s.Width < 2 || s.Width%2 != 0 || len(words) != s.Rows*s.Width {
		return nil, fmt.Errorf("%d counters for %d rows of %d", len(words), s.Rows, s.Width)
	}
	r := &Reading{Sketch: s, words: words}
	seconds := make([]float64, s.Rows)
	for row := range s.Rows {
		sum, second := uint64(0), 0.0
		for i := 0; i < s.Width; i += 2 {
			a, b := words[row*s.Width+i], words[row*s.Width+i+1]
			sum += a + b
			d := float64(a) - float64(b)
			second += d * d
		}
		r.total = max(r.total, sum)
		seconds[row] = second
	}
	r.second = median(seconds)
	return r, nil
}

// Total returns the sum of all counts: the largest sum of a row, because additions may have been on
// their way to other rows when the copy was made.
func (r *Reading) Total() uint64 { return r.total }

// Upper returns the count-min estimate of the count of a key: at least what was added for the key in each
// row.
func (r *Reading) Upper(hash uint64) uint64 {
	least := uint64(math.MaxUint64)
	for row := range r.Rows {
		least = min(least, r.words[r.Slot(hash, row)])
	}
	return least
}

// UpperBound returns by how much Upper is too large at most, with the given probability.
func (r *Reading) UpperBound() (over, probability float64) {
	return math.E / float64(r.Width) * float64(r.total), 1 - math.Exp(-float64(r.Rows))
}

// Count returns the estimate of the Count Sketch: the median over the rows of the difference between
// a key's counter and its neighbour.
func (r *Reading) Count(hash uint64) float64 {
	list := make([]float64, r.Rows)
	for row := range r.Rows {
		at := r.Slot(hash, row)
		other := row*r.Width + ((at - row*r.Width) ^ 1)
		list[row] = float64(r.words[at]) - float64(r.words[other])
	}
	return median(list)
}

// deviations is the square of the number of standard deviations within which CountBound puts the
// estimate of a row. Chebyshev's inequality says that it is outside with a probability of at most
// 1/deviations.
const deviations = 8

// CountBound returns within how much of the true count Count is, with the given probability. The
// variance of a row's estimate is at most the second moment of all counts divided by Width/2, and
// the median is outside only if half of the rows are. The second moment is an estimate, too.
func (r *Reading) CountBound() (within, probability float64) {
	within = math.Sqrt(deviations * r.second / (float64(r.Width) / 2))
	const p = 1.0 / deviations
	bad, n := 0.0, r.Rows
	for i := (n + 1) / 2; i <= n; i++ {
		bad += binomial(n, i) * math.Pow(p, float64(i)) * math.Pow(1-p, float64(n-i))
	}
	return within, 1 - bad
}

func binomial(n, k int) float64 {
	v := 1.0
	for i := range k {
		v = v * float64(n-i) / float64(i+1)
	}
	return v
}

// median returns the middle value of a list, or the mean of the two in the middle. It sorts list.
func median(list []float64) float64 {
	slices.Sort(list)
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}
