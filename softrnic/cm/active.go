package cm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Connect sends a connection request to a peer. The caller fills in these fields of req: service,
// queue pair and PSN, type of service, depths, retry counts, MTU, P_Key, Primary's traffic class, hop limit and ACK
// timeout, and private data. Connect fills in the rest. The events of the connection go to owner.
func (m *Machine) Connect(now clock.Time, owner uint64, local, peer netip.Addr, req mad.REQ, out *Actions) (mad.CommID, error) {
	const op = "connect"
	if local.Is4() != peer.Is4() || !local.IsValid() {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "addresses %v and %v are of different families", local, peer)
	}
	if old := m.table.byQPN[req.QPN]; old != nil {
		return 0, verbs.Errorf(op, verbs.ErrBusy, "queue pair %#x has a connection in state %v", req.QPN, old.state)
	}
	c := m.table.newConn(&m.cfg, Way{local, peer, req.PKey})
	if c == nil {
		return 0, verbs.Errorf(op, verbs.ErrLimit, "%d connections exist; end one of them first", m.cfg.MaxConns)
	}
	m.table.step(c, onConnect)
	c.owner, c.service, c.qpn, c.tid, c.xrc = owner, req.Service, req.QPN, m.box.newTID(), req.XRC()
	c.timeout, c.maxTries, c.keep = m.cfg.ResponseTimeout, m.cfg.MaxRetries, req.Primary.AckTimeout
	req.LocalID, req.LocalGUID = c.id, m.cfg.GUID
	req.RemoteTimeout, req.LocalTimeout, req.MaxCMRetries = c.timeout, m.cfg.OwnTimeout, c.maxTries
	req.Primary.LocalLID, req.Primary.RemoteLID = permissiveLID, permissiveLID
	req.Primary.LocalGID, req.Primary.RemoteGID = local.As16(), peer.As16()
	m.table.bind(c)
	m.box.put(c, c.tid, &req, out)
	m.await(now, c)
	return c.id, nil
}

// permissiveLID is the value of LIDs with RoCE, which has none (A17.8).
const permissiveLID = 0xffff

// await starts the wait for the answer to the message that connection c has sent last.
func (m *Machine) await(now clock.Time, c *conn) {
	c.retries = c.maxTries
	m.table.wait(c, now.Add(interval(c.timeout)))
}

// handleREP handles a REP: the peer accepts a request of this side (IBTA 12.9.8.2).
func (in incoming) handleREP(rep *mad.REP, out *Actions) {
	m := in.m
	c := m.table.find(in, rep.RemoteID, rep.LocalID)
	if c == nil {
		// The peer has accepted a connection that this side does not know, for example after a restart.
		m.box.stats.Strays++
		m.box.send(in.way(), in.tid, &mad.REJ{
			LocalID: rep.RemoteID, RemoteID: rep.LocalID, About: mad.StageREP, Reason: mad.ReasonInvalidID,
		}, out)
		return
	}
	if c.xrc {
		rep.QPN = wire.QPN(rep.LocalEECN)
	}
	from := c.state
	switch {
	case (from == REQSent || from == REPWait) && in.staleREP(c, rep, out):
		return
	case !m.table.step(c, rxREP):
		m.box.stats.Strays++
		return
	}
	switch from {
	case REQSent, REPWait:
		c.remoteID, c.remQPN = rep.LocalID, rep.QPN
		m.table.bind(c)
		m.table.due.Remove(uint32(c.id)) // no timeout runs while the application decides
		m.event(c, EventReply, rep, out)
	case REPRcvd:
		m.box.stats.Duplicates++
		m.sendMRA(c, mad.StageREP, out)
	default:
		m.box.repeat(c, out, mad.AttrRTU, mad.AttrREJ)
	}
}

// staleREP refuses a REP that names a peer's queue pair which already has another connection (IBTA
// 12.9.8.3.1), and ends both connections. For any other REP it does nothing and returns false.
func (in incoming) staleREP(c *conn, rep *mad.REP, out *Actions) bool {
	m := in.m
	old := m.table.byRemote[peerQP{c.peer, rep.QPN}]
	if old == nil || old == c {
		return false
	}
	m.box.stats.Stale++
	m.table.step(c, rxREP)
	m.table.step(c, onReject)
	c.remoteID = rep.LocalID
	rej := &mad.REJ{LocalID: c.id, RemoteID: rep.LocalID, About: mad.StageREP, Reason: mad.ReasonStale}
	m.box.put(c, c.tid, rej, out)
	m.event(c, EventRejected, rej, out)
	m.enterTimeWait(in.now, c, out)
	m.abortStale(in.now, old, out)
	return true
}

// Ready is called after EventReply, when this side's queue pair is in RTS. It sends the RTU.
func (m *Machine) Ready(id mad.CommID, out *Actions) error {
	c, err := m.requested("ready", id, onReady)
	if err != nil {
		return err
	}
	m.box.stats.Established++
	m.box.put(c, c.tid, &mad.RTU{LocalID: c.id, RemoteID: c.remoteID}, out)
	return nil
}

// handleMRA extends the wait for an answer by the peer's service timeout, which the MRA has (IBTA
// 12.6.6).
func (in incoming) handleMRA(mra *mad.MRA) {
	m := in.m
	c := m.table.find(in, mra.RemoteID, mra.LocalID)
	if c == nil || (mra.About == mad.StageREQ) != (c.state == REQSent || c.state == REPWait) || !m.table.step(c, rxMRA) {
		m.box.stats.Strays++
		return
	}
	m.table.wait(c, in.now.Add(interval(mra.Timeout)+interval(c.timeout)))
}

func (m *Machine) sendMRA(c *conn, about mad.Stage, out *Actions) {
	m.box.send(c.way(), c.tid, &mad.MRA{
		LocalID: c.id, RemoteID: c.remoteID, About: about, Timeout: m.cfg.ServiceTimeout,
	}, out)
}
