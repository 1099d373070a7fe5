package engine

import (
	"math/rand/v2"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

const (
	// gsiQPN is the general services queue pair, to which all management datagrams go (IBTA 3.9.4).
	gsiQPN wire.QPN = 1
	// gsiQKey is its Q_Key (IBTA 16.7).
	gsiQKey = 0x80010000
)

// GSI is the general services queue pair with the connection manager behind it. Its methods that can send take the batch
// for the frames. A new incarnation of the NIC has a new one.
type GSI struct {
	e     *Engine
	m     *cm.Machine
	psn   wire.PSN
	acts  cm.Actions
	conns map[mad.CommID]*CMConn
	// listeners by owner of the machine's events; owners are numbered.
	listeners map[uint64]*CMListener
	owners    uint64
	// gone are queue pairs that were destroyed or reset, whose connections the next step ends.
	gone []wire.QPN
	// refused are requests that found the list of their listener full, within one step.
	refused []mad.CommID
	// unanswered are questions that nobody shall see, within one step.
	unanswered []refusedAsk
}

// GSI returns the general services queue pair. ErrClosed while the NIC is down.
func (e *Engine) GSI() (*GSI, error) {
	if err := alive("connection manager", !e.up); err != nil {
		return nil, err
	}
	if e.gsi != nil {
		return e.gsi, nil
	}
	m, err := cm.New(cm.Config{Rand: rand.New(rand.NewPCG(e.cfg.Rand.Uint64(), e.cfg.Rand.Uint64())), GUID: guid(e.cfg.MAC)})
	if err != nil {
		return nil, err
	}
	e.gsi = &GSI{
		e: e, m: m, psn: wire.PSN(e.cfg.Rand.Uint32()).Add(0),
		conns: make(map[mad.CommID]*CMConn), listeners: make(map[uint64]*CMListener),
	}
	return e.gsi, nil
}

// guid is the EUI-64 of a MAC: the name of the NIC in management datagrams.
func guid(m wire.MAC) uint64 {
	const universal, middle = 0x02, 0xfffe
	high := uint64(m[0]^universal)<<16 | uint64(m[1])<<8 | uint64(m[2])
	return high<<40 | middle<<24 | uint64(m[3])<<16 | uint64(m[4])<<8 | uint64(m[5])
}

// receiveMAD takes a packet to queue pair 1, which has passed all checks that do not depend on the queue pair.
func (e *Engine) receiveMAD(now clock.Time, b []byte, f *wire.Frame, out *packetio.Batch) {
	c := &e.counters
	switch {
	case f.BTH.Opcode != wire.UDSendOnly || f.DETH.SrcQP != gsiQPN:
		c.RxUnsupported++
		return
	case !samePartition(f.BTH.PKey, defaultPKey):
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
	g.m.Handle(now, f.DstAddr().Unmap(), f.SrcAddr().Unmap(), f.Payload, &g.acts)
	g.carryOut(now, out)
}

// gsiDeadline is when tickGSI has something to do.
func (e *Engine) gsiDeadline() clock.Time {
	switch {
	case e.gsi == nil:
		return clock.Never
	case len(e.gsi.gone) > 0:
		return 0
	}
	return e.gsi.m.Deadline()
}

// tickGSI does what is due.
func (e *Engine) tickGSI(now clock.Time, out *packetio.Batch) {
	if e.gsiDeadline() > now {
		return
	}
	g := e.gsi
	g.endGone(now)
	g.m.Tick(now, &g.acts)
	g.carryOut(now, out)
	e.drainLoop(now, out)
}

// endGone ends the connections of queue pairs that are gone.
func (g *GSI) endGone(now clock.Time) {
	for _, n := range g.gone {
		id, ok := g.m.ConnOf(n)
		if !ok {
			continue
		}
		if c := g.conns[id]; c != nil {
			c.gone = true // whoever waits for it learns of it here: there are no other news
			delete(g.conns, id)
			g.e.activity++
		}
		g.m.QPGone(now, n, &g.acts)
	}
	g.gone = g.gone[:0]
}

// gsiQPGone notes that a queue pair, which was destroyed or reset, cannot have a connection any more.
func (e *Engine) gsiQPGone(qp *QP) {
	qp.awaited = false
	if e.gsi == nil {
		return
	}
	if id, ok := e.gsi.m.ConnOf(qp.q.Num()); ok {
		e.gsi.gone = append(e.gsi.gone, qp.q.Num())
		if c := e.gsi.conns[id]; c != nil {
			c.qp = nil // what comes of this connection yet is no business of the queue pair's next one
		}
	}
}

// gsiPacketSeen notes the first packet of a connection whose RTU has not come yet.
func (e *Engine) gsiPacketSeen(now clock.Time, qp *QP, out *packetio.Batch) {
	qp.awaited = false
	if e.gsi != nil {
		e.gsi.m.PacketSeen(qp.q.Num(), &e.gsi.acts)
		e.gsi.carryOut(now, out)
	}
}

// gsiDown is the end of an incarnation.
func (e *Engine) gsiDown() {
	if e.gsi == nil {
		return
	}
	for _, c := range e.gsi.conns {
		c.dead = true
	}
	for _, l := range e.gsi.listeners {
		l.dead = true
	}
	e.gsi = nil
}

// carryOut does what a step of the machine asked for: it brings the records of connections up to date, takes queue pairs
// whose connection has ended into the error state, and sends.
func (g *GSI) carryOut(now clock.Time, out *packetio.Batch) {
	a := &g.acts
	for i := range a.Events {
		g.note(now, &a.Events[i], out)
	}
	for _, id := range g.refused {
		_ = g.m.Reject(now, id, cm.Refusal{Reason: mad.ReasonNoResources}, a) // it has just come
	}
	g.refused = g.refused[:0]
	g.refuseAsks(now)
	for i := range a.Tx {
		g.transmit(&a.Tx[i], out)
	}
	a.Reset()
}

// note brings the record of a connection up to date.
func (g *GSI) note(now clock.Time, ev *cm.Event, out *packetio.Batch) {
	g.e.activity++
	c := g.conns[ev.Conn]
	switch ev.Kind {
	case cm.EventRequest:
		g.request(ev)
		return
	case cm.EventResolve:
		g.asked(ev)
		return
	default: // is news of a record
	}
	if c == nil {
		return
	}
	switch ev.Kind {
	case cm.EventReply:
		c.Reply, _ = ev.Message.(*mad.REP)
	case cm.EventEstablished:
		c.Established = true
	case cm.EventRejected, cm.EventUnreachable, cm.EventDisconnected:
		c.End = ev.Kind
		c.Reject, _ = ev.Message.(*mad.REJ)
		g.failQP(now, c, out)
	case cm.EventClosed:
		c.gone = c.gone || c.Ask != nil // a question that nobody answered in time; those that were are nobody's business now
		delete(g.conns, ev.Conn)
	case cm.EventResolved:
		c.Answered, _ = ev.Message.(*mad.SIDRRep)
	case cm.EventRequest, cm.EventResolve: // were seen to
	}
}

// request makes the record of a new request.
func (g *GSI) request(ev *cm.Event) {
	l := g.listeners[ev.Owner]
	req, _ := ev.Message.(*mad.REQ)
	if l == nil || l.datagrams || len(l.waiting) >= l.limit {
		g.refused = append(g.refused, ev.Conn)
		return
	}
	c := &CMConn{ID: ev.Conn, Local: ev.Local, Peer: ev.Peer, Request: req, listener: l}
	g.conns[ev.Conn] = c
	l.waiting = append(l.waiting, c)
}

// failQP takes the queue pair of a connection that has ended into the error state: what is outstanding is flushed.
func (g *GSI) failQP(now clock.Time, c *CMConn, out *packetio.Batch) {
	qp := c.qp
	if qp == nil || qp.dead || !qp.receives() {
		return
	}
	qp.awaited = false
	_ = qp.q.ToError(now, &g.e.acts) // a live queue pair can always go to ERROR
	g.e.apply(now, qp, out)
}

// transmit builds the frame of one datagram. One that has nowhere to go is lost, and sent again like any other.
func (g *GSI) transmit(d *cm.Datagram, out *packetio.Batch) {
	e := g.e
	r, err := e.routeTo("send MAD", e.pathTo(d.Local, d.Remote), verbs.MTU256)
	if err != nil {
		return
	}
	f := &e.tx
	f.Eth, f.V6, f.UDP = r.eth, r.v6, r.udp
	f.UDP.SrcPort = datagramPort(gsiQPN)
	if r.v6 {
		f.IPv6 = r.ipv6
	} else {
		f.IPv4 = r.ipv4
		f.IPv4.ID = e.ipID
		e.ipID++
	}
	f.Packet = wire.Packet{
		BTH:  wire.BTH{Opcode: wire.UDSendOnly, PKey: defaultPKey, DestQP: gsiQPN, AckReq: true, PSN: g.psn},
		DETH: wire.DETH{QKey: gsiQKey, SrcQP: gsiQPN}, Payload: d.MAD[:],
	}
	g.psn = g.psn.Next()
	if r.local {
		out = &e.loop
	}
	b := f.AppendTo(out.Alloc(f.Len()))
	out.Add(0, b)
	e.counters.SentPkts++
	e.counters.SentBytes += uint64(len(b))
}

// pathTo is the address handle for datagrams between two addresses; one that is not the NIC's gives an invalid index.
func (e *Engine) pathTo(local, remote netip.Addr) verbs.AHAttr {
	a := verbs.AHAttr{DestGID: verbs.GIDOf(remote), SourceGID: -1}
	for i, g := range e.cfg.GIDs {
		if g.Addr() == local {
			a.SourceGID = i
		}
	}
	return a
}
