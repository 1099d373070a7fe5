package handler

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Handler carries out the rules of its kind. It is a Machine, an Observer, or both.
type Handler interface {
	// Kind returns the handler's entry of the registry.
	Kind() *Kind
	// Info describes the present state for an operator. The program fills in Lists afterwards.
	Info(now clock.Time) Info
	// Spec declares the resources that the handler would need on a switching chip. The program sets
	// name and mode.
	Spec() pipeline.Part
}

// Machine decides about the packets of the flows to servers under its rules. It is sans-I/O: it
// acts only during a call, through the Ctx that the call passes and through the verdict that it
// returns.
//
// The program passes the packets of such a flow to the machine in the order of arrival, no matter
// whether a request was moved. The machine does not get packets that connection tracking has not
// accepted (Seen.Bad is not Fine), packets that a Bypasser keeps from going on, and unknown opcodes
// if the machine is Strict. The machine calls Flow.Advance for each new request that it takes or
// forwards.
type Machine interface {
	Handler
	// Request decides what happens to a request to a memory server. r is the rule that the request
	// matches; nil if it matches none.
	Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict
	// Response decides what happens to a response of a memory server, or to another packet from the
	// server to the client.
	Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict
	// Owned handles a packet that is addressed to the switch itself: usually a response on a
	// switch's connection.
	Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict
	// Tick is called at the time that Deadline returns.
	Tick(c *pipeline.Ctx)
	// Deadline returns when Tick must be called; clock.Never if it need not be called.
	Deadline() clock.Time
	// Closed is called when a flow has ended, before its entry in the table of flows is reused, and
	// when new rules give the flow to another machine or to none.
	Closed(c *pipeline.Ctx, r *conntrack.Flow)
}

// Observer sees requests and decides nothing. Its rules have observing actions (rules.Definition).
type Observer interface {
	Handler
	RuleUser
	// Observe is called for each request under rule r, an observing rule, that the switch forwards
	// or consumes. It is not called for dropped requests. For a retransmission it is called only if
	// the switch cannot recognise it, because it does not know the PSNs or the path MTU of the
	// connection. Packets that Observe emits leave before the request. Observe must not allocate.
	Observe(c *pipeline.Ctx, r *rules.Rule, t Target)
}

// Target is the operation and the memory that a request names.
type Target struct {
	// Opcode is the opcode of the request, or of its first packet.
	Opcode wire.Opcode
	// VA is the address of the first byte in the server's memory. Length is the length of the whole
	// request in bytes, over all its packets.
	VA     uint64
	Length uint32
	RKey   uint32
	// From is the sender of the request. To is the queue pair to which it is sent. Together with
	// the address of the rule's server they name the flow.
	From netip.Addr
	To   wire.QPN
}

