package paper

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Info describes the present state for an operator. Of a connection that stands still it names the PSN that everybody
// waits for.
func (m *Machine) Info(now clock.Time) mode.Info {
	info := mode.Info{Mode: rules.Paper}
	for _, s := range m.order {
		for i, c := range s.shared {
			if c != nil {
				info.Shared = append(info.Shared, c.info(now, i))
			}
		}
		for _, c := range s.clients {
			if c.moved > 0 {
				info.Rows = append(info.Rows, mode.Row{
					ID: c.row.ID, Client: c.row.Requester, Server: s.addr, ServerQPN: c.row.RespQPN, Moved: c.moved,
					Outstanding: c.entries, Shift: int(wire.Diff(c.in, c.out)), State: "shared",
				})
			}
		}
		for _, w := range s.words {
			if w.known {
				info.Words = append(info.Words, mode.Word{Server: s.addr, VA: w.va, State: "known", Value: w.value})
			}
		}
	}
	slices.SortFunc(info.Words, func(a, b mode.Word) int {
		return cmp.Or(a.Server.Compare(b.Server), cmp.Compare(a.VA, b.VA))
	})
	v := reflect.ValueOf(m.stats)
	for i := range v.NumField() {
		info.Counters = append(info.Counters, mode.Counter{
			Name: v.Type().Field(i).Tag.Get("name"), Value: v.Field(i).Uint(), Help: v.Type().Field(i).Tag.Get("help"),
		})
	}
	return info
}

// info describes the connection of a client as one that is lent.
func (c *client) info(now clock.Time, shard int) mode.Shared {
	i := mode.Shared{
		Server: c.server.addr, Shard: shard, State: "open", NextPSN: c.out.Next(), Ring: ringSize,
		Owner: c.owner, OwnQPN: c.qpn, ServerQPN: c.serverQPN,
	}
	if c.closed {
		i.State = "dead"
	}
	var oldest *entry
	for n := range c.ring {
		e := &c.ring[n]
		if !e.open {
			continue
		}
		i.Outstanding++
		if oldest == nil || wire.Diff(e.at, oldest.at) < 0 {
			oldest = e
		}
		at := slices.IndexFunc(i.Waiters, func(w mode.Waiter) bool { return w.Client == e.from.owner && w.QPN == e.from.qpn })
		if at < 0 {
			at = len(i.Waiters)
			i.Waiters = append(i.Waiters, mode.Waiter{Client: e.from.owner, QPN: e.from.qpn})
		}
		i.Waiters[at].Entries++
	}
	if oldest != nil {
		i.Waits = &mode.Wait{
			PSN: oldest.at, Age: now.Sub(oldest.since), Client: oldest.from.owner, ClientQPN: oldest.from.qpn,
			ClientPSN: oldest.psn, Op: oldest.name(),
		}
	}
	slices.SortFunc(i.Waiters, func(a, b mode.Waiter) int {
		return cmp.Or(a.Client.Compare(b.Client), cmp.Compare(a.QPN, b.QPN))
	})
	return i
}

// name says what an entry is, like "RC_CMP_SWAP→WRITE".
func (e *entry) name() string {
	if e.what == replaced {
		return e.op.String() + "→WRITE"
	}
	return e.op.String()
}

// Spec declares what the machine would take of a switch: per connection the two PSNs and the ring of map entries, per lock
// a word, per request where it went.
func (m *Machine) Spec() ([]pipeline.TableSpec, []pipeline.RegisterSpec) {
	const connections = 4096
	tables := []pipeline.TableSpec{
		// Server's number and word address to value.
		{Name: "paper words", KeyBits: 16 + 61, ValueBits: 64 + 1, Entries: maxWords},
	}
	return tables, []pipeline.RegisterSpec{
		{Name: "paper incoming psn", Width: 24, Entries: connections},
		{Name: "paper outgoing psn", Width: 24, Entries: connections},
		// Client 12, its PSN 24, own PSN 24, span 16, opcode 8, open and replaced 2, value and prior 128.
		{Name: "paper map entries", Width: 214, Entries: connections * ringSize},
		// PSN 24, connection 12, PSN there 24.
		{Name: "paper sent", Width: 60, Entries: connections * ringSize},
	}
}
