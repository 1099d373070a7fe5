package cm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// maxIDTries bounds the search for a free number.
const maxIDTries = 64

// newConn makes a connection in Idle with a number that peers cannot guess. It returns nil when the table is full.
func (m *Machine) newConn(local, peer netip.Addr) *conn {
	if len(m.conns)-m.waiting >= m.cfg.MaxConns {
		return nil
	}
	for range maxIDTries {
		id := mad.CommID(m.cfg.Rand.Uint32())
		if id == 0 || m.conns[id] != nil {
			continue
		}
		m.serial++
		c := &conn{id: id, serial: m.serial, local: local, peer: peer, deadline: clock.Never}
		m.conns[id] = c
		return c
	}
	return nil
}

// newTID makes a number for a new exchange of messages.
func (m *Machine) newTID() uint64 {
	m.tids++
	return m.tidBase | uint64(m.tids)
}

// bind enters a connection's peer and queue pairs in the tables.
func (m *Machine) bind(c *conn) {
	if c.remoteID != 0 {
		m.byPeer[peerID{c.peer, c.remoteID, c.sidr}] = c
	}
	if c.remQPN != 0 {
		m.byRemote[peerQP{c.peer, c.remQPN}] = c
	}
	if c.qpn != 0 {
		m.byQPN[c.qpn] = c
	}
}

// unbindQPs takes the queue pairs of a connection out of the tables: they are free for another connection.
func (m *Machine) unbindQPs(c *conn) {
	if k := (peerQP{c.peer, c.remQPN}); m.byRemote[k] == c {
		delete(m.byRemote, k)
	}
	if m.byQPN[c.qpn] == c {
		delete(m.byQPN, c.qpn)
	}
}

// enterTimeWait remembers a connection that has ended, so that late and repeated messages get the right answer. When too
// many are remembered the oldest is forgotten.
func (m *Machine) enterTimeWait(now clock.Time, c *conn, out *Actions) {
	m.unbindQPs(c)
	c.retries, c.inTimeWait = 0, true
	m.waiting++
	m.ended = append(m.ended, c)
	m.wait(c, now.Add(mad.Time(m.cfg.TimeWait)))
	if m.waiting > m.cfg.MaxTimeWait {
		for _, old := range m.ended {
			if m.conns[old.id] == old {
				old.state = Idle
				m.forget(old, out)
				break
			}
		}
	}
}

// forget takes a connection, which is in Idle by now, out of all tables.
func (m *Machine) forget(c *conn, out *Actions) {
	m.unbindQPs(c)
	if k := (peerID{c.peer, c.remoteID, c.sidr}); m.byPeer[k] == c {
		delete(m.byPeer, k)
	}
	delete(m.conns, c.id)
	m.due.Remove(uint32(c.id))
	if c.inTimeWait {
		m.waiting--
		for len(m.ended) > 0 && m.conns[m.ended[0].id] != m.ended[0] {
			m.ended[0] = nil
			m.ended = m.ended[1:]
		}
	}
	m.event(c, EventClosed, nil, out)
}

// wait sets the deadline of a connection.
func (m *Machine) wait(c *conn, at clock.Time) {
	c.deadline = at
	m.due.Set(uint32(c.id), at)
}

// put writes a message that is to be sent again when need be, and sends it.
func (m *Machine) put(c *conn, tid uint64, msg mad.Message, out *Actions) {
	c.lastAttr = msg.Attr()
	mad.Append(c.last[:0], tid, msg)
	m.sendLast(c, out)
}

func (m *Machine) sendLast(c *conn, out *Actions) {
	m.stats.Sent++
	out.Tx = append(out.Tx, Datagram{Local: c.local, Remote: c.peer, MAD: c.last})
}

// send sends a message that is not kept.
func (m *Machine) send(local, peer netip.Addr, tid uint64, msg mad.Message, out *Actions) {
	m.stats.Sent++
	out.Tx = append(out.Tx, Datagram{Local: local, Remote: peer})
	mad.Append(out.Tx[len(out.Tx)-1].MAD[:0], tid, msg)
}
