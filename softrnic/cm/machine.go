package cm

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Machine is a connection manager. Its zero value is of no use; call New.
type Machine struct {
	cfg       Config
	listeners map[mad.ServiceID]uint64 // owner
	conns     map[mad.CommID]*conn
	// byPeer finds what a repeated REQ or SIDR_REQ belongs to; byRemote whose queue pair a peer's is, of
	// connections that have not ended; byQPN is the same for queue pairs of this side.
	byPeer   map[peerID]*conn
	byRemote map[peerQP]*conn
	byQPN    map[wire.QPN]*conn
	// ended are the connections in time-wait, oldest first; some have left it early and are passed over.
	ended    []*conn
	waiting  int // connections in time-wait
	requests int // connections that wait for an application's answer
	due      clock.Queue
	serial   uint64
	tidBase  uint64
	tids     uint32
	stats    Stats
}

// peerID is a connection's number at the peer; datagram resolutions have numbers of their own.
type peerID struct {
	addr netip.Addr
	id   mad.CommID
	sidr bool
}

// peerQP is a queue pair of a peer.
type peerQP struct {
	addr netip.Addr
	qpn  wire.QPN
}

// conn is one connection, or one resolution of a datagram service.
type conn struct {
	id, remoteID mad.CommID
	serial       uint64 // order of creation
	owner        uint64
	orphan       bool // nobody wants its events any more
	state        State
	local, peer  netip.Addr
	service      mad.ServiceID
	tid          uint64 // of the exchange; DREQ and its answer have another one
	qpn, remQPN  wire.QPN
	remoteGUID   uint64
	sidr         bool
	inTimeWait   bool
	// last is the message that is sent again, by time or when the peer's comes again.
	last     [mad.Size]byte
	lastAttr mad.Attr
	deadline clock.Time
	timeout  uint8 // code: how long the peer may take
	retries  uint8 // left
	maxTries uint8
}

// New returns a connection manager without listeners.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Machine{
		cfg: cfg.withDefaults(), listeners: make(map[mad.ServiceID]uint64), conns: make(map[mad.CommID]*conn),
		byPeer: make(map[peerID]*conn), byRemote: make(map[peerQP]*conn), byQPN: make(map[wire.QPN]*conn),
	}
	m.tidBase = uint64(cfg.Rand.Uint32()) << 32
	return m, nil
}

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

// Conns counts the connections that have not ended, and those that are in time-wait.
func (m *Machine) Conns() (live, ended int) { return len(m.conns) - m.waiting, m.waiting }

// State is the state of a connection; Idle if there is none of this number.
func (m *Machine) State(id mad.CommID) State {
	if c := m.conns[id]; c != nil {
		return c.state
	}
	return Idle
}

// Listen takes requests for a service from now on, for owner.
func (m *Machine) Listen(s mad.ServiceID, owner uint64) error {
	const op = "listen"
	if _, taken := m.listeners[s]; taken {
		return opError(op, verbs.ErrBusy, "service %v has a listener already", s)
	}
	if len(m.listeners) >= m.cfg.MaxListeners {
		return opError(op, verbs.ErrLimit, "%d services have listeners", len(m.listeners))
	}
	m.listeners[s] = owner
	return nil
}

// Unlisten refuses requests for a service from now on. Those that the owner knows of stay.
func (m *Machine) Unlisten(s mad.ServiceID) { delete(m.listeners, s) }

// Release ends everything of an owner: its listeners, and its connections by Abort.
func (m *Machine) Release(now clock.Time, owner uint64, out *Actions) {
	for s, o := range m.listeners {
		if o == owner {
			delete(m.listeners, s)
		}
	}
	var own []*conn
	for _, c := range m.conns {
		if c.owner == owner && !c.orphan {
			own = append(own, c)
		}
	}
	slices.SortFunc(own, func(a, b *conn) int { return int(a.serial) - int(b.serial) })
	for _, c := range own {
		m.abort(now, c, out)
	}
}

// maxTick bounds the connections that one Tick serves; what is left keeps Deadline due.
const maxTick = 256

// Deadline is when Tick next wants to be called; clock.Never if nothing is due.
func (m *Machine) Deadline() clock.Time {
	_, at := m.due.Next()
	return at
}

