package cm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Values of a REQ that are supported.
const (
	minMTU, maxMTU          = 1, 5
	firstQPN                = 2
	lastQPN        wire.QPN = 0xfffffe
)

// handleREQ handles a connection request (IBTA 12.9.8.1). A repeated request gets the REP or REJ again
// if that was the last message of the connection, or an MRA if the owner has not answered yet;
// otherwise it is ignored. A new request is refused, or goes to the owner of its listener.
func (in incoming) handleREQ(req *mad.REQ, out *Actions) {
	m := in.m
	if req.LocalID == 0 {
		m.box.stats.Strays++
		return
	}
	old := m.table.byPeer[peerID{in.peer, req.LocalID, false}]
	switch {
	case old == nil:
	case old.tid == in.tid && old.service == req.Service:
		m.repeatedREQ(old, out)
		return
	case old.state != TimeWait:
		in.refuse(req, mad.ReasonDuplicateID, out)
		return
	default: // the peer now uses the connection number for another connection
		m.forget(old, out)
	}
	m.box.stats.Requests++
	owner, known, ok := in.listener(req.Service)
	if reason := in.check(req); reason != 0 {
		in.refuse(req, reason, out)
		return
	}
	if !ok {
		reason := mad.ReasonInvalidService
		if known { // the kernel's connection manager gives this reason, too
			reason = mad.ReasonConsumer
		}
		in.refuse(req, reason, out)
		return
	}
	if stale := m.table.byRemote[peerQP{in.peer, req.QPN}]; stale != nil {
		m.box.stats.Stale++
		in.refuse(req, mad.ReasonStale, out)
		m.abortStale(in.now, stale, out)
		return
	}
	in.admit(req, owner, out)
}

// check returns the reason to refuse a request that no listener could accept; 0 means that there is
// no such reason.
func (in incoming) check(req *mad.REQ) mad.Reason {
	switch {
	case req.Type != mad.TypeRC && req.Type != mad.TypeUC && !req.XRC():
		return mad.ReasonInvalidType
	case req.MTU < minMTU || req.MTU > maxMTU:
		return mad.ReasonInvalidMTU
	case req.QPN < firstQPN || req.QPN > lastQPN:
		return mad.ReasonUnsupported
	case netip.AddrFrom16(req.Primary.RemoteGID).Unmap() != in.local:
		return mad.ReasonGIDRejected
	}
	return 0
}

// admit makes a connection for a new request and reports it to the listener's owner.
func (in incoming) admit(req *mad.REQ, owner uint64, out *Actions) {
	m := in.m
	var c *conn
	if m.table.requests < m.cfg.MaxRequests {
		c = m.table.newConn(&m.cfg, in.way())
	}
	if c == nil {
		in.refuse(req, mad.ReasonNoResources, out)
		return
	}
	m.table.step(c, rxREQ)
	m.table.requests++
	c.owner, c.service, c.tid = owner, req.Service, in.tid
	c.remoteID, c.remQPN, c.xrc = req.LocalID, req.QPN, req.XRC()
	c.timeout, c.maxTries, c.keep = min(req.LocalTimeout, maxAnswer), req.MaxCMRetries, req.Primary.AckTimeout
	m.table.bind(c)
	m.table.wait(c, in.now.Add(m.cfg.Pending))
	m.event(c, EventRequest, req, out)
}

// refuse refuses a request without making a connection.
func (in incoming) refuse(req *mad.REQ, reason mad.Reason, out *Actions) {
	m := in.m
	m.box.stats.Refused++
	rej := &mad.REJ{RemoteID: req.LocalID, About: mad.StageREQ, Reason: reason}
	if reason == mad.ReasonGIDRejected {
		gid := in.local.As16()
		rej.InfoLen = uint8(copy(rej.Info[:], gid[:])) // the GID to use instead
	}
	m.box.send(in.way(), in.tid, rej, out)
}

// repeatedREQ handles a request that was received before.
func (m *Machine) repeatedREQ(c *conn, out *Actions) {
	switch {
	case !m.table.step(c, rxREQ):
		m.box.stats.Strays++
	case c.state == REQRcvd:
		m.box.stats.Duplicates++
		m.sendMRA(c, mad.StageREQ, out)
	default:
		m.box.repeat(c, out, mad.AttrREP, mad.AttrREJ)
	}
}

// Accept is called after EventRequest, when this side's queue pair can receive. The caller fills in
// these fields of rep: queue pair and PSN, depths, RNR retry count, ACK delay and private data. The queue pair is
// a target if the request was for XRC.
func (m *Machine) Accept(now clock.Time, id mad.CommID, rep mad.REP, out *Actions) error {
	const op = "accept"
	if old := m.table.byQPN[rep.QPN]; old != nil {
		return verbs.Errorf(op, verbs.ErrBusy, "queue pair %#x has a connection in state %v", rep.QPN, old.state)
	}
	c, err := m.requested(op, id, onAccept)
	if err != nil {
		return err
	}
	rep.LocalID, rep.RemoteID, rep.LocalGUID = c.id, c.remoteID, m.cfg.GUID
	c.qpn = rep.QPN
	if c.xrc { // the number of a target has another place, and a target has shared receive queues (annex A14)
		rep.QPN, rep.LocalEECN, rep.SRQ = 0, uint32(rep.QPN), true
	}
	m.table.bind(c)
	m.box.put(c, c.tid, &rep, out)
	m.await(now, c)
	return nil
}

// handleRTU makes a connection established. If the connection has already ended here, the initiator
// has missed the REJ. In this case handleRTU sends the REJ again, because otherwise the initiator
// would keep the connection.
func (in incoming) handleRTU(rtu *mad.RTU, out *Actions) {
	m := in.m
	c := m.table.find(in, rtu.RemoteID, rtu.LocalID)
	switch {
	case c == nil:
		m.box.stats.Strays++
		m.box.send(in.way(), in.tid, &mad.REJ{
			LocalID: rtu.RemoteID, RemoteID: rtu.LocalID, About: mad.StageOther, Reason: mad.ReasonInvalidID,
		}, out)
	case c.state == TimeWait:
		m.box.repeat(c, out, mad.AttrREJ)
	default:
		m.established(c, rxRTU, out)
	}
}

// PacketSeen is called when the first RC packet of a connection arrives at a queue pair of this
// side before the RTU. The packet shows that the peer is ready, even if its RTU was lost or is late
// (IBTA 12.9.7.2, communication established).
func (m *Machine) PacketSeen(qpn wire.QPN, out *Actions) {
	if c := m.table.byQPN[qpn]; c != nil {
		m.established(c, onPacket, out)
	}
}

func (m *Machine) established(c *conn, on cause, out *Actions) {
	from := c.state
	switch {
	case !m.table.step(c, on):
		m.box.stats.Strays++
	case from == Established:
		m.box.stats.Duplicates++
	default:
		m.box.stats.Established++
		m.table.due.Remove(uint32(c.id))
		m.event(c, EventEstablished, nil, out)
	}
}
