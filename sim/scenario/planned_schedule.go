package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// schedule is the list of acts that the adversary does in one run of a small setup. Its text,
// SETUP/ACT/ACT..., replays the run.
type schedule struct {
	setup string
	acts  []act
}

// joins reports whether act a, done after act before on the same packet, may have an effect that
// neither act has alone. There are three such pairs: new rules, and then an act of another kind;
// new rules, and then a different list of rules; and a delay of the packet, and then a copy of it
// that is delayed by another number of packets.
func (a act) joins(before act) bool {
	switch {
	case a.half != before.half || a.index != before.index:
		return false
	case before.kind == newRules:
		return a.kind != newRules || a.n != before.n
	case before.kind == late:
		return a.kind == twice && a.n > 0 && a.n != before.n
	}
	return false
}

// act is one act of the adversary on one packet: the index-th packet that enters a direction of a
// link, counted from smallReady on. Its text is KIND@LINK-DIRECTION.INDEX.
type act struct {
	kind actKind
	// n is, by kind: how many later packets of the direction overtake the late packet or copy, the
	// milliseconds of a silence, or the index of the list of rules that the switch gets.
	n     int
	half  int // the direction, as an index of halves
	index int // number of the packet in its direction, from 1
}

// actKind is the effect of an act on its packet, or on the switch.
type actKind uint8

const (
	// drop loses the packet of the act.
	drop actKind = iota
	// late delays the packet until n later packets of its direction have passed, for at most
	// lateLimit, and at most until the clients have ended.
	late
	// twice passes the packet, and sends a copy of it behind n later packets; n = 0 means at once.
	twice
	// silence loses the packet and all packets of its direction in the next n milliseconds.
	silence
	// newRules gives the switch the n-th list of rules of the setup before the packet arrives.
	newRules

	actKinds
)

var actNames = [...]string{"drop", "late", "copy", "silence", "rules"}

// Bounds of a schedule that is parsed from a text.
const (
	maxActNumber = 1 << 20
	maxActs      = 64
)

// halves has the names of the directions of the small rack's links.
var halves = [...]string{"cn0-up", "cn0-down", "cn1-up", "cn1-down", "ms0-up", "ms0-down"}

func (a act) String() string {
	n := ""
	switch a.kind {
	case silence:
		n = strconv.Itoa(a.n) + "ms"
	case late, twice, newRules:
		n = strconv.Itoa(a.n)
	case drop, actKinds:
	}
	return fmt.Sprintf("%s%s@%s.%d", actNames[a.kind], n, halves[a.half], a.index)
}

func (s schedule) String() string {
	out := s.setup
	for _, a := range s.acts {
		out += "/" + a.String()
	}
	return out
}

func (s schedule) with(a act) schedule { return schedule{s.setup, slices.Concat(s.acts, []act{a})} }

func parseSchedule(text string) (schedule, error) {
	parts := strings.Split(text, "/")
	s := schedule{setup: parts[0]}
	setup, err := findSetup(s.setup)
	if err != nil {
		return s, err
	}
	for _, p := range parts[1:] {
		a, err := parseAct(p)
		if err == nil && a.kind == newRules && a.n >= len(setup.rules) {
			err = fmt.Errorf("setup %s has rules 0 to %d", s.setup, len(setup.rules)-1)
		}
		if err != nil {
			return s, fmt.Errorf("%.40q: %w", p, err)
		}
		if len(s.acts) == maxActs {
			return s, fmt.Errorf("a schedule has at most %d acts", maxActs)
		}
		s.acts = append(s.acts, a)
	}
	return s, nil
}

func parseAct(text string) (act, error) {
	what, where, ok := strings.Cut(text, "@")
	half, index, more := strings.Cut(where, ".")
	if !ok || !more {
		return act{}, errors.New("want KIND@LINK-DIRECTION.INDEX, like drop@ms0-down.3")
	}
	a := act{kind: actKinds, half: slices.Index(halves[:], half)}
	for k, name := range actNames {
		if rest, is := strings.CutPrefix(what, name); is {
			a.kind, what = actKind(k), rest
			break
		}
	}
	if a.kind == silence {
		what = strings.TrimSuffix(what, "ms")
	}
	var err error
	if a.kind != drop && a.kind != actKinds {
		a.n, err = strconv.Atoi(what)
	}
	a.index, _ = strconv.Atoi(index)
	switch {
	case a.kind == drop && what != "":
		return a, errors.New("drop takes no number")
	case a.half < 0:
		return a, fmt.Errorf("the directions are %s", strings.Join(halves[:], ", "))
	case a.kind == actKinds:
		return a, fmt.Errorf("the kinds are %s", strings.Join(actNames[:], ", "))
	case err != nil || a.n < 0 || a.n > maxActNumber:
		return a, fmt.Errorf("the number behind %s is wrong", actNames[a.kind])
	case a.index < 1 || a.index > maxActNumber:
		return a, errors.New("packets are counted from 1")
	}
	return a, nil
}