// Tick sends again what was not answered and ends what has been waiting long enough.
func (m *Machine) Tick(now clock.Time, out *Actions) {
	for range maxTick {
		id, at := m.due.Next()
		if at > now {
			return
		}
		c := m.conns[mad.CommID(id)]
		if c.retries > 0 && m.step(c, onRetry) {
			c.retries--
			m.stats.Retries++
			m.sendLast(c, out)
			m.wait(c, now.Add(interval(c.timeout)))
			continue
		}
		m.expire(now, c, out)
	}
}

// expire ends the patience with a peer, an application, or a connection that has ended.
func (m *Machine) expire(now clock.Time, c *conn, out *Actions) {
	from := c.state
	m.step(c, onExpire) // every state that has a deadline has this edge
	if from != TimeWait {
		m.stats.Expired++
	}
	switch from {
	case REQSent, REPWait:
		m.giveUp(c, mad.StageREQ, out)
		m.event(c, EventUnreachable, nil, out)
		m.forget(c, out)
	case REPSent, RTUWait:
		m.giveUp(c, mad.StageREP, out)
		m.event(c, EventUnreachable, nil, out)
		m.enterTimeWait(now, c, out)
	case REQRcvd:
		m.giveUp(c, mad.StageREQ, out)
		m.event(c, EventUnreachable, nil, out)
		m.enterTimeWait(now, c, out)
	case DREQSent:
		m.event(c, EventDisconnected, nil, out)
		m.enterTimeWait(now, c, out)
	case SIDRSent:
		m.event(c, EventUnreachable, nil, out)
		m.forget(c, out)
	default: // TimeWait, SIDRRcvd
		m.forget(c, out)
	}
}

// Handle takes a datagram from peer to local, both without zone. What is malformed or makes no sense is counted.
func (m *Machine) Handle(now clock.Time, local, peer netip.Addr, b []byte, out *Actions) {
	m.stats.Rcvd++
	var h mad.Header
	msg, err := mad.Parse(b, &h)
	if err != nil {
		m.stats.Malformed++
		return
	}
	in := incoming{now: now, local: local, peer: peer, tid: h.TID}
	switch msg := msg.(type) {
	case *mad.REQ:
		m.handleREQ(in, msg, out)
	case *mad.REP:
		m.handleREP(in, msg, out)
	case *mad.RTU:
		m.handleRTU(in, msg, out)
	case *mad.MRA:
		m.handleMRA(in, msg)
	case *mad.REJ:
		m.handleREJ(in, msg, out)
	case *mad.DREQ:
		m.handleDREQ(in, msg, out)
	case *mad.DREP:
		m.handleDREP(in, msg, out)
	case *mad.SIDRReq:
		m.handleSIDRReq(in, msg, out)
	case *mad.SIDRRep:
		m.handleSIDRRep(in, msg, out)
	}
}

// incoming is what a message came with.
type incoming struct {
	now         clock.Time
	local, peer netip.Addr
	tid         uint64
}

// find returns the connection that a message names, if it comes from its peer. remote is the sender's number; 0 matches
// any, as the number of a peer that has not said it yet does.
func (m *Machine) find(in incoming, own, remote mad.CommID) *conn {
	c := m.conns[own]
	if c == nil || c.peer != in.peer || c.sidr || remote != 0 && c.remoteID != 0 && c.remoteID != remote {
		return nil
	}
	return c
}

// step follows an edge if there is one.
func (m *Machine) step(c *conn, on cause) bool {
	to, ok := next(c.state, on)
	if !ok {
		return false
	}
	if c.state == REQRcvd && to != REQRcvd || c.state == SIDRRcvd && to != SIDRRcvd {
		m.requests--
	}
	c.state = to
	return true
}

// wish follows an edge for an application.
func (m *Machine) wish(op string, id mad.CommID, on cause) (*conn, error) {
	c := m.conns[id]
	if c == nil || c.orphan {
		return nil, opError(op, verbs.ErrClosed, "there is no connection %#x; it may have ended", uint32(id))
	}
	if from := c.state; !m.step(c, on) {
		return nil, stateError(from, on)
	}
	return c, nil
}

func (m *Machine) event(c *conn, kind EventKind, msg mad.Message, out *Actions) {
	if !c.orphan {
		out.Events = append(out.Events, Event{Kind: kind, Conn: c.id, Owner: c.owner, Local: c.local, Peer: c.peer, Message: msg})
	}
}

func opError(op string, sentinel error, format string, args ...any) error {
	return &verbs.OpError{Op: op, Err: sentinel, Detail: fmt.Sprintf(format, args...)}
}
