package engine

import (
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

const (
	// gsiQPN is the number of the general services queue pair, to which all management datagrams go
	// (IBTA 3.9.4).
	gsiQPN wire.QPN = 1
	// gsiQKey is the Q_Key of the general services queue pair (IBTA 16.7).
	gsiQKey = 0x80010000
)

// GSI is the general services queue pair with the connection manager. Methods that can send append
// frames to the batch out. Each incarnation of the NIC has its own GSI.
type GSI struct {
	e     *Engine
	m     *cm.Machine
	psn   wire.PSN   // of the next datagram
	acts  cm.Actions // the actions of the present step of m
	conns map[mad.CommID]*CMConn
	// listeners has each listener by its owner number, by which events of the connection manager m
	// name the listener (cm.Event.Owner).
	listeners map[uint64]*CMListener
	owners    uint64 // the owner number that was assigned last
	// gone are queue pairs that were destroyed or reset: the next step ends their connections.
	gone []wire.QPN
	// refused are requests of the current step that the engine refuses itself, without passing them
	// to an application.
	refused []refusal
}

// GSI returns the general services queue pair. It fails with ErrClosed while the NIC is down.
func (e *Engine) GSI() (*GSI, error) {
	if err := alive("connection manager", !e.Tables.up); err != nil {
		return nil, err
	}
	if e.gsi != nil {
		return e.gsi, nil
	}
	m, err := cm.New(cm.Config{
		Rand: rand.New(rand.NewPCG(e.cfg.Rand.Uint64(), e.cfg.Rand.Uint64())), GUID: verbs.EUI64(e.cfg.MAC), ResponseTimeout: e.cfg.CMTimeout,
	})
	if err != nil {
		return nil, err
	}
	e.gsi = &GSI{
		e: e, m: m, psn: wire.PSN(e.cfg.Rand.Uint32()).Add(0),
		conns: make(map[mad.CommID]*CMConn), listeners: make(map[uint64]*CMListener),
	}
	return e.gsi, nil
}

// receiveMAD handles a packet to queue pair 1 after all checks that do not depend on the queue
// pair.
func (e *Engine) receiveMAD(now clock.Time, b []byte, f *wire.Frame, out *packetio.Batch) {
	c := &e.counters
	own, member := verbs.PKeyIndex(e.cfg.PKeys, f.BTH.PKey) // the P_Key may match any entry of the port's table (IBTA 10.9.3)
	switch {
	case f.BTH.Opcode != wire.UDSendOnly || f.DETH.SrcQP != gsiQPN:
		c.RxUnsupported++
		return
	case !member:
		c.RxPkeyErr++
		return
	case f.DETH.QKey != gsiQKey:
		c.QKeyErr++
		return
	}
	g, err := e.GSI()
	if err != nil {
		return
	}
	c.RcvdPkts++
	c.RcvdBytes += uint64(len(b))
	g.m.Handle(now, cm.Way{Local: f.DstAddr().Unmap(), Peer: f.SrcAddr().Unmap(), PKey: e.cfg.PKeys[own]}, f.Payload, &g.acts)
	g.carryOut(now, out)
}

// deadline returns when tick must be called. g is nil while the connection manager is not in use.
// Then deadline returns clock.Never, and the methods tick, qpGone, packetSeen and down do nothing.
func (g *GSI) deadline() clock.Time {
	switch {
	case g == nil:
		return clock.Never
	case len(g.gone) > 0:
		return 0
	}
	return g.m.Deadline()
}

func (g *GSI) tick(now clock.Time, out *packetio.Batch) {
	if g.deadline() > now {
		return
	}
	g.endGone(now)
	g.m.Tick(now, &g.acts)
	g.carryOut(now, out)
	g.e.drainLoop(now, out)
}

// endGone ends the connections of queue pairs that were destroyed or reset.
func (g *GSI) endGone(now clock.Time) {
	for _, n := range g.gone {
		id, ok := g.m.ConnOf(n)
		if !ok {
			continue
		}
		c := g.conns[id]
		if c != nil && c.watcher != nil && g.m.Unbind(now, n, &g.acts) {
			continue // the watcher gets the events of the end
		}
		if c != nil {
			c.gone = true // the connection manager reports no event, so this ends the wait of the connection's goroutine
			delete(g.conns, id)
			g.e.Events.activity++
			c.changed()
		}
		g.m.QPGone(now, n, &g.acts)
	}
	g.gone = g.gone[:0]
}

// qpGone is called when a queue pair is destroyed or reset: its connection must end.
func (g *GSI) qpGone(qp *QP) {
	qp.awaited = false
	if g == nil {
		return
	}
	if id, ok := g.m.ConnOf(qp.q.Num()); ok {
		g.gone = append(g.gone, qp.q.Num())
		if c := g.conns[id]; c != nil {
			c.qp = nil // so that later events of this connection cannot end the queue pair's next connection
		}
	}
}

// packetSeen is called for the first RC packet of a connection whose RTU has not arrived yet.
func (g *GSI) packetSeen(now clock.Time, qp *QP, out *packetio.Batch) {
	qp.awaited = false
	if g != nil {
		g.m.PacketSeen(qp.q.Num(), &g.acts)
		g.carryOut(now, out)
	}
}

// down ends all connections and listeners. It is called at the end of an incarnation.
func (g *GSI) down() {
	if g == nil {
		return
	}
	for _, c := range g.conns {
		c.dead = true
		c.changed()
	}
	for _, l := range g.listeners {
		l.dead = true
		if l.watcher != nil {
			l.watcher.Lost(l)
		}
	}
}

// carryOut carries out the actions of a step of the connection manager: it updates the records of
// connections (CMConn), moves queue pairs whose connection has ended to the error state, and sends
// datagrams.
func (g *GSI) carryOut(now clock.Time, out *packetio.Batch) {
	a := &g.acts
	for i := 0; i < len(a.Events); {
		for ; i < len(a.Events); i++ {
			g.note(now, &a.Events[i], out)
		}
		g.refuse(now) // a refusal may end connections in time-wait, which adds events to a.Events
	}
	for i := range a.Tx {
		g.transmit(&a.Tx[i], out)
	}
	a.Reset()
}

// refusal is a request that the engine answers itself. If status is not 0, it is a SIDR request,
// which the engine answers with this status. Otherwise it is a connection request, which the engine
// rejects for the reason `why`.
type refusal struct {
	id     mad.CommID
	why    cm.Refusal
	status mad.SIDRStatus
}

func (g *GSI) refuse(now clock.Time) {
	for _, r := range g.refused { // no call can fail: the connection manager has just reported the request
		if r.status != 0 {
			_ = g.m.Answer(now, r.id, mad.SIDRRep{Status: r.status}, &g.acts)
		} else {
			_ = g.m.Reject(now, r.id, r.why, &g.acts)
		}
	}
	g.refused = g.refused[:0]
}

// note handles an event of the connection manager: it makes the record (CMConn) of a new
// connection, or updates that of an existing one.
func (g *GSI) note(now clock.Time, ev *cm.Event, out *packetio.Batch) {
	g.e.Events.activity++
	c := g.conns[ev.Conn]
	switch ev.Kind {
	case cm.EventRequest:
		g.request(ev)
		return
	case cm.EventResolve:
		g.asked(ev)
		return
	default: // all other events are about a known connection; a connection that the engine has refused has no CMConn
	}
	if c == nil {
		return
	}
	switch ev.Kind {
	case cm.EventReply:
		c.Reply, _ = ev.Message.(*mad.REP)
	case cm.EventEstablished:
		c.Established = true
	case cm.EventRejected, cm.EventUnreachable, cm.EventDisconnected, cm.EventUnanswered:
		c.End = ev.Kind
		c.Reject, _ = ev.Message.(*mad.REJ)
		g.failQP(now, c, out)
	case cm.EventClosed:
		c.Left = true
		c.gone = c.gone || c.Ask != nil // the connection manager has removed a SIDR request, answered or not
		delete(g.conns, ev.Conn)
	case cm.EventResolved:
		c.Answered, _ = ev.Message.(*mad.SIDRRep)
	case cm.EventRequest, cm.EventResolve: // handled above
	}
	c.changed()
}

// request handles a connection request of a peer: it makes the record (CMConn) of the connection,
// or adds the request to g.refused.
func (g *GSI) request(ev *cm.Event) {
	l := g.listeners[ev.Owner]
	req, _ := ev.Message.(*mad.REQ)
	c := &CMConn{ID: ev.Conn, Local: ev.Local, Peer: ev.Peer, Request: req}
	why, ok := cm.Refusal{Reason: mad.ReasonNoResources}, false
	if _, member := verbs.PKeyIndex(g.e.cfg.PKeys, req.PKey); !member {
		why.Reason = mad.ReasonUnsupported // this port is not in the partition of the connection
	} else if l != nil && !l.datagrams {
		why, ok = l.admit(c)
	}
	if !ok {
		g.refused = append(g.refused, refusal{id: ev.Conn, why: why})
		return
	}
	g.conns[ev.Conn] = c
}

// failQP moves the queue pair of an ended connection to the error state, which flushes its work
// requests.
func (g *GSI) failQP(now clock.Time, c *CMConn, out *packetio.Batch) {
	qp := c.qp
	if qp == nil || qp.dead || !qp.receives() {
		return
	}
	qp.awaited = false
	_ = qp.q.Fail(now, reason.ByManager, &g.e.acts) // cannot fail: the queue pair is in neither RESET nor ERROR
	g.e.apply(now, qp, out)
}

// transmit builds the frame of one datagram. If there is no route, it drops the datagram, which the
// connection manager retransmits like one that the network has lost.
func (g *GSI) transmit(d *cm.Datagram, out *packetio.Batch) {
	e := g.e
	r, err := e.Port.routeTo("send MAD", e.Port.pathTo(d.Local, d.Remote), verbs.MTU256)
	if err != nil {
		return
	}
	e.tx.head(&r, datagramPort(gsiQPN))
	p := wire.Packet{
		BTH:  wire.BTH{Opcode: wire.UDSendOnly, PKey: d.PKey, DestQP: gsiQPN, AckReq: true, PSN: g.psn},
		DETH: wire.DETH{QKey: gsiQKey, SrcQP: gsiQPN}, Payload: d.MAD[:],
	}
	g.psn = g.psn.Next()
	e.tx.emit(&p, &r, out, &e.counters)
}
