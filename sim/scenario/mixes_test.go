package scenario

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	tree "github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// Each mix has an effect: a property that the plans with this mix have, and few of those without
// it.
func TestEveryMixIsInThePlan(t *testing.T) {
	late := func(rules []fault.Rule) bool {
		return slices.ContainsFunc(rules, func(r fault.Rule) bool { return r.Kind == fault.Reorder && r.Delay >= time.Millisecond })
	}
	mixHas(t, storeMixes, storePlanOf, map[string]func(*storePlan) bool{
		"sizes":     func(p *storePlan) bool { return len(p.sizes) > 1 },
		"wear":      func(p *storePlan) bool { return p.region <= 2<<10 && p.clients*p.rounds > 5000 },
		"keys":      func(p *storePlan) bool { return p.keys > 8 },
		"format":    func(p *storePlan) bool { return p.format != layout.Hardened },
		"late":      func(p *storePlan) bool { return late(p.rules) && p.params.RetryCount > 0 },
		"lazy":      func(p *storePlan) bool { return p.lazy },
		"turns":     func(p *storePlan) bool { return p.turns },
		"chase":     func(p *storePlan) bool { return p.chase },
		"cache":     func(p *storePlan) bool { return p.caches },
		"merge":     func(p *storePlan) bool { return p.merged },
		"balance":   func(p *storePlan) bool { return p.balance },
		"spread":    func(p *storePlan) bool { return p.spread },
		"crowd":     func(p *storePlan) bool { return p.keys <= 2 && p.clients >= 6 },
		mixServices: func(p *storePlan) bool { return p.what == storeServiceHang && p.newcomers > 0 && len(p.then) == 0 },
		mixRules:    func(p *storePlan) bool { return len(p.rests) > 0 },
		"faults":    func(p *storePlan) bool { return len(p.then) > 0 && p.pace > 0 },
		"hangs": func(p *storePlan) bool {
			return slices.ContainsFunc(p.faultList(), func(s *storeFaultAt) bool { return s.what >= storeHang })
		},
		"after": func(p *storePlan) bool {
			list := p.faultList()
			for i, s := range p.then {
				if s.later < list[i].down+2*p.lease {
					return false
				}
			}
			return len(p.then) > 0 && p.pace > 0
		},
	})
	mixHas(t, treeMixes, treePlanOf, map[string]func(*treePlan) bool{
		"sizes": func(p *treePlan) bool { return p.shape.Value%8 > 0 },
		"wear":  func(p *treePlan) bool { return p.small && p.region <= 16<<10+16*p.shape.Page },
		"keys":  func(p *treePlan) bool { return p.keys >= 90 && p.clients*p.rounds > p.keys },
		"format": func(p *treePlan) bool {
			return p.shape.Kind == tree.Published && !slices.ContainsFunc(p.rules, func(r fault.Rule) bool { return r.Kind == fault.Tear })
		},
		"late":   func(p *treePlan) bool { return late(p.rules) && p.params.RetryCount > 0 },
		"faults": func(p *treePlan) bool { return len(p.faults) > 1 && p.pace > 0 },
		"hangs": func(p *treePlan) bool {
			return p.pace > 0 && slices.Contains([]treeFault{treeClientHang, treeHostHang, treeServerHang, treeSwitchHang}, p.faults[0].what)
		},
		"after": func(p *treePlan) bool {
			return len(p.faults) > 1 && p.pace > 0 && !slices.ContainsFunc(p.faults[1:], func(s treeFaultAt) bool { return s.pause < p.lease })
		},
		"locks": func(p *treePlan) bool { return p.loses && p.faults[0].down > p.lease },
	})
}

func storePlanOf(seed uint64, mix string) *storePlan {
	e := newEnv(Scenario{}, seed, Options{})
	p := new(storePlan).draw(e)
	p.blend(e, mix)
	return p
}

func treePlanOf(seed uint64, mix string) *treePlan {
	e := newEnv(Scenario{}, seed, Options{})
	p := new(treePlan).draw(e)
	p.blend(e, mix)
	return p
}

func mixHas[P any](t *testing.T, list planMixes[P], plan func(uint64, string) P, has map[string]func(P) bool) {
	t.Helper()
	for _, m := range list {
		if has[m.name] == nil {
			t.Errorf("mix %s: nothing says what it does", m.name)
			continue
		}
		with, without := 0, 0
		const seeds = 50
		for seed := uint64(1); seed <= seeds; seed++ {
			if has[m.name](plan(seed, m.name)) {
				with++
			}
			if has[m.name](plan(seed, mixNone)) {
				without++
			}
		}
		if with < without+15 {
			t.Errorf("mix %s: %d of %d plans have what it is for, and %d without it", m.name, with, seeds, without)
		}
	}
}

// Every mix that can be combined with others is, and the plan names it.
func TestMixesComeTogether(t *testing.T) {
	for _, m := range treeMixes {
		if err := treeMixes.check(m.name); err != nil {
			t.Error(err)
		}
		for _, other := range treeMixes {
			if both := m.name + "," + other.name; m.name != other.name && treeMixes.check(both) == nil {
				if p := treePlanOf(3, both); !strings.Contains(p.mixes, m.name) || !strings.Contains(p.mixes, other.name) {
					t.Errorf("--mix %s makes %q", both, p.mixes)
				}
			}
		}
	}
	for _, wrong := range []string{"nothing", "sizes,", "wear,sizes", "sizes,wear", "locks,hangs"} {
		if treeMixes.check(wrong) == nil {
			t.Errorf("--mix %s is taken", wrong)
		}
	}
}
