package hard

import (
	"reflect"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/hard/shared"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/words"
)

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Info describes the present state for an operator.
func (m *Machine) Info(now clock.Time) mode.Info {
	info := mode.Info{Mode: rules.Hard, Counters: m.counters()}
	for _, s := range m.servers {
		for _, l := range s.links {
			info.Shared = append(info.Shared, l.info(now))
		}
	}
	for _, l := range m.lanes {
		if l != nil && !l.closed && l.moved > 0 {
			info.Rows = append(info.Rows, l.info())
		}
	}
	m.words.Each(func(w *words.Word) bool {
		info.Words = append(info.Words, mode.Word{
			Server: m.servers[w.Server].addr, VA: w.VA, State: w.State.String(), Value: w.Value, Epoch: w.Epoch, Pending: w.Pending,
		})
		return true
	})
	return info
}

func (m *Machine) counters() []mode.Counter {
	var list []mode.Counter
	add := func(v reflect.Value, prefix string) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Tag.Get("name")
			if name != "" && v.Field(i).CanUint() {
				list = append(list, mode.Counter{
					Name: prefix + name, Value: v.Field(i).Uint(), Help: v.Type().Field(i).Tag.Get("help"),
				})
			}
		}
	}
	add(reflect.ValueOf(m.stats), "")
	add(reflect.ValueOf(m.words.Counters()), "")
	var sum shared.Stats
	for _, s := range m.servers {
		for _, l := range s.links {
			sum.Add(l.conn.Stats())
		}
	}
	add(reflect.ValueOf(sum), "shared_")
	return append(list, mode.Counter{Name: "held_now", Value: uint64(m.held.inUse), Help: "requests that are held now"})
}

func (l *lane) info() mode.Row {
	state := "own"
	switch {
	case l.dead:
		state = "dead"
	case l.held.n > 0:
		state = "waiting"
	case l.place != placeOwn:
		state = "shared"
	}
	outstanding := l.window.outstanding() + l.held.n
	if d := wire.Diff(l.psns.own, l.acked); d > 0 && l.window.outstanding() == 0 {
		outstanding += int(d)
	}
	return mode.Row{
		ID: l.row.ID, Client: l.row.Requester, Server: l.row.Responder, ServerQPN: l.row.RespQPN,
		Moved: l.moved, Outstanding: outstanding, Shift: int(l.psns.shift()), State: state,
	}
}

func (k *link) info(now clock.Time) mode.Shared {
	link := k.conn.Link()
	s := mode.Shared{
		Server: k.s.addr, Shard: k.shard, Owner: link.Own(), OwnQPN: link.OwnQPN, ServerQPN: link.To.DestQP,
		State: k.conn.State().String(), NextPSN: k.conn.NextPSN(), Ring: k.conn.Ring(), Outstanding: k.conn.Outstanding(),
		Queued: k.conn.Queued(), Retries: k.conn.Tries(),
	}
	k.conn.Each(func(t shared.Tag, psn wire.PSN, op wire.Opcode, since clock.Time) {
		l := k.s.m.laneByTag(t)
		if l == nil {
			return
		}
		if s.Waits == nil {
			w := &mode.Wait{
				PSN: psn, Age: now.Sub(since), Client: l.client, ClientQPN: l.clientQPN, ClientPSN: t.PSN, Op: op.String(),
			}
			if r := l.window.find(t.PSN); r != nil && r.op != op {
				w.Op = r.op.String() + "→" + op.String()
			}
			s.Waits = w
		}
		for i := range s.Waiters {
			if w := &s.Waiters[i]; w.Client == l.client && w.QPN == l.clientQPN {
				w.Entries++
				return
			}
		}
		s.Waiters = append(s.Waiters, mode.Waiter{Client: l.client, QPN: l.clientQPN, Entries: 1})
	})
	return s
}

// Spec declares the tables and registers that the machine would take of a switch, with its present bounds.
func (m *Machine) Spec() ([]pipeline.TableSpec, []pipeline.RegisterSpec) {
	ring, waiting := m.cfg.Shared.Bounds()
	const copyBits = 8 * 128 // headers from the BTH on, and a small payload
	tables := []pipeline.TableSpec{
		{Name: "words", KeyBits: 16 + 64, ValueBits: 3 + 64 + 32 + 32 + 16, Entries: max(m.cfg.Words.Max, 1<<16)},
		{Name: "keys", KeyBits: 32 + 2, ValueBits: 2 * 64, Entries: maxKeys},
	}
	return tables, []pipeline.RegisterSpec{
		{Name: "row next, acked, shift, msn", Width: 4 * 24, Entries: rowsOfSpec},
		{Name: "segments", Width: 2*24 + 1, Entries: rowsOfSpec * m.cfg.Segments},
		{Name: "completed window", Width: 24 + 8 + 64, Entries: rowsOfSpec * m.cfg.Window},
		{Name: "shared ring", Width: 24 + 24 + 12 + copyBits, Entries: ring},
		{Name: "shared waiting", Width: 24 + 12 + copyBits, Entries: waiting},
		{Name: "held packets", Width: 8 * 1100, Entries: m.cfg.Held},
	}
}

// rowsOfSpec is the number of connections that the declared sizes are for.
const rowsOfSpec = 4096
