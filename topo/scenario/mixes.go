package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// planMix is a variation of a store's plan that only some runs have: kinds of keys, links, faults
// or memory that the base plan does not draw. A run has the mixes that `--mix` names; without the
// flag each mix is drawn with the probability chance. Each mix draws from its own random numbers,
// so a run with one mix has the same values in that part as a run with several.
type planMix[P any] struct {
	name   string
	chance float64
	apply  func(p P, d *draw)
	// not lists the mixes that cannot be in the same run.
	not []string
}

// planMixes is a list of mixes in the order in which blend applies them.
type planMixes[P any] []planMix[P]

// mixNone is the value of --mix for a run without mixes.
const mixNone = "none"

// MixNames returns a text with the values of --mix for each store.
func MixNames() string { return "clover: " + storeMixes.names() + "; sherman: " + treeMixes.names() }

func (list planMixes[P]) names() string {
	names := []string{mixNone}
	for _, m := range list {
		names = append(names, m.name)
	}
	return strings.Join(names, ", ")
}

// check checks a value of --mix: names separated by commas, mixNone or "".
func (list planMixes[P]) check(value string) error {
	if value == "" || value == mixNone {
		return nil
	}
	names := strings.Split(value, ",")
	for _, name := range names {
		i := slices.IndexFunc(list, func(m planMix[P]) bool { return m.name == name })
		if i < 0 {
			return fmt.Errorf("--mix %.40q: use %s", name, list.names())
		}
		for _, other := range names {
			if slices.Contains(list[i].not, other) {
				return fmt.Errorf("--mix %s: not together with %s", name, other)
			}
		}
	}
	return nil
}

// choose returns the names of the mixes of a run: those that value names, or, if it is "", those
// that the seed draws. It leaves out the mixes in without, which the scenario cannot have. Of two
// mixes that exclude each other, the later one stays.
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

// blend applies the chosen mixes to a plan.
func (list planMixes[P]) blend(p P, seed uint64, chosen []string) {
	for i, m := range list {
		if slices.Contains(chosen, m.name) {
			m.apply(p, newDraw(^seed-uint64(i)<<48))
		}
	}
}
