package engine

import (
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// CMConn is the record of one connection. The engine writes the fields; a reader must have
// exclusive use of the engine.
type CMConn struct {
	ID mad.CommID
	// Local is an IP address of this NIC, Peer one of the peer's NIC.
	Local, Peer netip.Addr
	// Request is the peer's REQ at the responder. Reply is the peer's REP at the initiator; nil
	// until it arrives.
	Request *mad.REQ
	Reply   *mad.REP
	// Ask is the peer's SIDR request for a datagram service. Answered is the peer's SIDR reply; nil
	// until it arrives.
	Ask      *mad.SIDRReq
	Answered *mad.SIDRRep
	// Established is set at the responder when the RTU, or the first RC packet of the initiator,
	// has arrived.
	Established bool
	// End says how the connection ended: cm.EventRejected, EventUnreachable, EventDisconnected or
	// EventUnanswered; 0 while it has not. Reject is the peer's REJ if the connection ended with one.
	// Left is set when the connection manager has removed the connection after its time-wait.
	End    cm.EventKind
	Reject *mad.REJ
	Left   bool

	watcher CMWatcher // nil means none
	qp      *QP       // this side's queue pair; nil if it is not known yet, or was destroyed or reset
	dead    bool      // the NIC has gone down
	gone    bool      // one of the other reasons that Dead names
}

// CMWatcher gets the changes of listeners and connections by calls of its methods, so that no
// goroutine has to wait for them. The engine calls these methods in the middle of a step, with
// exclusive use of the engine. They must not call the engine or its connection manager.
type CMWatcher interface {
	// Requested is called for a new connection request or SIDR request. If it returns true, the
	// watcher also watches c. If it returns false, the request is refused, and why is the reason.
	Requested(l *CMListener, c *CMConn) (why cm.Refusal, ok bool)
	// Changed is called when a field of c or the result of c.Dead has changed.
	Changed(c *CMConn)
	// Lost is called when the NIC has gone down: l receives no more requests.
	Lost(l *CMListener)
}

// Watch makes w the watcher of c. If c has already ended or was answered, Watch calls w.Changed at
// once.
func (c *CMConn) Watch(w CMWatcher) {
	if c.watcher = w; c.End != 0 || c.Dead() || c.Answered != nil {
		c.changed()
	}
}

func (c *CMConn) changed() {
	if c.watcher != nil {
		c.watcher.Changed(c)
	}
}

// Dead reports whether the NIC has gone down, this side's queue pair was destroyed or reset, or the
// connection manager has removed a peer's SIDR request.
func (c *CMConn) Dead() bool { return c.dead || c.gone }

// CMListener receives the requests for one service that arrive at some of the NIC's addresses.
type CMListener struct {
	service mad.ServiceID
	owner   uint64    // see GSI.listeners
	limit   int       // largest length of waiting
	waiting []*CMConn // requests that Next has not returned yet
	dead    bool
	// datagrams: the listener takes SIDR requests for a datagram service, not connection requests.
	datagrams bool
	watcher   CMWatcher // nil means none
}

// Watch makes w the watcher of l. From now on requests are passed to w instead of waiting in l.
func (l *CMListener) Watch(w CMWatcher) { l.watcher = w }

// admit passes a new request to the watcher. Without a watcher it puts the request into the list of
// waiting ones. If ok is false, the request must be refused, and why is the reason.
func (l *CMListener) admit(c *CMConn) (why cm.Refusal, ok bool) {
	switch {
	case l.watcher != nil:
		c.watcher = l.watcher
		return l.watcher.Requested(l, c)
	case len(l.waiting) >= l.limit:
		return cm.Refusal{Reason: mad.ReasonNoResources}, false
	}
	l.waiting = append(l.waiting, c)
	return why, true
}

// Dead reports whether the listener was closed or the NIC went down.
func (l *CMListener) Dead() bool { return l.dead }

// Next removes and returns the oldest waiting request that has not ended; nil if there is none.
func (l *CMListener) Next() *CMConn {
	for len(l.waiting) > 0 {
		c := l.waiting[0]
		l.waiting = slices.Delete(l.waiting, 0, 1)
		if c.End == 0 && !c.Dead() {
			return c
		}
	}
	return nil
}

func (g *GSI) Stats() cm.Stats { return g.m.Stats() }

// Conns returns the number of connections that have not ended, and the number of ended ones whose
// communication IDs are still reserved (time-wait).
func (g *GSI) Conns() (live, ended int) { return g.m.Conns() }

// Notify changes Engine.Activity, so that the shell checks again whether waiting goroutines can go
// on.
func (g *GSI) Notify() { g.e.Events.activity++ }

// Listen returns a listener for the requests for a service that arrive at an address of the NIC in
// the prefix `at`. The zero Prefix means all addresses of the NIC. Up to backlog requests may wait
// for Next.
func (g *GSI) Listen(s mad.ServiceID, at netip.Prefix, backlog int) (*CMListener, error) {
	g.owners++
	if err := g.m.Listen(s, at, g.owners); err != nil {
		return nil, err
	}
	l := &CMListener{service: s, owner: g.owners, limit: backlog}
	g.listeners[l.owner] = l
	return l, nil
}

// Unlisten ends a listener and rejects the requests that wait in it.
func (g *GSI) Unlisten(now clock.Time, l *CMListener, out *packetio.Batch) {
	if l.dead {
		return
	}
	l.dead = true
	g.e.Events.activity++
	g.m.Unlisten(l.service, l.owner)
	delete(g.listeners, l.owner)
	for c := l.Next(); c != nil; c = l.Next() {
		g.Abort(now, c, out)
	}
}

// Connect sends a connection request for the queue pair that req names. cm.Machine.Connect says
// what req must contain.
func (g *GSI) Connect(now clock.Time, local, peer netip.Addr, req mad.REQ, out *packetio.Batch) (*CMConn, error) {
	const op = "connect"
	qp := g.e.Tables.qps[req.QPN]
	if qp == nil {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "this NIC has no queue pair %#x", req.QPN)
	}
	if err := g.e.Port.checkPKey(op, req.PKey); err != nil {
		return nil, err
	}
	r, err := g.e.Port.routeTo(op, g.e.Port.pathTo(local, peer), verbs.MTU256)
	if err != nil {
		return nil, err
	}
	if req.Primary.HopLimit == 0 {
		req.Primary.HopLimit = max(r.ipv4.TTL, r.ipv6.HopLimit)
	}
	// endGone ends connections whose queue pairs were destroyed or reset. One of them may be the
	// previous connection of this queue pair.
	g.endGone(now)
	id, err := g.m.Connect(now, 0, local, peer, req, &g.acts)
	return g.begun(now, &CMConn{ID: id, Local: local, Peer: peer, qp: qp}, err, out)
}

