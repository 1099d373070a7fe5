package paper

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// Machine serialises the requests under rules of mode paper. Make one with New.
type Machine struct {
	servers map[netip.Addr]*server
	order   []*server // of their appearance
	stats   Stats

	// Of the current step.
	payload [rewrite.WordLen]byte
	tx      wire.Frame
	acks    []ack
}

// server is a memory server: whose connections are borrowed, and what its words are believed to hold.
type server struct {
	addr netip.Addr
	// shared are the clients whose connections are borrowed, by shard; nil where nobody was seen yet.
	shared  []*client
	clients []*client
	words   map[uint64]*word
}

// Stats counts what a Machine did.
type Stats struct {
	Joined        uint64 `name:"joined"`
	Moved         uint64 `name:"moved"`
	Replaced      uint64 `name:"replaced"`
	Failed        uint64 `name:"replaced_failing"`
	PassedThrough uint64 `name:"atomics_passed"`
	Retransmitted uint64 `name:"retransmitted"`
	// Forgotten are retransmissions that no map entry is left for, or never was.
	Forgotten uint64 `name:"forgotten"`
	// Overwritten are open map entries whose place was used again.
	Overwritten uint64 `name:"overwritten"`
	Answers     uint64 `name:"answers"`
	AcksSplit   uint64 `name:"acks_split"`
	// Broadcast are sequence NAKs of servers, Naks those that clients got.
	Broadcast uint64 `name:"nak_broadcasts"`
	Naks      uint64 `name:"naks_sent"`
	Fatal     uint64 `name:"fatal_naks"`
	Strays    uint64 `name:"strays"`
}

// ReasonForgotten is that a retransmission has no map entry.
const ReasonForgotten pipeline.Reason = "no map entry"

var _ mode.Machine = (*Machine)(nil)

// New makes a Machine.
func New() *Machine { return &Machine{servers: make(map[netip.Addr]*server)} }

// server finds or makes the server of an address.
func (m *Machine) server(a netip.Addr) *server {
	s := m.servers[a]
	if s == nil {
		s = &server{addr: a, words: make(map[uint64]*word)}
		m.servers[a] = s
		m.order = append(m.order, s)
	}
	return s
}

// join makes a client of a row, when nothing of it is in flight: what was sent before has no map entry.
func (m *Machine) join(r *conntrack.Row, s *server, psn wire.PSN) *client {
	c := &client{
		row: r, server: s, owner: r.Requester, qpn: r.ReqQPN, serverQPN: r.RespQPN,
		in: psn.Add(-1), first: psn, out: psn.Add(-1),
	}
	s.clients = append(s.clients, c)
	r.Ext, r.Pinned = c, true
	m.stats.Joined++
	return c
}

// clientOf is the client of a row; nil if it has not joined.
func clientOf(r *conntrack.Row) *client {
	c, ok := r.Ext.(*client)
	if !ok || c.closed {
		return nil
	}
	return c
}

// borrow is the connection for a word: each shard has that of one client, of those that were there first (hole 4).
func (s *server) borrow(va uint64, shards int) *client {
	for len(s.shared) < shards {
		s.shared = append(s.shared, nil)
	}
	i := int(va / rewrite.WordLen % uint64(shards))
	if s.shared[i] == nil || s.shared[i].closed {
		s.shared[i] = s.clients[i%len(s.clients)]
	}
	return s.shared[i]
}

// Closed says that a row has ended. If its connection was borrowed, whoever has requests on it is not helped (hole 4), and
// if its request is the one that a server waits for, nobody sends it again (hole 1).
func (m *Machine) Closed(_ *pipeline.Ctx, r *conntrack.Row) {
	c := clientOf(r)
	if c == nil {
		return
	}
	c.closed, c.path = true, r.Path
	list := c.server.clients
	for i := range list {
		if list[i] == c {
			c.server.clients = append(list[:i], list[i+1:]...)
			break
		}
	}
}

// Owned has nothing to do: the switch has no connections of its own.
func (m *Machine) Owned(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Drop("not for the switch")
}

// Tick has nothing to do: nothing is sent again by the switch (hole 1).
func (m *Machine) Tick(*pipeline.Ctx) {}

// Deadline is never.
func (m *Machine) Deadline() clock.Time { return clock.Never }
