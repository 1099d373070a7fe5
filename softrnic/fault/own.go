package fault

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/units"
)

// Effect is a kind of fault that another module adds with Register. Rules of the kind select frames
// like those of any other kind: by share, match, count and time.
type Effect struct {
	// Kind is the name of the kind in rack files and for `rdmalab inject`: small letters, digits and
	// dashes.
	Kind Kind
	// Doc says in one line what the fault does to the frames that a rule selects.
	Doc string
	// New makes the effect of rule r on one direction of one link, with its state. r is valid and does
	// not change. The rule's Delay, which may be 0, is for the effect to use.
	New func(r *Rule) Apply
}

// Apply adds an effect on one frame, which a rule has selected, to the verdict v. It reports whether
// the effect counts as a hit. frame begins with the Ethernet header and must not be changed or kept. x
// is a random number that depends only on the seed, the rule, and the number of the frame, so that a
// run can be repeated. Apply is called by one goroutine at a time, must not allocate, and leaves
// v.Rules alone.
type Apply func(now clock.Time, frame []byte, x uint64, v *Verdict) bool

// effects has the registered effects.
var effects []Effect

// reserved has words that are no kinds for rules, but mean something else to `rdmalab inject`.
var reserved = []Kind{"drop", "nic", "verbs"}

// Register adds a kind of fault. Init functions call it. It panics if the kind is taken or is no name,
// or if New is nil. remove removes the kind; only tests call it.
func Register(e Effect) (remove func()) {
	name := string(e.Kind)
	taken := slices.Contains(kinds, e.Kind) || slices.Contains(reserved, e.Kind)
	if taken || e.New == nil || !units.IsName(name) {
		panic(fmt.Sprintf("fault %q: the kind is taken, is no name, or has no function New", name))
	}
	kinds = append(kinds, e.Kind)
	effects = append(effects, e)
	return func() {
		kinds = slices.DeleteFunc(kinds, func(k Kind) bool { return k == e.Kind })
		effects = slices.DeleteFunc(effects, func(o Effect) bool { return o.Kind == e.Kind })
	}
}

// Effects lists the registered effects in the order of their registration.
func Effects() []Effect { return slices.Clone(effects) }

// effectOf returns the registered effect of a kind; the bool is false if the kind is one of this
// package.
func effectOf(k Kind) (Effect, bool) {
	i := slices.IndexFunc(effects, func(e Effect) bool { return e.Kind == k })
	if i < 0 {
		return Effect{}, false
	}
	return effects[i], true
}
