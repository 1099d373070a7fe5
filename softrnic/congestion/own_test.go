package congestion

import (
	"slices"
	"testing"
)

// A registered algorithm is one of the list, is valid in parameters, and controls flows.
func TestRegisteredAlgorithm(t *testing.T) {
	half := int64(500_000_000)
	remove := Register("half", func(*Params) Controller { return NewFixed(&half) })
	defer remove()
	p, _ := Profile(ProfilePaper, 1_000_000_000)
	p.Algorithm = "half"
	if err := p.Validate(); err != nil || !slices.Contains(Algorithms(), "half") {
		t.Fatalf("%v, %v", err, Algorithms())
	}
	c := Config{Params: p}
	if s := c.NewFlow().State(0); s.Rate != half {
		t.Errorf("rate %d", s.Rate)
	}
	remove()
	if err := p.Validate(); err == nil {
		t.Error("a removed algorithm is valid")
	}
}

// Names that are taken or are no names, and a nil function, are refused.
func TestRegisterRefusesNames(t *testing.T) {
	fixed := func(p *Params) Controller { return NewFixed(&p.MaxRate) }
	for name, of := range map[string]func(*Params) Controller{AlgorithmDCQCN: fixed, AlgorithmNone: fixed, ProfilePaper: fixed, "any": fixed, "": fixed, "a b": fixed, "New": fixed, "new": nil} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q was registered", name)
				}
			}()
			Register(name, of)
		}()
	}
}
