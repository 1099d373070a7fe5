package cm

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Refusal is the content of a REJ. Info has up to mad.REJInfo bytes, Private up to mad.REJPrivate;
// longer ones are cut off.
type Refusal struct {
	Reason mad.Reason
	// Info is additional information that the specification defines for some reasons, for example
	// an acceptable MTU.
	Info    []byte
	Private []byte
}

// Reject refuses an EventRequest, or an EventReply that this side cannot use.
func (m *Machine) Reject(now clock.Time, id mad.CommID, why Refusal, out *Actions) error {
	c := m.table.conns[id]
	stage := mad.StageREQ
	if c != nil && c.state == REPRcvd {
		stage = mad.StageREP
	}
	c, err := m.requested("reject", id, onReject)
	if err != nil {
		return err
	}
	m.reject(c, stage, why, out)
	m.enterTimeWait(now, c, out)
	return nil
}

func (m *Machine) reject(c *conn, stage mad.Stage, why Refusal, out *Actions) {
	rej := &mad.REJ{LocalID: c.id, RemoteID: c.remoteID, About: stage, Reason: why.Reason}
	rej.InfoLen = uint8(copy(rej.Info[:], why.Info))
	copy(rej.Private[:], why.Private)
	m.box.put(c, c.tid, rej, out)
}

// giveUp sends the peer a REJ with the reason timeout: no answer has arrived in time, or the
// connection was aborted before the answer. The REJ has this NIC's GUID. If the peer does not know
// the connection's number on this side, it finds the connection by the GUID.
func (m *Machine) giveUp(c *conn, stage mad.Stage, out *Actions) {
	rej := &mad.REJ{LocalID: c.id, RemoteID: c.remoteID, About: stage, Reason: mad.ReasonTimeout}
	rej.InfoLen = uint8(len(binary.BigEndian.AppendUint64(rej.Info[:0], m.cfg.GUID)))
	m.box.put(c, c.tid, rej, out)
}

// handleREJ ends a connection that the peer has refused, or that is established on this side alone
// (IBTA 12.9.8.4).
func (in incoming) handleREJ(rej *mad.REJ, out *Actions) {
	m := in.m
	c := m.table.find(in, rej.RemoteID, rej.LocalID)
	if rej.RemoteID == 0 { // the initiator has received no message from this side, and does not know this side's number of the connection
		c = m.table.byPeer[peerID{in.peer, rej.LocalID, false}]
	}
	if c == nil {
		m.box.stats.Strays++
		return
	}
	from := c.state
	// The initiator may have sent its REQ twice. If the acceptance of the second copy has arrived, a
	// refusal of the first copy is out of date.
	late := rej.About == mad.StageREQ && rej.RemoteID != 0 && from != REQSent && from != REPWait
	if late || !m.table.step(c, rxREJ) {
		m.box.stats.Strays++
		return
	}
	kind := EventRejected
	if from == Established {
		kind = EventDisconnected
	}
	m.event(c, kind, rej, out)
	m.settle(in.now, c, out)
}

// Disconnect ends an established connection. EventDisconnected follows when the peer has answered
// or all retries have failed.
func (m *Machine) Disconnect(now clock.Time, id mad.CommID, out *Actions) error {
	c, err := m.requested("disconnect", id, onDisconnect)
	if err != nil {
		return err
	}
	m.sendDREQ(now, c, out)
	return nil
}

func (m *Machine) sendDREQ(now clock.Time, c *conn, out *Actions) {
	c.tid = m.box.newTID()
	m.box.put(c, c.tid, &mad.DREQ{LocalID: c.id, RemoteID: c.remoteID, QPN: c.remQPN}, out)
	c.timeout, c.maxTries = m.cfg.ResponseTimeout, m.cfg.MaxRetries
	m.await(now, c)
}

// handleDREQ ends a connection at the request of the peer. A DREQ for an unknown connection is
// answered, too: the connection has ended here before.
func (in incoming) handleDREQ(dreq *mad.DREQ, out *Actions) {
	m := in.m
	c := m.table.find(in, dreq.RemoteID, dreq.LocalID)
	if c == nil {
		m.box.stats.Strays++
		m.box.send(in.way(), in.tid, &mad.DREP{LocalID: dreq.RemoteID, RemoteID: dreq.LocalID}, out)
		return
	}
	from := c.state
	if dreq.QPN != c.qpn || !m.table.step(c, rxDREQ) {
		m.box.stats.Strays++
		return
	}
	m.box.put(c, in.tid, &mad.DREP{LocalID: c.id, RemoteID: c.remoteID}, out)
	if from == TimeWait {
		m.box.stats.Duplicates++
		return
	}
	m.event(c, EventDisconnected, nil, out)
	m.enterTimeWait(in.now, c, out)
}

