package swordbox

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// keeper returns the handler that keeps the table of the rule id.
func keeper(p *Program, id string) (handler.Keeper, error) {
	list := p.rules.All()
	for i := range list {
		r := &list[i]
		if r.ID != id {
			continue
		}
		if k, ok := p.parts.machineFor(r).(handler.Keeper); ok {
			return k, nil
		}
		return nil, handler.Refused(fmt.Errorf("rule %s has action %v; only rules of action lookup have entries", id, r.Action))
	}
	return nil, handler.Gone(fmt.Errorf("there is no rule %.40q; `rdmalab switch rules` lists them", id))
}

// entries changes the table of a rule.
func entries(p *Program, c *handler.Call) (any, error) {
	var in handler.Entries
	if err := c.Body(&in); err != nil {
		return nil, err
	}
	var out handler.EntriesReport
	var err error
	c.Step(func(ctx *pipeline.Ctx) { out, err = p.ChangeEntries(ctx, in, c.Address) })
	return out, err
}

// ChangeEntries begins to change entries of the table of a rule, and reports on all changes. address
// returns the address of a host by its name.
func (p *Program) ChangeEntries(c *pipeline.Ctx, in handler.Entries, address func(string) (netip.Addr, error)) (handler.EntriesReport, error) {
	k, err := keeper(p, in.Rule)
	if err != nil {
		return handler.EntriesReport{}, err
	}
	out, err := k.Change(c, in, address)
	return out, refused(err)
}

// page returns a part of the table of a rule.
func page(p *Program, c *handler.Call) (any, error) {
	var in handler.EntriesRange
	if err := c.Body(&in); err != nil {
		return nil, err
	}
	k, err := keeper(p, in.Rule)
	if err != nil {
		return nil, err
	}
	var out handler.EntriesPage
	c.Step(func(ctx *pipeline.Ctx) { out, err = k.Page(ctx, in.Rule, in.Server, in.From) })
	return out, refused(err)
}

func refused(err error) error {
	if err == nil {
		return nil
	}
	return handler.Refused(err)
}