// Interfaces that a handler may implement in addition to Handler. The program checks once, when it
// makes the handler, which of them the handler implements.
type (
	// RuleUser gets all rules whenever they change, before the first request under the new rules.
	RuleUser interface{ SetRules(set *rules.Set) }

	// Connector uses switch's connections: those that Wants lists, and adopted connections to the
	// same servers.
	Connector interface {
		// Wants lists the connections that a rule of the handler needs.
		Wants(r *rules.Rule) []Wanted
		// Attach offers a connection to the handler. It is called for each new connection, and
		// after each change of rules for every connection again. It returns false if the handler
		// cannot use the connection under the present rules; a connection that the handler uses
		// already stays as it is. Detach is called when a connection has ended.
		Attach(c *pipeline.Ctx, s switchconn.Shared) bool
		Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32)
	}

	// Picker is a Connector that knows which connections are its own. A packet to a queue pair of
	// the switch that no Picker claims goes to the Connector that is not a Picker.
	Picker interface {
		Connector
		// Mine reports whether a queue pair belongs to one of the handler's connections. Uses
		// reports whether a new connection with key k would be one of them.
		Mine(qpn wire.QPN) bool
		Uses(k switchconn.Key) bool
	}

	// Bypasser must see packets of flows that it does not handle, because their requests may change
	// memory whose value it tracks. These are the flows that another machine handles and, while
	// Draining returns true, also flows that no machine handles.
	Bypasser interface {
		Machine
		// Bypass sees a packet of a flow that the handler does not handle but must watch. The
		// switch forwards the packet if the verdict says so.
		Bypass(c *pipeline.Ctx, r *conntrack.Flow, p *pipeline.Parsed) pipeline.Verdict
		// Untracked does what Bypass does, for packets that belong to no flow.
		Untracked(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict
		// Draining reports whether requests under a removed rule may still be in flight.
		Draining() bool
	}

	// Strayer must see requests that match a rule but belong to no flow, because they may change
	// memory. r may be a rule of another handler. The switch forwards these requests.
	Strayer interface {
		Stray(r *rules.Rule, f *wire.Frame)
	}

	// Strict makes the program drop requests with unknown opcodes to servers under the handler's
	// rules. The switch does not know how such a request changes memory whose value the handler
	// tracks (hole 39).
	Strict interface{ Strict() }

	// WordForgetter can mark the values of all its words as unknown: the server then executes the
	// next atomic on each word. ForgetWords returns how many words it has marked; the published
	// handler counts only those whose value was known.
	WordForgetter interface{ ForgetWords() int }

	// Stater shows the states of its parts to a test. The test counts which transitions of the
	// state tables have occurred. table names the state table; entry is the number of the object
	// that is in the state.
	Stater interface {
		States(visit func(table string, entry uint32, state string))
	}

	// Queuer queues frames that leave the switch, of any protocol. See pipeline.Egresser.
	Queuer interface {
		// Queue returns true if the handler has taken the frame: it transmits a copy, at once or
		// later, or drops the frame and counts it. If Queue returns false, the switch sends it.
		Queue(c *pipeline.Ctx, port int, f packetio.Frame) bool
		// MarkIn is called before rules are set. It gives the handler the program's list of queues,
		// q, to which the handler adds its own queues.
		MarkIn(q *pipeline.QueuedPorts)
		// Flush transmits the frames that wait in the switch, because the program is about to be
		// replaced.
		Flush(c *pipeline.Ctx)
	}

	// Taker decides about frames of any protocol that arrive at the switch. See pipeline.Ingresser.
	Taker interface {
		// Take returns true if the handler has taken the frame, and resumes it now or later.
		Take(c *pipeline.Ctx, in int, f packetio.Frame) bool
		// MarkIn is called once, before rules are set. The handler counts in q the ports whose frames
		// it may take, whenever its rules change.
		MarkIn(q *pipeline.MarkedPorts)
	}

	// Keeper keeps a table for each of its rules, with entries that an operator writes.
	Keeper interface {
		// Change begins to write or remove the entries of `in` in the table of a rule, as many as
		// there is room for, and does not wait until that has ended. The report says how many of
		// these entries were taken; its other counts include earlier changes of the table. Without
		// entries Change only reports.
		Change(c *pipeline.Ctx, in Entries, address func(host string) (netip.Addr, error)) (EntriesReport, error)
		// Page returns a part of the table of a rule. If the part is not Ready, the caller calls
		// Page again later.
		Page(c *pipeline.Ctx, rule string, server, from int) (EntriesPage, error)
	}

	// Tabler has tables in addition to those that the program derives from Info.
	Tabler interface {
		Tables() []Table
		// ClearTable empties a table and returns how many entries it had.
		ClearTable(name string) int
	}
)

// Wanted is a connection that a rule needs.
type Wanted struct {
	switchconn.Key
	switchconn.Target
}

// Want returns the connection with key k that a rule needs.
func Want(r *rules.Rule, k switchconn.Key) Wanted {
	return Wanted{k, switchconn.Target{Service: r.Service, MTU: r.MTU, Depth: r.Depth()}}
}

// NoRequests has the methods Request, Response and Closed for a Machine that gets no flows, because
// its rules select frames, or only observe requests. The program never calls these methods. The
// machine embeds NoRequests.
type NoRequests struct{}

func (NoRequests) Request(*pipeline.Ctx, conntrack.Seen, *rules.Rule, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Forward()
}

func (NoRequests) Response(*pipeline.Ctx, conntrack.Seen, *pipeline.Parsed) pipeline.Verdict {
	return pipeline.Forward()
}

func (NoRequests) Closed(*pipeline.Ctx, *conntrack.Flow) {}
