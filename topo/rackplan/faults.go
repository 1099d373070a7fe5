package rackplan

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// cutTag returns the name in a JSON tag.
func cutTag(tag string) (name, options string, found bool) { return strings.Cut(tag, ",") }

// faults plans which of the declared faults end and begin. It gives the faults of target their IDs: a
// fault without a name in the file that is installed already keeps its ID, and a new one gets an ID
// that no installed fault has. It returns the declared faults that stay.
//
// declared are the faults of the running rack's description. One that is not installed any more, because
// an operator has healed it, is installed again.
func (p *Plan) faults(now Running, target *rackfile.Rack) (stay []fault.Rule) {
	declared := fault.Named(now.Rack.Faults)
	installed := func(r fault.Rule) bool {
		return r.Kind == fault.Tear || slices.ContainsFunc(now.Faults, func(f fault.Rule) bool { return f.ID == r.ID && same(f, r) })
	}
	used := make([]bool, len(declared))
	find := func(of func(fault.Rule) bool) int {
		for i, d := range declared {
			if !used[i] && of(d) {
				used[i] = true
				return i
			}
		}
		return -1
	}
	was := make([]int, len(target.Faults)) // index of the declared fault that a fault of the target was
	for i, want := range target.Faults {
		was[i] = -1
		if want.ID != "" {
			was[i] = find(func(d fault.Rule) bool { return d.ID == want.ID })
		}
	}
	for i, want := range target.Faults {
		if want.ID == "" {
			was[i] = find(func(d fault.Rule) bool { return same(d, want) })
			if was[i] >= 0 {
				target.Faults[i].ID = declared[was[i]].ID
			}
		}
	}
	p.name(now, declared, target)
	for i, d := range declared {
		if !used[i] {
			if !slices.ContainsFunc(target.Faults, func(f fault.Rule) bool { return f.ID == d.ID }) {
				p.add(Remove, "fault "+d.ID, "%s", d)
			}
			p.end(now, d)
		}
	}
	for i, want := range target.Faults {
		switch d := was[i]; {
		case d >= 0 && same(declared[d], want) && installed(declared[d]):
			stay = append(stay, want)
		case d >= 0 && !same(declared[d], want):
			p.add(Modify, "fault "+want.ID, "%s -> %s", declared[d], want)
			p.end(now, declared[d])
			p.FaultsIn = append(p.FaultsIn, want)
		default:
			if at := slices.IndexFunc(now.Faults, func(f fault.Rule) bool { return f.ID == want.ID }); at >= 0 { // an operator has injected it
				p.add(Modify, "fault "+want.ID, "%s, which is not in the rack's file -> %s", now.Faults[at], want)
				p.FaultsOut = append(p.FaultsOut, now.Faults[at])
			} else {
				p.add(Add, "fault "+want.ID, "%s", want)
			}
			p.FaultsIn = append(p.FaultsIn, want)
		}
	}
	return stay
}

// end plans the end of a declared fault, if it is installed.
func (p *Plan) end(now Running, d fault.Rule) {
	if d.Kind == fault.Tear || slices.ContainsFunc(now.Faults, func(f fault.Rule) bool { return f.ID == d.ID }) {
		p.FaultsOut = append(p.FaultsOut, d)
	}
}

// name gives an ID to each fault of target that has none.
func (p *Plan) name(now Running, declared []fault.Rule, target *rackfile.Rack) {
	taken := func(id string) bool {
		is := func(f fault.Rule) bool { return f.ID == id }
		return slices.ContainsFunc(now.Faults, is) || slices.ContainsFunc(declared, is) || slices.ContainsFunc(target.Faults, is)
	}
	for i := range target.Faults {
		for n := 1; target.Faults[i].ID == ""; n++ {
			if id := "f" + strconv.Itoa(n); !taken(id) {
				target.Faults[i].ID = id
			}
		}
	}
}

// renew plans the faults again that go with a host which is made again. stay are the declared faults
// that would stay otherwise.
func (p *Plan) renew(stay []fault.Rule) {
	for _, f := range stay {
		if contains(p.HostsOut, f.Link) {
			p.FaultsIn = append(p.FaultsIn, f)
		}
	}
	// The faults of a host that goes end with its link.
	p.FaultsOut = slices.DeleteFunc(p.FaultsOut, func(f fault.Rule) bool { return contains(p.HostsOut, f.Link) })
}

// same reports whether two faults do the same, whatever their IDs are.
func same(a, b fault.Rule) bool {
	a.ID, b.ID = "", ""
	a.Dir, b.Dir = cmp.Or(a.Dir, fault.Both), cmp.Or(b.Dir, fault.Both)
	return reflect.DeepEqual(a, b)
}