// begun ends the step in which the connection manager has sent the first message for c. With an
// error it has sent none, and begun returns the error instead of c.
func (g *GSI) begun(now clock.Time, c *CMConn, err error, out *packetio.Batch) (*CMConn, error) {
	if err == nil {
		g.conns[c.ID] = c
	}
	g.carryOut(now, out)
	if err != nil {
		return nil, err
	}
	g.e.drainLoop(now, out)
	return c, nil
}

// Accept accepts a request for the queue pair that rep names, which the caller has moved to RTS.
// cm.Machine.Accept says what rep must contain.
func (g *GSI) Accept(now clock.Time, c *CMConn, rep mad.REP, out *packetio.Batch) error {
	const op = "accept"
	qp := g.e.Tables.qps[rep.QPN]
	if qp == nil {
		return verbs.Errorf(op, verbs.ErrInvalid, "this NIC has no queue pair %#x", rep.QPN)
	}
	return g.do(now, op, c, out, func() error {
		g.endGone(now)
		if err := g.m.Accept(now, c.ID, rep, &g.acts); err != nil {
			return err
		}
		c.qp, qp.awaited = qp, true
		return nil
	})
}

// Reject refuses a peer's request, or a reply to this side's request.
func (g *GSI) Reject(now clock.Time, c *CMConn, why cm.Refusal, out *packetio.Batch) error {
	return g.do(now, "reject", c, out, func() error {
		return g.m.Reject(now, c.ID, why, &g.acts)
	})
}

// Ready sends the RTU. The initiator calls it after it has got the Reply and has moved its queue
// pair to RTS.
func (g *GSI) Ready(now clock.Time, c *CMConn, out *packetio.Batch) error {
	return g.do(now, "ready", c, out, func() error { return g.m.Ready(c.ID, &g.acts) })
}

// Disconnect ends an established connection. Its queue pair goes to ERROR when the peer has
// answered or the retries are used up.
func (g *GSI) Disconnect(now clock.Time, c *CMConn, out *packetio.Batch) error {
	return g.do(now, "disconnect", c, out, func() error { return g.m.Disconnect(now, c.ID, &g.acts) })
}

// Abort ends a connection in any state. From then on the engine does not change c.
func (g *GSI) Abort(now clock.Time, c *CMConn, out *packetio.Batch) {
	_ = g.do(now, "abort", c, out, func() error { // fails only after the NIC went down, which has ended the connection
		g.m.Abort(now, c.ID, &g.acts)
		delete(g.conns, c.ID)
		return nil
	})
}

// do calls f, which makes one step of the connection manager for connection c, and carries out the
// actions of this step.
func (g *GSI) do(now clock.Time, op string, c *CMConn, out *packetio.Batch, f func() error) error {
	if err := alive(op, c.dead); err != nil {
		return err
	}
	err := f()
	g.carryOut(now, out)
	g.e.drainLoop(now, out)
	return err
}

// ConnOf returns the record of a queue pair's connection; nil if this connection manager has made
// none for it.
func (g *GSI) ConnOf(n wire.QPN) *CMConn {
	if id, ok := g.m.ConnOf(n); ok {
		return g.conns[id]
	}
	return nil
}

// Route returns an error that says why datagrams cannot be sent from an address of this NIC to a
// peer; nil if they can.
func (g *GSI) Route(local, peer netip.Addr) error {
	_, err := g.e.Port.routeTo("resolve", g.e.Port.pathTo(local, peer), verbs.MTU256)
	return err
}
