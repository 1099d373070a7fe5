package rules

import (
	"fmt"
	"net/netip"
	"slices"
)

// Memory is memory that servers lend to the switch for the state of a rule. In each server's region
// it takes the bytes from offset From to offset To, To excluded.
type Memory struct {
	// Servers are the addresses of the servers; nil means that the rule needs no memory. Service is
	// the service that lends it.
	Servers  []netip.Addr
	Service  string
	From, To uint64
	// Key names the key by which a rule sets From; errors about overlaps name it.
	Key string
}

func (m *Memory) overlaps(o *Memory) bool {
	return m.Service == o.Service && m.From < o.To && o.From < m.To &&
		slices.ContainsFunc(m.Servers, func(a netip.Addr) bool { return slices.Contains(o.Servers, a) })
}

// apart returns an error if rules of different actions need the same memory. The rules of one
// action are compared by Definition.Together.
func (s *Set) apart() error {
	list := make([]Memory, len(s.rules))
	for i := range s.rules {
		r := &s.rules[i]
		of := r.Action.Definition().Memory
		if of == nil {
			continue
		}
		list[i] = of(r)
		for j := range s.rules[:i] {
			if q := &s.rules[j]; q.Action != r.Action && list[i].overlaps(&list[j]) {
				return fmt.Errorf("rules %s and %s need the same memory of a server; give one of them another place, for example rule %s %s=%#x", q.ID, r.ID, r.ID, list[i].Key, list[j].To)
			}
		}
	}
	return nil
}
