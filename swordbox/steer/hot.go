package steer

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Bounds of what is remembered of hot keys.
const (
	sketchRows = 4
	sketchCols = 4096
	// warmWays and warmSets are the keys that may be hot: the ones with the highest counts among those that share a set.
	warmWays = 8
	warmSets = 64
	// rankEvery is after how many requests the keys are ranked anew; at first it is done more often, from rankFirst on. rateEvery is over
	// what time rates are measured.
	rankFirst = 16
	rankEvery = 1024
	rateEvery = time.Second
)

// hot finds the keys that are asked for most: a count-min sketch whose counts are halved now and then, and a bounded table of the
// keys that it finds large. A request costs a few additions, and no key is stored that is not hot.
type hot struct {
	sketch *[sketchRows][sketchCols]uint32
	warm   []warm
	order  []*warm // as of the last ranking, the hottest first
	decay  int
	n      int // requests since the last halving
	ranked int // requests since the last ranking
	every  int // requests between rankings: few at first
	since  clock.Time
}

// warm is a key that may be hot.
type warm struct {
	key  uint64
	life uint32
	used bool
	// estimate is what the sketch says, place the key's among all of the last ranking, from 1; 0: it was not there.
	estimate uint32
	place    int
	reads    uint64
	appends  uint64
	steered  uint64
	// rate is of the last whole interval, in requests a second; mark is the count when the present one began.
	rate float64
	mark uint64
}

func (h *hot) begin(decay int) {
	h.sketch, h.warm, h.decay = new([sketchRows][sketchCols]uint32), make([]warm, warmSets*warmWays), decay
	h.order, h.every = make([]*warm, 0, len(h.warm)), rankFirst
}

// mix spreads a key (the finaliser of MurmurHash3).
func mix(key uint64, life uint32) uint64 {
	h := key ^ uint64(life)<<48
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// add counts a request in the sketch and returns the estimate.
func (h *hot) add(x uint64) uint32 {
	least := ^uint32(0)
	a, b := uint32(x), uint32(x>>32)|1
	for i := range h.sketch {
		c := &h.sketch[i][(a+uint32(i)*b)%sketchCols]
		*c++
		least = min(least, *c)
	}
	return least
}

// count notes a request for a key. The result is nil for a key that is not warm.
func (h *hot) count(now clock.Time, key uint64, life uint32, appends bool) *warm {
	x := mix(key, life)
	estimate := h.add(x)
	set := h.set(x)
	w := find(set, key, life)
	if w == nil {
		w = &set[0]
		for i := range set {
			if !set[i].used || w.used && set[i].estimate < w.estimate {
				w = &set[i]
			}
		}
		if w.used && w.estimate >= estimate {
			w = nil
		} else {
			*w = warm{key: key, life: life, used: true}
		}
	}
	if w != nil {
		w.estimate = estimate
		if appends {
			w.appends++
		} else {
			w.reads++
		}
	}
	if h.n++; h.n >= h.decay {
		h.halve()
	}
	if h.ranked++; h.ranked >= h.every {
		h.every = min(2*h.every, rankEvery)
		h.rank()
		h.measure(now)
	}
	return w
}

func (h *hot) set(x uint64) []warm {
	i := int(x>>40) % warmSets * warmWays
	return h.warm[i : i+warmWays]
}

func find(set []warm, key uint64, life uint32) *warm {
	for i := range set {
		if set[i].used && set[i].key == key && set[i].life == life {
			return &set[i]
		}
	}
	return nil
}

// find is the warm key; nil if it is none.
func (h *hot) find(key uint64, life uint32) *warm {
	if h.warm == nil {
		return nil
	}
	return find(h.set(mix(key, life)), key, life)
}

// steer counts a request that was steered.
func (w *warm) steer() {
	if w != nil {
		w.steered++
	}
}

// halve lets the past count for less.
func (h *hot) halve() {
	h.n = 0
	for i := range h.sketch {
		for j := range h.sketch[i] {
			h.sketch[i][j] /= 2
		}
	}
	for i := range h.warm {
		h.warm[i].estimate /= 2
	}
	h.rank()
}

// rank gives the warm keys their places.
func (h *hot) rank() {
	h.ranked = 0
	h.order = h.order[:0]
	for i := range h.warm {
		if h.warm[i].used {
			h.order = append(h.order, &h.warm[i])
		}
	}
	slices.SortFunc(h.order, func(a, b *warm) int {
		return cmp.Or(cmp.Compare(b.estimate, a.estimate), cmp.Compare(a.key, b.key), cmp.Compare(a.life, b.life))
	})
	for i, w := range h.order {
		w.place = i + 1
	}
}

// among reports whether a key is one of the n hottest ones, as of the last ranking.
func (h *hot) among(w *warm, n int) bool { return w != nil && w.place > 0 && w.place <= n }

// measure ends an interval of rates.
func (h *hot) measure(now clock.Time) {
	d := now.Sub(h.since)
	if d < rateEvery {
		return
	}
	for i := range h.warm {
		w := &h.warm[i]
		n := w.reads + w.appends
		w.rate, w.mark = float64(n-w.mark)/d.Seconds(), n
	}
	h.since = now
}
