package fault

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Limits of a Set.
const (
	// maxRules is the largest number of active rules.
	maxRules = 256
	// maxFinished is the number of ended rules that are still listed with their hits.
	maxFinished = 64
	// maxIDLen is the longest name of a rule in bytes.
	maxIDLen = 32
)

// Errors of a Set, wrapped with a description of the request.
var (
	ErrUnknownLink = errors.New("unknown link")
	ErrUnknownRule = errors.New("unknown fault rule")
	ErrDuplicateID = errors.New("fault rule exists already")
	ErrTooMany     = errors.New("too many fault rules")
	ErrNotOnLink   = errors.New("tear is a fault of a host's memory, not of a link; its host applies it")
)

// State says whether a rule is active.
type State string

// States. A rule is spent when it has used up its Count, and expired when its time For has passed.
const (
	Active  State = "active"
	Spent   State = "spent"
	Expired State = "expired"
)

// Status is a rule of a Set with its hits.
type Status struct {
	Rule
	State State `json:"state"`
	// Hits is the sum of both directions.
	Hits uint64 `json:"hits"`
	// HitsUp and HitsDown count the frames that the rule has hit in each direction.
	HitsUp   uint64 `json:"hitsUp"`
	HitsDown uint64 `json:"hitsDown"`
	// Remaining is the time until the rule expires; 0 for a rule without For.
	Remaining time.Duration `json:"remaining,omitempty"`
}

// Set is the fault plan of a whole switch: an injector for each direction of each link, and rules
// that are added and removed. It is used by one goroutine at a time.
type Set struct {
	seed      uint64
	links     []string
	injectors map[string]map[Dir]*Injector // by link and direction, Up or Down
	rules     []setRule
	prefix    string // begins the IDs of rules that have none
	counter   int    // number for the ID of the last rule added, from 1; 0 while the plan is empty
}

type setRule struct {
	Rule
	until clock.Time
}

// NewSet returns an empty plan for links, with the seed of the rack.
func NewSet(seed uint64, links []string) *Set {
	s := &Set{seed: seed, injectors: make(map[string]map[Dir]*Injector)}
	for _, l := range links {
		s.AddLink(l)
	}
	return s
}

// AddLink adds a link without rules; an existing link stays as it is.
func (s *Set) AddLink(link string) {
	if s.injectors[link] != nil {
		return
	}
	s.links = append(s.links, link)
	s.injectors[link] = map[Dir]*Injector{Up: NewInjector(s.seed, link, Up, nil), Down: NewInjector(s.seed, link, Down, nil)}
}

// RemoveLink removes a link and its rules. It ignores an unknown link.
func (s *Set) RemoveLink(link string) {
	if s.injectors[link] == nil {
		return
	}
	for i := len(s.rules) - 1; i >= 0; i-- {
		if s.rules[i].Link == link {
			s.drop(i)
		}
	}
	s.links = slices.DeleteFunc(s.links, func(l string) bool { return l == link })
	delete(s.injectors, link)
}

// Injector returns the injector of a direction (Up or Down) of a link, or nil if the link is
// unknown. It returns the same injector as long as the link exists.
func (s *Set) Injector(link string, dir Dir) *Injector { return s.injectors[link][dir] }

// Name makes the IDs of rules that have none begin with a prefix, so that those of several sets differ.
func (s *Set) Name(prefix string) { s.prefix = prefix }

// Add installs a rule and returns it with its ID. A rule without an ID is called "f1" if it is the
// first one added to an empty plan, and so on. Errors are *RuleError or wrap ErrUnknownLink,
// ErrDuplicateID, ErrTooMany or ErrNotOnLink.
func (s *Set) Add(now clock.Time, r Rule) (Rule, error) {
	if err := r.Validate(); err != nil {
		return r, err
	}
	if s.injectors[r.Link] == nil {
		return r, fmt.Errorf("%w %.60q; %sthere are %s", ErrUnknownLink, r.Link, nearest.Meant(r.Link, s.links), strings.Join(s.links, ", "))
	}
	if r.Kind == Tear {
		return r, ErrNotOnLink
	}
	if s.forget(now) >= maxRules {
		return r, fmt.Errorf("%w: %d are active; heal some", ErrTooMany, maxRules)
	}
	if s.find(r.ID) >= 0 {
		return r, fmt.Errorf("%w: %q", ErrDuplicateID, r.ID)
	}
	for s.counter++; r.ID == ""; s.counter++ {
		if id := s.prefix + "f" + strconv.Itoa(s.counter); s.find(id) < 0 { // a rule that the user has named may have this name
			r.ID = id
			break
		}
	}
	r.Dir = cmp.Or(r.Dir, Both)
	until := clock.Never
	if r.For > 0 {
		until = now.Add(r.For)
	}
	for _, in := range s.injectors[r.Link] {
		in.Add(now, r)
	}
	s.rules = append(s.rules, setRule{r, until})
	return r, nil
}

