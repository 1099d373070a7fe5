package serialize

import (
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Machine serialises the requests under published rules. Make one with New.
type Machine struct {
	pipeline.NoTimer // the switch retransmits nothing (hole 1)

	rules   *rules.Set
	servers map[netip.Addr]*server
	order   []*server // the servers in the order of their first requests
	stats   Stats

	// Scratch memory of the current step.
	payload [transform.WordLen]byte
	tx      wire.Frame
	acks    []ack
}

// server is a memory server. It has the clients whose requests the machine serialises (see join)
// and whose flows have not ended, and the cached values of the server's words.
type server struct {
	addr netip.Addr
	// shared holds the client whose connection is borrowed, by shard; nil if no request of the
	// shard was seen yet.
	shared  []*client
	clients []*client
	// words has the cached values. rules is the text of the server's rules; when it changes, the
	// machine clears words.
	words map[uint64]*word
	rules string
}

// Stats counts what a Machine did.
type Stats struct {
	Joined uint64 `name:"joined" help:"clients' flows whose requests the switch has begun to serialise"`
	NoRoom uint64 `name:"not_joined" help:"requests that found no room for their client among those whose requests are serialised; they are forwarded as they are"`
	Moved  uint64 `name:"moved" help:"requests sent on the connection of another client"`
	// Replaced counts the replaced atomics.
	Replaced      uint64 `name:"replaced"`
	Failed        uint64 `name:"replaced_failing" help:"replaced atomics that are CMP_SWAPs that fail"`
	PassedThrough uint64 `name:"atomics_passed" help:"atomics sent unchanged because the value of their word was not known"`
	Retransmitted uint64 `name:"retransmitted" help:"retransmissions of clients"`
	// Forgotten counts retransmissions whose request has no map entry, because the entry was
	// overwritten or never existed.
	Forgotten uint64 `name:"forgotten"`
	// Overwritten counts open map entries that were overwritten because their place was reused.
	Overwritten uint64 `name:"overwritten"`
	Answers     uint64 `name:"answers" help:"responses to READs and atomics sent to the clients of the requests"`
	AcksSplit   uint64 `name:"acks_split" help:"ACKs of a server that acknowledged requests of several clients"`
	// Acks counts positive ACKs of servers. AckEntries counts the map entries of requests that responses
	// of servers acknowledged, and AckEntriesMost is the largest number of one ACK.
	Acks           uint64 `name:"acks" help:"positive ACKs of servers"`
	AckEntries     uint64 `name:"ack_entries" help:"map entries that the switch has read because a response acknowledged their requests"`
	AckEntriesMost uint64 `name:"ack_entries_most" help:"the largest number of map entries that one ACK acknowledged"`
	// Broadcast counts sequence NAKs of servers.
	Broadcast uint64 `name:"nak_broadcasts"`
	Naks      uint64 `name:"naks_sent" help:"sequence NAKs that the switch has sent to clients because of sequence NAKs of servers"`
	Fatal     uint64 `name:"fatal_naks" help:"NAKs of servers other than sequence NAKs, forwarded to the client whose request they name"`
	Strays    uint64 `name:"strays" help:"responses dropped because their request has no map entry, or its connection has ended"`
}

// ReasonForgotten means that the packet belongs to no map entry.
const ReasonForgotten pipeline.Reason = "no map entry"

var (
	_ handler.Machine       = (*Machine)(nil)
	_ handler.RuleUser      = (*Machine)(nil)
	_ handler.WordForgetter = (*Machine)(nil)
)

func New() *Machine { return &Machine{servers: make(map[netip.Addr]*server)} }

// server returns the server with address a. It makes the server if there is none.
func (m *Machine) server(a netip.Addr) *server {
	s := m.servers[a]
	if s == nil {
		s = &server{addr: a, words: make(map[uint64]*word), rules: m.rulesOf(a)}
		m.servers[a] = s
		m.order = append(m.order, s)
	}
	return s
}

// maxClients is how many clients the machine has at most: the size of the table of connections in the
// authors' public code. The requests of further clients are forwarded as they are.
const maxClients = 512

// maxPorts is how many clients a flow may have: one for each of the UDP source ports that its packets
// had last.
const maxPorts = 4

// ports holds the clients of a flow, one for each UDP source port, the newest one last. In the paper,
// addresses, queue pair and source port name a connection (section 4.1), but a NIC may change this
// port during a connection. The switch then takes the packets for those of another connection, whose
// PSNs it has not changed yet (hole 23). Responses belong to the newest client.
type ports struct{ clients []*client }

// of returns the client of a UDP source port; nil if there is none.
func (l *ports) of(port uint16) *client {
	for _, c := range l.clients {
		if c.port == port {
			return c
		}
	}
	return nil
}

// join makes a client for a flow and a UDP source port. The machine serialises its requests from then
// on. No request of it may be in flight, because the switch has no map entries for requests that it
// forwarded before. It returns nil if there is no room.
func (m *Machine) join(r *conntrack.Flow, s *server, port uint16, psn wire.PSN) *client {
	list, ok := r.Ext.(*ports)
	if !ok {
		list = &ports{}
	}
	full := len(list.clients) == maxPorts
	if m.clients() >= maxClients && !full {
		m.stats.NoRoom++
		return nil
	}
	c := &client{
		flow: r, port: port, server: s, owner: r.Requester, qpn: r.ReqQPN, serverQPN: r.RespQPN,
		in: psn.Add(-1), first: psn, out: psn.Add(-1),
	}
	s.clients = append(s.clients, c)
	if full {
		list.clients[0].leave()
		list.clients = list.clients[1:]
	}
	list.clients = append(list.clients, c)
	r.Ext, r.Pinned = list, true
	m.stats.Joined++
	return c
}

// clients returns how many clients the machine has.
func (m *Machine) clients() (n int) {
	for _, s := range m.order {
		n += len(s.clients)
	}
	return n
}

// clientOf returns the client of a flow's requests by a UDP source port. It returns nil if there is
// none, or if it has ended.
func clientOf(r *conntrack.Flow, port uint16) *client {
	list, ok := r.Ext.(*ports)
	if !ok {
		return nil
	}
	return list.of(port)
}

// newestOf returns the client to which the responses of a flow belong: the newest one; nil if the
// flow has none.
func newestOf(r *conntrack.Flow) *client {
	list, ok := r.Ext.(*ports)
	if !ok {
		return nil
	}
	return list.clients[len(list.clients)-1]
}

// leave ends a client. Its ring is kept, because other clients may wait for answers on its
// connection (hole 4). Where its requests were sent is forgotten: no retransmission of them can be
// told from a new request any more, and the clients that ended before it are not kept by it.
func (c *client) leave() {
	c.closed, c.path, c.sent = true, c.flow.Path, [sentSize]sent{}
	c.server.clients = slices.DeleteFunc(c.server.clients, func(o *client) bool { return o == c })
}

// borrow returns the connection on which the requests for a word are sent. Each shard uses the
// connection of one client: one of those that joined first (hole 4).
func (s *server) borrow(va uint64, shards int) *client {
	for len(s.shared) < shards {
		s.shared = append(s.shared, nil)
	}
	i := int(va / transform.WordLen % uint64(shards))
	if s.shared[i] == nil || s.shared[i].closed {
		s.shared[i] = s.clients[i%len(s.clients)]
	}
	return s.shared[i]
}

// Closed is called when a flow has ended. If its connection was borrowed, the requests of other
// clients on it are never answered (hole 4). If a request of the flow was lost, it is never
// retransmitted, although the server waits for it (hole 1).
func (m *Machine) Closed(_ *pipeline.Ctx, r *conntrack.Flow) {
	list, ok := r.Ext.(*ports)
	if !ok {
		return
	}
	for _, c := range list.clients {
		c.leave()
	}
	r.Ext = nil
}

// Owned drops the packet, because this machine has no switch's connections.
func (m *Machine) Owned(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Drop("not for the switch")
}

// Kind is the registry entry of the published handler for the actions move and atomics.
var Kind = handler.Kind{
	Name: "published", Actions: []rules.Action{rules.Move, rules.Atomics}, Mode: rules.Published,
	New: func(*handler.Env) handler.Handler { return New() },
}

func (m *Machine) Kind() *handler.Kind { return &Kind }
