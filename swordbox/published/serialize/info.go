package serialize

import (
	"cmp"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

func (m *Machine) Stats() Stats { return m.stats }

// Info describes the present state for an operator. If a connection makes no progress, Info names
// the PSN of the request for whose answer all clients of the connection wait.
func (m *Machine) Info(now clock.Time) handler.Info {
	info := handler.Info{Mode: rules.Published, Counters: handler.Counters("", m.stats)}
	for _, s := range m.order {
		for i, c := range s.shared {
			if c != nil {
				info.Shared = append(info.Shared, c.info(now, i))
			}
		}
		for _, c := range s.clients {
			if c.moved > 0 {
				info.Flows = append(info.Flows, handler.Flow{
					ID: c.flow.ID, Client: c.flow.Requester, Server: s.addr, ServerQPN: c.flow.RespQPN, Moved: c.moved,
					Outstanding: c.entries, Shift: int(wire.Diff(c.in, c.out)), State: "shared",
				})
			}
		}
		for _, w := range s.words {
			if w.known {
				info.Words = append(info.Words, handler.Word{Server: s.addr, VA: w.va, State: "known", Value: w.value})
			}
		}
	}
	slices.SortFunc(info.Words, func(a, b handler.Word) int {
		return cmp.Or(a.Server.Compare(b.Server), cmp.Compare(a.VA, b.VA))
	})
	return info
}

// info describes the connection of a client as a shared connection.
func (c *client) info(now clock.Time, shard int) handler.Shared {
	i := handler.Shared{
		Server: c.server.addr, Shard: shard, State: "open", NextPSN: c.out.Next(), Ring: ringSize,
		Owner: c.owner, OwnQPN: c.qpn, ServerQPN: c.serverQPN,
	}
	if c.closed {
		i.State = "dead"
	}
	var oldest *entry
	for n := c.opened.next(0); n < ringSize; n = c.opened.next(n + 1) {
		e := &c.ring[n]
		i.Outstanding++
		if oldest == nil || wire.Diff(e.at, oldest.at) < 0 {
			oldest = e
		}
		at := slices.IndexFunc(i.Waiters, func(w handler.Waiter) bool { return w.Client == e.from.owner && w.QPN == e.from.qpn })
		if at < 0 {
			at = len(i.Waiters)
			i.Waiters = append(i.Waiters, handler.Waiter{Client: e.from.owner, QPN: e.from.qpn})
		}
		i.Waiters[at].Entries++
	}
	if oldest != nil {
		i.Waits = &handler.Wait{
			PSN: oldest.at, Age: now.Sub(oldest.since), Client: oldest.from.owner, ClientQPN: oldest.from.qpn,
			ClientPSN: oldest.psn, Op: oldest.name(),
		}
	}
	slices.SortFunc(i.Waiters, func(a, b handler.Waiter) int {
		return cmp.Or(a.Client.Compare(b.Client), cmp.Compare(a.QPN, b.QPN))
	})
	return i
}

// name describes the operation of an entry, like "RC_CMP_SWAP→WRITE".
func (e *entry) name() string {
	if e.sentAs == replaced {
		return e.op.String() + "→WRITE"
	}
	return e.op.String()
}

// Spec declares the tables and registers that the machine would occupy on a switching chip: the two
// PSNs and the ring of map entries of each connection, the value of each word, and where each
// request was sent.
func (m *Machine) Spec() pipeline.Part {
	const connections = maxClients
	return pipeline.Part{
		Tables: []pipeline.TableSpec{
			// Two addresses, the queue pair and the UDP source port give the number of the client.
			{Name: "paper connections", KeyBits: 2*32 + 24 + 16, ValueBits: 9, Entries: connections, Learned: true},
			// Maps the server's number and the word's address to the value.
			{Name: "paper words", KeyBits: 16 + 61, ValueBits: 64 + 1, Entries: maxWords, Learned: true},
		},
		Registers: []pipeline.RegisterSpec{
			{Name: "paper incoming psn", Width: 24, Entries: connections},
			{Name: "paper outgoing psn", Width: 24, Entries: connections},
			// The client takes 9 bits, its PSN 24, the PSN on the connection 24, span 16, opcode
			// 8, open and replaced 2, value and prior 128.
			{Name: "paper map entries", Width: 211, Entries: connections * ringSize, Each: ringSize},
			// The client's PSN takes 24 bits, the connection 9, the PSN on that connection 24.
			{Name: "paper sent", Width: 57, Entries: connections * sentSize, Each: sentSize},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedPackets, What: "an answer to each request that one ACK covers, a NAK to each client", Count: ringSize},
			{Kind: pipeline.NeedICRC, What: "of renumbered requests and answers, and of WRITEs in place of atomics"},
		},
	}
}
