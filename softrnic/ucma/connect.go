package ucma

import (
	"cmp"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// maxRetry is the largest value of the 3-bit fields of a REQ.
const maxRetry = 7

// private returns the program's private data. It fails if they do not fit into a message.
func (p *connParam) private(room int) ([]byte, error) {
	if int(p.PrivateLen) > room {
		return nil, unix.EINVAL
	}
	return p.Private[:p.PrivateLen], nil
}

// qpn returns the number of the program's queue pair. Like a kernel, it takes the 24 bits that a number has
// (ucma_copy_conn_param).
func (p *connParam) qpn() wire.QPN { return wire.QPN(p.QPN & 0xffffff) }

// connect executes Connect: it sends a connection request, or a SIDR request for a datagram
// service.
func (m *Manager) connect(c call, x *id, a connect) (Result, error) {
	switch {
	case !x.may(onConnect):
		return Result{}, unix.EINVAL
	case c.NIC == nil:
		return Result{}, unix.ENODEV
	}
	var conn *engine.CMConn
	var err error
	if x.datagrams() {
		conn, err = m.question(c, x, &a.Param)
	} else {
		conn, err = m.request(c, x, &a.Param)
	}
	if err != nil {
		return Result{}, err
	}
	x.step(onConnect)
	x.conn, m.nic.conns[conn] = conn, x
	conn.Watch(&m.nic)
	return Result{}, nil
}

// header appends to b the header of RDMA-CM that precedes the program's private data.
func (x *id) header(b []byte) []byte {
	ip := mad.IPData{SrcPort: x.src.Port(), Src: x.src.Addr(), Dst: x.dst.Addr()}
	return ip.AppendTo(b)
}

// request sends a REQ.
func (m *Manager) request(c call, x *id, p *connParam) (*engine.CMConn, error) {
	private, err := p.private(mad.REQPrivate - mad.IPDataLen)
	if err != nil {
		return nil, err
	}
	qpn := p.qpn()
	service, ok := services[x.qpType]
	if !ok || !m.cfg.Owns(qpn) {
		return nil, unix.EINVAL
	}
	t := &x.terms
	t.psn, t.retry, t.rnrRetry = m.cfg.newPSN(), min(p.Retry, maxRetry), min(p.RNRRetry, maxRetry)
	t.resources, t.depth = p.Resources, p.Depth
	req := mad.REQ{
		Service: x.service(x.dst.Port()), QPN: qpn, PSN: t.psn, ResponderResources: p.Resources, InitiatorDepth: p.Depth,
		Retry: t.retry, RNRRetry: t.rnrRetry, PKey: m.cfg.pkey(t.pkeyIndex), MTU: t.mtu, SRQ: p.SRQ != 0, FlowControl: p.FlowControl != 0,
		Primary: mad.Path{TrafficClass: x.options.tos, AckTimeout: t.ackTimeout}, Type: service.typ, ExtendedType: service.extended,
	}
	if req.XRC() { // an initiator has nothing to answer, and says nothing of how its peer retries
		req.ResponderResources, req.Retry, req.RNRRetry, req.SRQ = 0, 0, 0, false
	}
	copy(req.Private[len(x.header(req.Private[:0])):], private)
	return c.NIC.Connect(c.Now, x.src.Addr(), x.dst.Addr(), req, c.Out)
}

// question sends a SIDR_REQ, which asks for the queue pair of a datagram service.
func (m *Manager) question(c call, x *id, p *connParam) (*engine.CMConn, error) {
	private, err := p.private(mad.SIDRReqPrivate - mad.IPDataLen)
	if err != nil {
		return nil, err
	}
	req := mad.SIDRReq{Service: x.service(x.dst.Port()), PKey: m.cfg.pkey(x.terms.pkeyIndex)}
	copy(req.Private[len(x.header(req.Private[:0])):], private)
	return c.NIC.Resolve(c.Now, x.src.Addr(), x.dst.Addr(), req, c.Out)
}

// accept executes Accept: it accepts a peer's request. On the initiator's side, the program gives
// this command when its queue pair is ready; then accept sends the RTU.
func (m *Manager) accept(c call, x *id, a accept) (Result, error) {
	switch {
	case c.NIC == nil:
		return Result{}, unix.ENODEV
	case a.Param.Valid == 0 && x.may(onReady):
		if err := c.NIC.Ready(c.Now, x.conn, c.Out); err != nil {
			return Result{}, err
		}
		x.step(onReady)
		return Result{}, nil
	case a.Param.Valid == 0 || !x.may(onAccept):
		return Result{}, unix.EINVAL
	}
	var err error
	before := x.uid
	x.uid = a.UID
	x.step(onAccept) // before the call, because the NIC may report further events in it
	if x.datagrams() {
		err = m.answer(c, x, &a.Param)
	} else {
		err = m.reply(c, x, &a.Param)
	}
	if err != nil {
		if x.uid = before; x.state == Accepted {
			x.state = Requested
		}
		return Result{}, err
	}
	x.answered()
	return Result{}, nil
}

// reply sends a REP.
func (m *Manager) reply(c call, x *id, p *connParam) error {
	private, err := p.private(mad.REPPrivate)
	if err != nil {
		return err
	}
	if !m.cfg.Owns(p.qpn()) {
		return unix.EINVAL
	}
	rep := mad.REP{
		QPN: p.qpn(), PSN: x.terms.psn, ResponderResources: p.Resources, InitiatorDepth: p.Depth, AckDelay: cm.AckDelay,
		RNRRetry: min(p.RNRRetry, maxRetry), SRQ: p.SRQ != 0, FlowControl: p.FlowControl != 0,
	}
	if x.qpType == typeXRCTarget {
		rep.InitiatorDepth, rep.FlowControl = 0, false
	}
	copy(rep.Private[:], private)
	return c.NIC.Accept(c.Now, x.conn, rep, c.Out)
}

// answer sends a SIDR_REP.
func (m *Manager) answer(c call, x *id, p *connParam) error {
	private, err := p.private(mad.SIDRRepPrivate)
	if err != nil {
		return err
	}
	if !m.cfg.Owns(p.qpn()) {
		return unix.EINVAL
	}
	x.terms.qkey = cmp.Or(p.QKey, x.terms.qkey)
	rep := mad.SIDRRep{Status: mad.SIDRValid, QPN: p.qpn(), QKey: x.qkey()}
	copy(rep.Private[:], private)
	return c.NIC.Answer(c.Now, x.conn, rep, c.Out)
}

// reject executes Reject: it refuses a peer's request or, on the initiator's side, the peer's
// reply.
func (m *Manager) reject(c call, x *id, a reject) (Result, error) {
	var err error
	switch {
	case x.state != Requested && x.state != Answered:
		return Result{}, unix.EINVAL
	case c.NIC == nil:
		return Result{}, unix.ENODEV
	case x.datagrams():
		rep := mad.SIDRRep{Status: mad.SIDRRejected}
		copy(rep.Private[:], a.Private[:a.PrivateLen])
		err = c.NIC.Answer(c.Now, x.conn, rep, c.Out)
	case a.PrivateLen > mad.REJPrivate:
		return Result{}, unix.EINVAL
	default:
		why := cm.Refusal{Reason: mad.ReasonConsumer, Private: a.Private[:a.PrivateLen]}
		err = c.NIC.Reject(c.Now, x.conn, why, c.Out)
	}
	if err != nil {
		return Result{}, err
	}
	x.step(onEnd)
	x.answered()
	return Result{}, nil
}

// disconnect executes Disconnect: it ends a connection. A connection that has already ended is no
// error, because both sides may end it.
func (m *Manager) disconnect(c call, x *id, _ named) (Result, error) {
	switch {
	case x.conn == nil || x.datagrams():
		return Result{}, unix.EINVAL
	case x.state == Ended || x.state == Disconnecting || x.state == Waiting:
		return Result{}, nil
	case x.state == Parted:
		if x.step(onDisconnect); x.conn.Left {
			m.nic.left(x)
		}
		return Result{}, nil
	case c.NIC == nil:
		return Result{}, unix.ENODEV
	case x.state != Established: // the connection is still being made
		c.NIC.Abort(c.Now, x.conn, c.Out)
		x.step(onEnd)
		x.answered()
		m.cfg.tell(x, disconnected, 0, nil)
		return Result{}, nil
	}
	x.step(onDisconnect)
	err := c.NIC.Disconnect(c.Now, x.conn, c.Out)
	if errors.Is(err, verbs.ErrState) {
		err = nil // it is ending, because its queue pair was destroyed
	}
	return Result{}, err
}

// execute is called when a program reports the first packet of a connection. It does nothing,
// because the NIC itself notices this packet.
func (notify) execute(*Manager, call, *id, notify) (Result, error) { return Result{}, nil }
