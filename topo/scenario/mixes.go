package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// planMix is a part of a plan that only some runs of a store have: kinds of keys, links, faults or memory
// that the base plan does not draw. A run has those that `--mix` names; without it each is drawn by
// its chance. Each makes its choices from a stream of its own, so that a run with one mix replays that
// part of a run with several.
type planMix[P any] struct {
	name   string
	chance float64
	apply  func(p P, d *draw)
	// not are the mixes that cannot be in the same run.
	not []string
}

// planMixes are in the order in which they are applied.
type planMixes[P any] []planMix[P]

// mixNone is the value of --mix for none of them.
const mixNone = "none"

// MixNames lists the values of --mix for each store.
func MixNames() string { return "clover: " + storeMixes.names() + "; sherman: " + treeMixes.names() }

func (list planMixes[P]) names() string {
	names := []string{mixNone}
	for _, m := range list {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// check checks a value of --mix: names joined by commas.
func (list planMixes[P]) check(value string) error {
	if value == "" || value == mixNone {
		return nil
	}
	names := strings.Split(value, ",")
	for _, name := range names {
		i := slices.IndexFunc(list, func(m planMix[P]) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("--mix %.40q: take %s", name, list.names())
		}
		for _, other := range names {
			if slices.Contains(list[i].not, other) {
				return fmt.Errorf("--mix %s: not together with %s", name, other)
			}
		}
	}
	return nil
}

// choose returns the mixes of a run: those that value names; "" draws them from the seed. without are
// those that the scenario cannot have.
func (list planMixes[P]) choose(seed uint64, value string, without ...string) (chosen []string) {
	d := newDraw(seed ^ 0x6d69786573)
	for _, m := range list {
		drawn := d.chance(m.chance)
		if value != "" {
			drawn = slices.Contains(strings.Split(value, ","), m.name)
		}
		if !drawn || slices.Contains(without, m.name) {
			continue
		}
		chosen = slices.DeleteFunc(chosen, func(name string) bool { return slices.Contains(m.not, name) })
		chosen = append(chosen, m.name)
	}
	return chosen
}

// blend adds the chosen mixes to a plan.
func (list planMixes[P]) blend(p P, seed uint64, chosen []string) {
	for i, m := range list {
		if slices.Contains(chosen, m.name) {
			m.apply(p, newDraw(^seed-uint64(i)<<48))
		}
	}
}