func (in incoming) handleDREP(drep *mad.DREP, out *Actions) {
	m := in.m
	c := m.table.find(in, drep.RemoteID, drep.LocalID)
	if c == nil || in.tid != c.tid || !m.table.step(c, rxDREP) {
		m.box.stats.Strays++
		return
	}
	m.event(c, EventDisconnected, nil, out)
	m.enterTimeWait(in.now, c, out)
}

// Abort ends a connection in any state; its owner gets no more events. It ignores an unknown
// connection.
func (m *Machine) Abort(now clock.Time, id mad.CommID, out *Actions) {
	if c := m.table.conns[id]; c != nil && !c.orphan {
		m.abort(now, c, out)
	}
}

// QPGone is called when a queue pair of this side was destroyed or reset. It aborts the connection
// of the queue pair.
func (m *Machine) QPGone(now clock.Time, qpn wire.QPN, out *Actions) {
	if c := m.table.byQPN[qpn]; c != nil {
		m.abort(now, c, out)
	}
}

// Unbind is called when a queue pair of this side was destroyed or reset, and the owner of its
// connection still wants the events of the end. It ends the connection as Disconnect does, if that
// has not been called. It returns false, and does nothing, unless the queue pair has a connection
// that is established or ending.
func (m *Machine) Unbind(now clock.Time, qpn wire.QPN, out *Actions) bool {
	c := m.table.byQPN[qpn]
	if c == nil || c.state != Established && c.state != DREQSent {
		return false
	}
	delete(m.table.byQPN, qpn) // the queue pair may be used for another connection
	if m.table.step(c, onDisconnect) {
		m.sendDREQ(now, c, out)
	}
	return true
}

// abortStale ends a connection because a newer connection of the peer shows that the peer has
// already ended it. Its owner gets EventDisconnected.
func (m *Machine) abortStale(now clock.Time, c *conn, out *Actions) {
	m.event(c, EventDisconnected, nil, out)
	m.abort(now, c, out)
}

// abort ends a connection with the message that its state requires. Its owner gets no more events.
func (m *Machine) abort(now clock.Time, c *conn, out *Actions) {
	from := c.state
	m.table.step(c, onAbort) // every state except Idle has this edge
	c.orphan = true
	if m.table.byQPN[c.qpn] == c {
		delete(m.table.byQPN, c.qpn) // the queue pair may be used for another connection
	}
	switch from {
	case REQSent, REPWait:
		m.giveUp(c, mad.StageREQ, out)
		m.forget(c, out)
	case REPRcvd:
		m.reject(c, mad.StageREP, Refusal{Reason: mad.ReasonConsumer}, out)
		m.enterTimeWait(now, c, out)
	case REQRcvd:
		m.reject(c, mad.StageREQ, Refusal{Reason: mad.ReasonConsumer}, out)
		m.enterTimeWait(now, c, out)
	case REPSent, RTUWait:
		m.giveUp(c, mad.StageREP, out)
		m.enterTimeWait(now, c, out)
	case Established:
		m.sendDREQ(now, c, out)
	case SIDRSent:
		m.forget(c, out)
	case SIDRRcvd:
		m.answer(now, c, mad.SIDRRep{Status: mad.SIDRRejected}, out)
	default: // in states DREQSent and TimeWait the connection ends as usual, without events for its owner
	}
}

// enterTimeWait moves a connection that has ended into time-wait, so that late and repeated
// messages get the right answer. The time-wait is as long as the ACK timeout of the connection, which
// is twice the lifetime of a packet, and at least Config.TimeWait (IBTA 12.9.8.4/time-wait). If more than MaxTimeWait connections are in time-wait, it removes
// the oldest.
func (m *Machine) enterTimeWait(now clock.Time, c *conn, out *Actions) {
	m.table.startTimeWait(c, now.Add(mad.Time(max(m.cfg.TimeWait, min(c.keep, maxTimeout)))))
	if m.table.waiting <= m.cfg.MaxTimeWait {
		return
	}
	if old := m.table.oldestEnded(); old != nil {
		m.forget(old, out)
	}
}

// forget removes a connection and reports that to its owner.
func (m *Machine) forget(c *conn, out *Actions) {
	m.table.remove(c)
	m.event(c, EventClosed, nil, out)
}
