package cm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Machine is a connection manager. New makes one; the zero value cannot be used.
type Machine struct {
	table     table
	box       outbox
	cfg       Config
	listeners map[mad.ServiceID][]listener
}

// New returns a connection manager without listeners.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Machine{cfg: cfg.withDefaults(), listeners: make(map[mad.ServiceID][]listener), table: newTable()}
	m.box.tidBase = uint64(cfg.Rand.Uint32()) << 32
	return m, nil
}

func (m *Machine) Stats() Stats { return m.box.stats }

// Conns returns the number of connections that have not ended (live), and the number of ended
// connections that are in time-wait.
func (m *Machine) Conns() (live, ended int) { return m.table.count() }

// ConnOf returns the connection of a queue pair of this side that has not ended.
func (m *Machine) ConnOf(qpn wire.QPN) (mad.CommID, bool) { return m.table.connOf(qpn) }

// Deadline returns when Tick must be called next; clock.Never if nothing is due.
func (m *Machine) Deadline() clock.Time { return m.table.deadline() }

// maxTick is the largest number of connections that one Tick serves. If more connections are due,
// Deadline returns a time in the past.
const maxTick = 256

// Tick retransmits unanswered messages and ends connections whose time has expired.
func (m *Machine) Tick(now clock.Time, out *Actions) {
	for range maxTick {
		id, at := m.table.due.Next()
		if at > now {
			return
		}
		c := m.table.conns[mad.CommID(id)]
		if c.retries > 0 && m.table.step(c, onRetry) {
			c.retries--
			m.box.stats.Retries++
			m.box.sendLast(c, out)
			m.table.wait(c, now.Add(interval(c.timeout)))
			continue
		}
		m.expire(now, c, out)
	}
}

// expire is called when the wait for a peer or an application has ended without an answer, or when
// the time-wait is over.
func (m *Machine) expire(now clock.Time, c *conn, out *Actions) {
	from := c.state
	m.table.step(c, onExpire) // every state with a deadline has this edge
	if from != TimeWait {
		m.box.stats.Expired++
	}
	switch from {
	case REQSent, REPWait, REQRcvd:
		m.giveUp(c, mad.StageREQ, out)
	case REPSent, RTUWait:
		m.giveUp(c, mad.StageREP, out)
	default:
	}
	switch from {
	case TimeWait, SIDRRcvd: // no event
	case DREQSent:
		m.event(c, EventUnanswered, nil, out)
	default:
		m.event(c, EventUnreachable, nil, out)
	}
	m.settle(now, c, out)
}

// settle removes a connection that has come to Idle, and keeps one that has come to TimeWait.
func (m *Machine) settle(now clock.Time, c *conn, out *Actions) {
	if c.state == TimeWait {
		m.enterTimeWait(now, c, out)
		return
	}
	m.forget(c, out)
}

// Handle handles a datagram. It only counts malformed ones, and an MRA, REJ, DREP or SIDR_REP that
// matches no connection.
func (m *Machine) Handle(now clock.Time, on Way, b []byte, out *Actions) {
	m.box.stats.Rcvd++
	var h mad.Header
	msg, err := mad.Parse(b, &h)
	if err != nil {
		m.box.stats.Malformed++
		return
	}
	in := incoming{m: m, now: now, local: on.Local, peer: on.Peer, pkey: on.PKey, tid: h.TID}
	switch msg := msg.(type) {
	case *mad.REQ:
		in.handleREQ(msg, out)
	case *mad.REP:
		in.handleREP(msg, out)
	case *mad.RTU:
		in.handleRTU(msg, out)
	case *mad.MRA:
		in.handleMRA(msg)
	case *mad.REJ:
		in.handleREJ(msg, out)
	case *mad.DREQ:
		in.handleDREQ(msg, out)
	case *mad.DREP:
		in.handleDREP(msg, out)
	case *mad.SIDRReq:
		in.handleSIDRReq(msg, out)
	case *mad.SIDRRep:
		in.handleSIDRRep(msg, out)
	}
}

// incoming is a received message with its addresses and time. Its methods handle the messages.
type incoming struct {
	m           *Machine
	now         clock.Time
	local, peer netip.Addr
	pkey        uint16
	tid         uint64
}

// way returns the addresses and the partition of the message, for an answer.
func (in incoming) way() Way { return Way{in.local, in.peer, in.pkey} }

// requested changes the state of a connection because the application has called the method op. It
// fails with ErrClosed if there is no such connection, and with an illegalState if the state does
// not allow the call.
func (m *Machine) requested(op string, id mad.CommID, on cause) (*conn, error) {
	c := m.table.conns[id]
	if c == nil || c.orphan {
		return nil, verbs.Errorf(op, verbs.ErrClosed, "there is no connection %#x; it may have ended", uint32(id))
	}
	if from := c.state; !m.table.step(c, on) {
		return nil, stateError(from, on)
	}
	return c, nil
}

func (m *Machine) event(c *conn, kind EventKind, msg mad.Message, out *Actions) {
	if !c.orphan {
		out.Events = append(out.Events, Event{Kind: kind, Conn: c.id, Owner: c.owner, Local: c.local, Peer: c.peer, Message: msg})
	}
}
