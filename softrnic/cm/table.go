package cm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// table has the connections of one manager and their deadlines.
type table struct {
	conns map[mad.CommID]*conn
	// byPeer finds the connection of a repeated REQ or SIDR_REQ. byRemote finds the connection of a
	// peer's queue pair, and byQPN that of a queue pair of this side. byRemote and byQPN have only
	// connections that have not ended.
	byPeer   map[peerID]*conn
	byRemote map[peerQP]*conn
	byQPN    map[wire.QPN]*conn
	// ended are the connections in time-wait, oldest first. The slice may still have connections that
	// have left time-wait early; oldestEnded skips them.
	ended    []*conn
	waiting  int         // connections in time-wait
	requests int         // connections that wait for an application's answer
	due      clock.Queue // deadlines of connections, by their numbers
}

func newTable() table {
	return table{
		conns: make(map[mad.CommID]*conn), byPeer: make(map[peerID]*conn),
		byRemote: make(map[peerQP]*conn), byQPN: make(map[wire.QPN]*conn),
	}
}

// peerID is a connection's number on the peer's side. Requests of datagram services are numbered
// separately.
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
	exchange
	id, remoteID mad.CommID // its numbers on this side and on the peer's; remoteID is 0 until it is known
	owner        uint64
	orphan       bool // the owner of the connection gets no more events
	state        State
	local, peer  netip.Addr
	pkey         uint16
	service      mad.ServiceID
	qpn, remQPN  wire.QPN // the queue pairs of this side and of the peer; 0 until they are known
	keep         uint8    // code of how long the connection is kept when it has ended (time-wait)
	sidr         bool     // a resolution of a datagram service
	xrc          bool     // from an initiator to a target of XRC
	inTimeWait   bool
}

// way returns the addresses and the partition of the connection's messages.
func (c *conn) way() Way { return Way{c.local, c.peer, c.pkey} }

// count is Machine.Conns.
func (t *table) count() (live, ended int) { return len(t.conns) - t.waiting, t.waiting }

// connOf is Machine.ConnOf.
func (t *table) connOf(qpn wire.QPN) (mad.CommID, bool) {
	c := t.byQPN[qpn]
	if c == nil {
		return 0, false
	}
	return c.id, true
}

// find returns the connection that a message names, if the message comes from its peer. remote is
// the sender's number of the connection; 0 matches any connection. A connection whose peer has not
// sent its number yet matches any remote.
func (t *table) find(in incoming, own, remote mad.CommID) *conn {
	c := t.conns[own]
	if c == nil || c.peer != in.peer || c.sidr || remote != 0 && c.remoteID != 0 && c.remoteID != remote {
		return nil
	}
	return c
}

// step moves connection c to its next state for a cause. It returns false if the state diagram
// (edges) has no such transition.
func (t *table) step(c *conn, on cause) bool {
	to, ok := next(c.state, on)
	if !ok {
		return false
	}
	if c.state == REQRcvd && to != REQRcvd || c.state == SIDRRcvd && to != SIDRRcvd {
		t.requests--
	}
	c.state = to
	return true
}

// deadline is Machine.Deadline.
func (t *table) deadline() clock.Time {
	_, at := t.due.Next()
	return at
}

// maxIDTries is how many random numbers are tried for a new connection.
const maxIDTries = 64

// newConn makes a connection in Idle. Its number is random, so that peers cannot guess it. It
// returns nil if the table is full.
func (t *table) newConn(cfg *Config, on Way) *conn {
	if len(t.conns)-t.waiting >= cfg.MaxConns {
		return nil
	}
	for range maxIDTries {
		id := mad.CommID(cfg.Rand.Uint32())
		if id == 0 || t.conns[id] != nil {
			continue
		}
		c := &conn{id: id, local: on.Local, peer: on.Peer, pkey: on.PKey}
		t.conns[id] = c
		return c
	}
	return nil
}

// bind adds a connection to byPeer, byRemote and byQPN, as far as its numbers are known.
func (t *table) bind(c *conn) {
	if c.remoteID != 0 {
		t.byPeer[peerID{c.peer, c.remoteID, c.sidr}] = c
	}
	if c.remQPN != 0 {
		t.byRemote[peerQP{c.peer, c.remQPN}] = c
	}
	if c.qpn != 0 {
		t.byQPN[c.qpn] = c
	}
}

// unbindQPs removes a connection from byRemote and byQPN: its queue pairs may be used for another
// connection.
func (t *table) unbindQPs(c *conn) {
	if k := (peerQP{c.peer, c.remQPN}); t.byRemote[k] == c {
		delete(t.byRemote, k)
	}
	if t.byQPN[c.qpn] == c {
		delete(t.byQPN, c.qpn)
	}
}

// wait sets the deadline of a connection.
func (t *table) wait(c *conn, at clock.Time) { t.due.Set(uint32(c.id), at) }

// startTimeWait moves a connection into time-wait; `until` is when time-wait ends.
func (t *table) startTimeWait(c *conn, until clock.Time) {
	t.unbindQPs(c)
	c.inTimeWait = true
	t.waiting++
	t.ended = append(t.ended, c)
	t.wait(c, until)
}

// oldestEnded returns the connection that has been in time-wait for the longest time.
func (t *table) oldestEnded() *conn {
	for _, c := range t.ended {
		if t.conns[c.id] == c {
			return c
		}
	}
	return nil
}

func (t *table) remove(c *conn) {
	t.unbindQPs(c)
	if k := (peerID{c.peer, c.remoteID, c.sidr}); t.byPeer[k] == c {
		delete(t.byPeer, k)
	}
	delete(t.conns, c.id)
	t.due.Remove(uint32(c.id))
	if c.inTimeWait {
		t.waiting--
		for len(t.ended) > 0 && t.conns[t.ended[0].id] != t.ended[0] {
			t.ended[0] = nil
			t.ended = t.ended[1:]
		}
	}
}
