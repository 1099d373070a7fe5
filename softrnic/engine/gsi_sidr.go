package engine

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// A datagram service has no connections: a SIDR request asks for its queue pair, and a SIDR reply
// names it (IBTA 12.11). Both sides keep a CMConn as the record of such a request.

// ListenDatagrams is like Listen, but for the SIDR requests for a datagram service. The field Ask
// of the records that the listener returns is the request.
func (g *GSI) ListenDatagrams(s mad.ServiceID, at netip.Prefix, backlog int) (*CMListener, error) {
	l, err := g.Listen(s, at, backlog)
	if err == nil {
		l.datagrams = true
	}
	return l, err
}

// Resolve asks a peer for the queue pair of a datagram service. cm.Machine.Resolve says what req
// must contain. The answer is in the record's field Answered; if none comes, End is
// cm.EventUnreachable.
func (g *GSI) Resolve(now clock.Time, local, peer netip.Addr, req mad.SIDRReq, out *packetio.Batch) (*CMConn, error) {
	const op = "resolve"
	if err := g.e.Port.checkPKey(op, req.PKey); err != nil {
		return nil, err
	}
	if _, err := g.e.Port.routeTo(op, g.e.Port.pathTo(local, peer), verbs.MTU256); err != nil {
		return nil, err
	}
	id, err := g.m.Resolve(now, 0, local, peer, req, &g.acts)
	return g.begun(now, &CMConn{ID: id, Local: local, Peer: peer}, err, out)
}

// Answer sends the answer to a peer's SIDR request. cm.Machine.Answer says what rep must contain.
func (g *GSI) Answer(now clock.Time, c *CMConn, rep mad.SIDRRep, out *packetio.Batch) error {
	return g.do(now, "answer", c, out, func() error { return g.m.Answer(now, c.ID, rep, &g.acts) })
}

// asked handles a SIDR request of a peer: it makes the record (CMConn) of the request, or adds the
// request to g.refused.
func (g *GSI) asked(ev *cm.Event) {
	l := g.listeners[ev.Owner]
	ask, _ := ev.Message.(*mad.SIDRReq)
	c := &CMConn{ID: ev.Conn, Local: ev.Local, Peer: ev.Peer, Ask: ask}
	status := mad.SIDRUnsupported
	if _, member := verbs.PKeyIndex(g.e.cfg.PKeys, ask.PKey); member && l != nil && l.datagrams {
		if _, ok := l.admit(c); ok {
			g.conns[ev.Conn] = c
			return
		}
		status = mad.SIDRNoQP
	}
	g.refused = append(g.refused, refusal{id: ev.Conn, status: status})
}
