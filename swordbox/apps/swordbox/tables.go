package swordbox

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// tables are the tables that handlers keep for rules.
type tables struct {
	rules *rules.Set
	parts *parts
}

func (p *Program) tables() tables { return tables{p.rules, &p.parts} }

// keeper returns the handler that keeps the table of the rule id.
func (t tables) keeper(id string) (handler.Keeper, error) {
	list := t.rules.All()
	for i := range list {
		r := &list[i]
		if r.ID != id {
			continue
		}
		if k, ok := t.parts.machineFor(r).(handler.Keeper); ok {
			return k, nil
		}
		return nil, handler.Refused(fmt.Errorf("rule %s has action %v; only rules of action lookup have entries", id, r.Action))
	}
	return nil, handler.Gone(fmt.Errorf("there is no rule %.40q; `rdmalab switch rules` lists them", id))
}

// entries handles a request that adds entries to a table, or removes them.
func (t tables) entries(c *handler.Call) (any, error) {
	var in handler.Entries
	if err := c.Body(&in); err != nil {
		return nil, err
	}
	var out handler.EntriesReport
	var err error
	c.Step(func(ctx *pipeline.Ctx) { out, err = t.change(ctx, in, c.Address) })
	return out, err
}

// change is Program.ChangeEntries.
func (t tables) change(c *pipeline.Ctx, in handler.Entries, address func(string) (netip.Addr, error)) (handler.EntriesReport, error) {
	k, err := t.keeper(in.Rule)
	if err != nil {
		return handler.EntriesReport{}, err
	}
	out, err := k.Change(c, in, address)
	return out, handler.Refused(err)
}

// page handles a request for a part of a table.
func (t tables) page(c *handler.Call) (any, error) {
	var in handler.EntriesRange
	if err := c.Body(&in); err != nil {
		return nil, err
	}
	k, err := t.keeper(in.Rule)
	if err != nil {
		return nil, err
	}
	var out handler.EntriesPage
	c.Step(func(ctx *pipeline.Ctx) { out, err = k.Page(ctx, in.Rule, in.Server, in.From) })
	return out, handler.Refused(err)
}

// ChangeEntries begins to write or remove entries in the table of rule in.Rule, as many as there is
// room for, and does not wait until that has ended. The report says how many of these entries were
// taken; its other counts include earlier changes of the table. address returns the address of the
// host with a name.
func (p *Program) ChangeEntries(c *pipeline.Ctx, in handler.Entries, address func(string) (netip.Addr, error)) (handler.EntriesReport, error) {
	return p.tables().change(c, in, address)
}
