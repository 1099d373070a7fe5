package telemetry

import (
	"cmp"
	"slices"
)

// Heavy is what a Reading says about a key. Its numbers are corrected for sampling.
type Heavy struct {
	Key Key `json:"key"`
	// AtMost is the count-min estimate. The true amount is at most AtMost if every packet was counted (no
	// sample) and all additions are in the counters: none was dropped, is uncertain or on its way.
	AtMost uint64 `json:"atMost"`
	// Estimate is the estimate of the Count Sketch, at least 0 and at most AtMost.
	Estimate uint64 `json:"estimate"`
	// Share is Estimate divided by the amount of all packets.
	Share float64 `json:"share"`
}

// Report is the list of heavy keys with the bounds of its estimates.
type Report struct {
	Total uint64  `json:"total"` // amount of all packets
	List  []Heavy `json:"list"`
	// Over is by how much an AtMost is too large at most, with probability OverSure.
	Over     uint64  `json:"over"`
	OverSure float64 `json:"overSure"`
	// Within is how far an Estimate is from the true amount at most, with probability WithinSure.
	Within     uint64  `json:"within"`
	WithinSure float64 `json:"withinSure"`
	// Every is how many packets there are for each one that was counted. If it is not 1, the sample
	// adds an error of its own to all numbers.
	Every uint64 `json:"every"`
}

// Report estimates the amounts of keys, the heaviest first. every is Sampler.Every of the packets
// that were counted.
func (r *Reading) Report(keys []Key, every uint64) Report {
	over, overSure := r.UpperBound()
	within, withinSure := r.CountBound()
	out := Report{
		Total: r.total * every, Over: uint64(over) * every, OverSure: overSure, Within: uint64(within) * every, WithinSure: withinSure, Every: every, List: make([]Heavy, 0, len(keys)),
	}
	for i := range keys {
		h := keys[i].Hash()
		upper := r.Upper(h)
		estimate := min(uint64(max(0, r.Count(h))), upper)
		x := Heavy{Key: keys[i], AtMost: upper * every, Estimate: estimate * every}
		if out.Total > 0 {
			x.Share = float64(x.Estimate) / float64(out.Total)
		}
		out.List = append(out.List, x)
	}
	slices.SortStableFunc(out.List, func(a, b Heavy) int {
		return cmp.Or(cmp.Compare(b.Estimate, a.Estimate), cmp.Compare(b.AtMost, a.AtMost))
	})
	return out
}

// Since returns the Reading of what was added after an earlier Reading of the same sketch. A counter
// that has become smaller, because its server lost its memory, counts as 0 before.
func (r *Reading) Since(earlier *Reading) (*Reading, error) {
	words := slices.Clone(r.words)
	for i := range min(len(words), len(earlier.words)) {
		if w := earlier.words[i]; w <= words[i] {
			words[i] -= w
		}
	}
	return Read(r.Sketch, words)
}
