package cm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Resolve asks a peer for the queue pair of a datagram service. The caller fills in service, P_Key
// and private data of req. EventResolved or EventUnreachable follows.
func (m *Machine) Resolve(now clock.Time, owner uint64, local, peer netip.Addr, req mad.SIDRReq, out *Actions) (mad.CommID, error) {
	const op = "resolve"
	if local.Is4() != peer.Is4() || !local.IsValid() {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "addresses %v and %v are of different families", local, peer)
	}
	c := m.table.newConn(&m.cfg, Way{local, peer, req.PKey})
	if c == nil {
		return 0, verbs.Errorf(op, verbs.ErrLimit, "%d connections exist; end one of them first", m.cfg.MaxConns)
	}
	m.table.step(c, onResolve)
	c.owner, c.service, c.tid, c.sidr = owner, req.Service, m.box.newTID(), true
	c.timeout, c.maxTries = m.cfg.ResponseTimeout, m.cfg.MaxRetries
	req.RequestID = c.id
	m.box.put(c, c.tid, &req, out)
	m.await(now, c)
	return c.id, nil
}

// handleSIDRReq handles a request for the queue pair of a datagram service (IBTA 12.11).
func (in incoming) handleSIDRReq(req *mad.SIDRReq, out *Actions) {
	m := in.m
	if c := m.table.byPeer[peerID{in.peer, req.RequestID, true}]; c != nil {
		switch {
		case !m.table.step(c, rxSIDRReq):
			m.box.stats.Strays++
		case c.state == TimeWait:
			m.box.repeat(c, out, mad.AttrSIDRRep)
		default: // the application has not answered yet
			m.box.stats.Duplicates++
		}
		return
	}
	m.box.stats.Requests++
	var c *conn
	owner, known, ok := in.listener(req.Service)
	if ok && req.RequestID != 0 && m.table.requests < m.cfg.MaxRequests {
		c = m.table.newConn(&m.cfg, in.way())
	}
	if c == nil {
		status := mad.SIDRNoQP
		if !known {
			status = mad.SIDRUnsupported
		}
		m.box.stats.Refused++
		m.box.send(in.way(), in.tid, &mad.SIDRRep{RequestID: req.RequestID, Status: status, Service: req.Service}, out)
		return
	}
	m.table.step(c, rxSIDRReq)
	m.table.requests++
	c.owner, c.service, c.tid, c.sidr, c.remoteID = owner, req.Service, in.tid, true, req.RequestID
	m.table.bind(c)
	m.table.wait(c, in.now.Add(m.cfg.Pending))
	m.event(c, EventResolve, req, out)
}

// Answer is called after EventResolve. The caller fills in status, queue pair, Q_Key and private
// data of rep.
func (m *Machine) Answer(now clock.Time, id mad.CommID, rep mad.SIDRRep, out *Actions) error {
	c, err := m.requested("answer", id, onAnswer)
	if err != nil {
		return err
	}
	m.answer(now, c, rep, out)
	return nil
}

func (m *Machine) answer(now clock.Time, c *conn, rep mad.SIDRRep, out *Actions) {
	rep.RequestID, rep.Service = c.remoteID, c.service
	m.box.put(c, c.tid, &rep, out)
	m.enterTimeWait(now, c, out)
}

func (in incoming) handleSIDRRep(rep *mad.SIDRRep, out *Actions) {
	m := in.m
	c := m.table.conns[rep.RequestID]
	if c == nil || c.peer != in.peer || !c.sidr || c.tid != in.tid || !m.table.step(c, rxSIDRRep) {
		m.box.stats.Strays++
		return
	}
	m.event(c, EventResolved, rep, out)
	m.forget(c, out)
}
