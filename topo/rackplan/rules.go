package rackplan

import (
	"cmp"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// rules plans the program and the rules of the switch.
func (p *Plan) rules(now Running, target *rackfile.Rack) {
	before, after := cmp.Or(now.Program, rackfile.ProgramForward), cmp.Or(target.Switch.Program, rackfile.ProgramForward)
	if before != after {
		p.Switch = true
		p.add(Modify, "switch", "program %s -> %s", before, after)
	}
	texts := func(list []rules.Rule) (out []string) {
		for i := range list {
			out = append(out, list[i].Server.String()+" "+list[i].String()) // a server may be made again with other addresses
		}
		return out
	}
	was, want := texts(now.Rules), texts(target.Switch.Rules)
	if slices.Equal(was, want) {
		return
	}
	p.Switch = true
	lines := len(p.Changes)
	byID := func(list []rules.Rule, id string) *rules.Rule {
		if i := slices.IndexFunc(list, func(r rules.Rule) bool { return r.ID == id }); i >= 0 {
			return &list[i]
		}
		return nil
	}
	for i := range now.Rules {
		if r := &now.Rules[i]; byID(target.Switch.Rules, r.ID) == nil {
			p.add(Remove, "rule "+r.ID, "%s", r)
		}
	}
	for i := range target.Switch.Rules {
		r := &target.Switch.Rules[i]
		switch b := byID(now.Rules, r.ID); {
		case b == nil:
			p.add(Add, "rule "+r.ID, "%s", r)
		case b.String() != r.String():
			p.add(Modify, "rule "+r.ID, "%s -> %s", b, r)
		}
	}
	if len(p.Changes) == lines {
		p.add(Modify, "rules", "their order, or the addresses of a server")
	}
}
