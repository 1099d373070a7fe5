package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
)

// Set is an immutable list of rules, compiled for lookup. At most two rules apply to a request: the
// first matching one that observes, and the first matching one that does not. A nil Set is empty.
type Set struct {
	rules []Rule
	// byServer holds the rules that decide about requests, and observing those that only observe
	// requests; both by the address of the server.
	byServer, observing map[netip.Addr][]*Rule
}

// NewSet compiles rules. It gives an ID to each rule that has none. The error says which rule is
// wrong, why, and what to do.
func NewSet(list []Rule) (*Set, error) {
	s, err := StoredSet(list)
	if err == nil {
		err = s.apart()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// StoredSet does what NewSet does for rules that a switch has stored, but accepts rules of
// different actions that need the same memory. Earlier versions accepted such rules. The switch
// must start with them, so that an operator can change them.
func StoredSet(list []Rule) (*Set, error) {
	if len(list) > MaxRules {
		return nil, fmt.Errorf("%d rules; at most %d are allowed", len(list), MaxRules)
	}
	s := &Set{rules: slices.Clone(list), byServer: make(map[netip.Addr][]*Rule), observing: make(map[netip.Addr][]*Rule)}
	s.name()
	for i := range s.rules {
		r := &s.rules[i]
		if err := r.Validate(); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		for j := range s.rules[:i] {
			if err := s.rules[j].admits(r); err != nil {
				return nil, fmt.Errorf("rule %s: %w", r.ID, err)
			}
		}
		for _, a := range append([]netip.Addr{r.Server}, r.Also...) {
			switch {
			case r.Queues(): // requests match no such rule
			case r.Observes():
				s.observing[a] = append(s.observing[a], r)
			default:
				s.byServer[a] = append(s.byServer[a], r)
			}
		}
	}
	if err := s.together(); err != nil {
		return nil, err
	}
	return s, nil
}

// name gives an ID to each rule that has none: r1, r2 and so on, without those that are taken.
func (s *Set) name() {
	n := 0
	for i := range s.rules {
		for s.rules[i].ID == "" {
			n++
			id := "r" + strconv.Itoa(n)
			if s.Get(id) == nil {
				s.rules[i].ID = id
			}
		}
	}
}

// All lists the rules in their order. The caller must not change them.
func (s *Set) All() []Rule {
	if s == nil {
		return nil
	}
	return s.rules
}

// Get returns the rule with an ID; nil if there is none.
func (s *Set) Get(id string) *Rule {
	list := s.All()
	for i := range list {
		if list[i].ID == id {
			return &list[i]
		}
	}
	return nil
}

// Lookup returns the rules that decide about requests to a server, in order. server is any address
// of the server. The caller must not change them.
func (s *Set) Lookup(server netip.Addr) []*Rule {
	if s == nil {
		return nil
	}
	return s.byServer[server]
}

// Observing returns the rules that observe requests to a server, in order. The caller must not
// change them.
func (s *Set) Observing(server netip.Addr) []*Rule {
	if s == nil {
		return nil
	}
	return s.observing[server]
}

// First returns the first rule of list that matches a request for n bytes at va under rkey; nil if
// none does. It allocates nothing.
func First(list []*Rule, va uint64, n int, rkey uint32) *Rule {
	for _, r := range list {
		if (r.RKey == 0 || r.RKey == rkey) && r.Covers(va, n) {
			return r
		}
	}
	return nil
}

// Add returns a set with r added as the last rule, and the added rule with its ID.
func (s *Set) Add(r Rule) (*Set, *Rule, error) { return s.insert(len(s.All()), r) }

// AddFirst returns a set with r added as the first rule, and the added rule with its ID.
func (s *Set) AddFirst(r Rule) (*Set, *Rule, error) { return s.insert(0, r) }

func (s *Set) insert(at int, r Rule) (*Set, *Rule, error) {
	if r.ID != "" && s.Get(r.ID) != nil {
		return nil, nil, fmt.Errorf("rule %s exists already; remove it first, or choose another id", r.ID)
	}
	t, err := NewSet(slices.Insert(slices.Clone(s.All()), at, r))
	if err != nil {
		return nil, nil, err
	}
	return t, &t.rules[at], nil
}

// Remove returns a set without the rule whose ID is id.
func (s *Set) Remove(id string) (*Set, error) {
	if s.Get(id) == nil {
		return nil, fmt.Errorf("there is no rule %.40q; there are %v", id, s.ids())
	}
	return StoredSet(slices.DeleteFunc(slices.Clone(s.All()), func(r Rule) bool { return r.ID == id }))
}

func (s *Set) ids() []string {
	var out []string
	for _, r := range s.All() {
		out = append(out, r.ID)
	}
	return out
}