// Replace installs a rule in the place of others: of the rule with its ID or, if it has none, of the
// rules of its kind, link and directions. The rule takes the ID of the first rule that it replaces. If
// there is nothing to replace, Replace is Add. After an error the other rules are still there.
func (s *Set) Replace(now clock.Time, r Rule) (Rule, error) {
	if err := r.Validate(); err != nil {
		return r, err
	}
	r.Dir = cmp.Or(r.Dir, Both)
	if s.injectors[r.Link] == nil || r.Kind == Tear {
		return s.Add(now, r) // which says what is wrong
	}
	replaced := func(o *Rule) bool { return o.ID == r.ID }
	if r.ID == "" {
		replaced = func(o *Rule) bool { return o.Kind == r.Kind && o.Link == r.Link && o.Dir == r.Dir }
	}
	id, counter, found := r.ID, s.counter, false
	for i := 0; i < len(s.rules); {
		if !replaced(&s.rules[i].Rule) {
			i++
			continue
		}
		if !found {
			id, found = s.rules[i].ID, true
		}
		s.drop(i)
	}
	if r.ID = id; found {
		s.counter = counter - 1 // Add counts a rule, and this one was counted already
	}
	return s.Add(now, r)
}

// Remove removes a rule. The error wraps ErrUnknownRule.
func (s *Set) Remove(id string) error {
	i := s.find(id)
	if i < 0 {
		return fmt.Errorf("%w %q", ErrUnknownRule, id)
	}
	s.drop(i)
	return nil
}

// Heal removes the rules of a link, or of all links if link is "". It returns how many of them were
// active. The error wraps ErrUnknownLink.
func (s *Set) Heal(now clock.Time, link string) (int, error) {
	if link != "" && s.injectors[link] == nil {
		return 0, fmt.Errorf("%w %.60q; %sthere are %s", ErrUnknownLink, link, nearest.Meant(link, s.links), strings.Join(s.links, ", "))
	}
	active := 0
	for i := len(s.rules) - 1; i >= 0; i-- {
		if link != "" && s.rules[i].Link != link {
			continue
		}
		if s.status(now, &s.rules[i]).State == Active {
			active++
		}
		s.drop(i)
	}
	return active, nil
}

// List returns all rules in the order of their installation, including ended ones.
func (s *Set) List(now clock.Time) []Status {
	out := make([]Status, len(s.rules))
	for i := range s.rules {
		out[i] = s.status(now, &s.rules[i])
	}
	return out
}

func (s *Set) status(now clock.Time, r *setRule) Status {
	st := Status{Rule: r.Rule, State: Active}
	up, down := s.injectors[r.Link][Up].state(r.ID), s.injectors[r.Link][Down].state(r.ID)
	over := true
	if up != nil {
		st.HitsUp, over = up.hits, up.over
	}
	if down != nil {
		st.HitsDown, over = down.hits, over && down.over
	}
	st.Hits = st.HitsUp + st.HitsDown
	switch {
	case over:
		st.State = Spent
	case now >= r.until:
		st.State = Expired
	case r.until != clock.Never:
		st.Remaining = r.until.Sub(now)
	}
	return st
}

func (s *Set) find(id string) int {
	return slices.IndexFunc(s.rules, func(r setRule) bool { return r.ID == id })
}

func (s *Set) drop(i int) {
	for _, in := range s.injectors[s.rules[i].Link] {
		in.Remove(s.rules[i].ID)
	}
	s.rules = slices.Delete(s.rules, i, i+1)
	if len(s.rules) == 0 {
		s.counter = 0 // IDs begin at f1 again, so that the same rules get the same IDs and give the same faults again
	}
}

// forget removes the oldest ended rules beyond maxFinished and returns the number of active rules.
func (s *Set) forget(now clock.Time) (active int) {
	finished := 0
	for i := len(s.rules) - 1; i >= 0; i-- {
		if s.status(now, &s.rules[i]).State == Active {
			active++
		} else if finished++; finished > maxFinished {
			s.drop(i)
		}
	}
	return active
}

func (s *Set) Rule(id string) (Rule, bool) {
	if i := s.find(id); i >= 0 {
		return s.rules[i].Rule, true
	}
	return Rule{}, false
}
