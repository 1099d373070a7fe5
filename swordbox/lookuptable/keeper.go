package lookuptable

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// table returns the table of a rule.
func (m *Machine) table(rule string) (*Table, error) {
	for _, t := range m.tables {
		if t.id == rule {
			return t, nil
		}
	}
	return nil, fmt.Errorf("rule %.40s has no table, because its server or the servers in %s are no hosts of the rack", rule, keyTable)
}

// Change begins to change entries, as many as there is room for. If one of them is wrong, none
// changes.
func (m *Machine) Change(c *pipeline.Ctx, in handler.Entries, address func(string) (netip.Addr, error)) (out handler.EntriesReport, err error) {
	t, err := m.table(in.Rule)
	if err != nil {
		return out, err
	}
	list := make([]Entry, len(in.Entries))
	for i, text := range in.Entries {
		if list[i], err = ParseEntry(text, t.Flow, address, m.port); err != nil {
			return out, err
		}
	}
	for i := range list {
		if !t.change(&list[i], in.Remove) {
			break
		}
		out.Taken++
	}
	for _, l := range t.links {
		l.srv.Work(c)
		if !l.srv.Up() {
			out.Down = fmt.Sprintf("%v: %s", l.Key().Server, l.Why())
		}
	}
	out.Waiting, out.Why = t.waiting(), t.why
	out.Written, out.Removed, out.Refused = t.stats.Written, t.stats.Removed, t.stats.Refused
	return out, nil
}

// change begins to change an entry. It returns false if too many changes wait.
func (t *Table) change(e *Entry, remove bool) bool {
	h := e.Key.Hash()
	server, _ := t.Place(h)
	return t.links[server].srv.Change(e, h, remove)
}

// Page returns entries from slot `from` of a server on.
func (m *Machine) Page(c *pipeline.Ctx, rule string, server, from int) (out handler.EntriesPage, err error) {
	t, err := m.table(rule)
	switch {
	case err != nil:
		return out, err
	case server < 0 || server >= len(t.links) || from < 0 || from >= t.Slots():
		return out, fmt.Errorf("slot %d of server %d: the rule has %d servers with %d slots", from, server, len(t.links), t.Slots())
	}
	l := t.links[server]
	if !l.srv.Up() {
		return out, fmt.Errorf("there is no connection to %v: %s", l.Key().Server, l.Why())
	}
	p := l.srv.Page()
	if p == nil || p.From != from {
		l.srv.Scan(from)
		l.srv.Work(c)
		return out, nil
	}
	out = handler.EntriesPage{Ready: true, Server: server, From: p.Next}
	for i := range p.Entries {
		out.Entries = append(out.Entries, p.Entries[i].String())
	}
	if p.Next >= t.Slots() {
		out.Server, out.From, out.End = server+1, 0, server+1 == len(t.links)
	}
	return out, nil
}
