package cloversteer

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Bounds of the sketch and of the table of warm keys, which may become hot.
const (
	sketchHashes = 4
	sketchCols   = 4096
	// There are warmSets sets of warmWays warm keys each. A set keeps the keys with the highest
	// counts of those that hash to it.
	warmWays = 8
	warmSets = 64
	// Every rankEvery requests the warm keys are ranked. The first rankings come sooner: after
	// rankFirst requests, then after twice as many, and so on. Every rateEvery the rates of keys
	// are measured.
	rankFirst = 16
	rankEvery = 1024
	rateEvery = time.Second
)

// hot finds the keys that clients request most. It has a count-min sketch, whose counts are halved
// every decay requests, and a bounded table of the keys with large counts. A request costs a few
// additions.
type hot struct {
	sketch *[sketchHashes][sketchCols]uint32
	warm   []warm
	order  []*warm // sorted by the last ranking, the hottest first
	decay  int
	n      int        // requests since the last halving
	ranked int        // requests since the last ranking
	every  int        // requests until the next ranking
	since  clock.Time // when the present interval of rates began
}

// warm is a key that may be hot, so its requests are counted exactly.
type warm struct {
	id   // the key, and the incarnation of its store
	used bool
	// estimate is the key's count in the sketch. place is the rank of the key in the last ranking,
	// from 1; 0 means that it is not ranked.
	estimate uint32
	place    int
	reads    uint64
	appends  uint64
	steered  uint64
	// rate is the rate of requests in the last complete interval, per second. mark is the number of
	// requests at the start of the present interval.
	rate float64
	mark uint64
}

func (h *hot) begin(decay int) {
	h.sketch, h.warm, h.decay = new([sketchHashes][sketchCols]uint32), make([]warm, warmSets*warmWays), decay
	h.order, h.every = make([]*warm, 0, len(h.warm)), rankFirst
}

// add counts a request in the sketch and returns the estimate for its key. x is the hash of the
// key.
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

// count counts a request for a key. It returns the key's entry in the table of warm keys; nil if
// the key is not in the table.
func (h *hot) count(now clock.Time, key id, appends bool) *warm {
	x := key.hash()
	estimate := h.add(x)
	set := h.set(x)
	w := find(set, key)
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
			*w = warm{id: key, used: true}
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

func find(set []warm, key id) *warm {
	for i := range set {
		if set[i].used && set[i].id == key {
			return &set[i]
		}
	}
	return nil
}

// find returns the entry of a key in the table of warm keys; nil if the key is not in the table.
func (h *hot) find(key id) *warm {
	if h.warm == nil {
		return nil
	}
	return find(h.set(key.hash()), key)
}

// steer counts a steered request for the key. w may be nil.
func (w *warm) steer() {
	if w != nil {
		w.steered++
	}
}

// halve halves all counts, so that recent requests weigh more than old ones.
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

func (h *hot) rank() {
	h.ranked = 0
	h.order = h.order[:0]
	for i := range h.warm {
		if h.warm[i].used {
			h.order = append(h.order, &h.warm[i])
		}
	}
	slices.SortFunc(h.order, func(a, b *warm) int {
		return cmp.Or(cmp.Compare(b.estimate, a.estimate), cmp.Compare(a.n, b.n), cmp.Compare(a.incarnation, b.incarnation))
	})
	for i, w := range h.order {
		w.place = i + 1
	}
}

// steers reports whether a rule steers the requests for a key: the rule is for all keys, for a set
// of keys, or for the r.Hot keys that were requested most in the last ranking. w is the entry of
// the key in the table of warm keys, or nil.
func (h *hot) steers(r *rules.Rule, key uint64, w *warm) bool {
	if r.Hot > 0 {
		return w != nil && w.place > 0 && w.place <= r.Hot
	}
	return r.HasKey(key)
}

// measure computes the rates of the warm keys, if rateEvery has passed since it did so last.
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
