package rdmacm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// DatagramPeer is a destination of datagrams to a service. Peer is for the address handle; QPN and
// QKey are for each work request.
type DatagramPeer struct {
	Peer netip.Addr
	QPN  wire.QPN
	QKey uint32
	// Private is the private data of the peer's application, padded with zeros if the service is a
	// port (see CM).
	Private []byte
}

// ResolveDatagrams asks the host with the address `to` for the queue pair of a datagram service, as
// programs over librdmacm do in its UDP port space. It makes no connection. If the peer refuses,
// the error is a *RejectError.
func (m *CM) ResolveDatagrams(to netip.Addr, name string, private []byte, deadline clock.Time) (DatagramPeer, error) {
	const op = "resolve"
	var none DatagramPeer
	if err := checkNames(op, name, private); err != nil {
		return none, err
	}
	if !to.IsValid() {
		return none, verbs.Errorf(op, verbs.ErrInvalid, "no address to ask")
	}
	to = to.Unmap().WithZone("")
	s := cm.DatagramServiceOf(name)
	dev := m.cfg.Context.Device()
	gid, ok := verbs.SourceGID(dev.GIDs, to)
	if !ok {
		return none, verbs.Errorf(op, verbs.ErrUnreachable, "this NIC has no address of the family of %v", to)
	}
	local := dev.GIDs[gid].Addr()
	data, err := s.Resolve(private, local, to, ephemeralPort(m.cfg.Context.Runtime().Rand()))
	if err != nil {
		return none, err
	}
	var c *engine.CMConn
	err = m.nic.Step(op, func(now clock.Time, g *engine.GSI, out *packetio.Batch) error {
		c, err = g.Resolve(now, local, to, mad.SIDRReq{Service: s.ID, PKey: dev.PKeys[0], Private: data}, out)
		return err
	})
	if err != nil {
		return none, err
	}
	seen, err := m.await(op, c, func() bool { return c.Answered != nil }, deadline)
	switch {
	case err != nil:
		m.abort(c)
		return none, err
	case seen.Answered == nil:
		return none, service{s.Service}.ended(op, &seen)
	case seen.Answered.Status != mad.SIDRValid:
		m.count(func(s *CMStats) { s.Rejected++ })
		return none, &RejectError{Reason: seen.Answered.Status.String(), Private: seen.Answered.Private[:]}
	}
	got, err := s.ParseAnswer(seen.Answered)
	return DatagramPeer{Peer: to, QPN: seen.Answered.QPN, QKey: seen.Answered.QKey, Private: got}, err
}

// DatagramListener receives the SIDR requests for one datagram service. Close ends the service and
// refuses the waiting requests; a second Close does nothing.
type DatagramListener struct {
	*listening
	service cm.DatagramService
}

// ListenDatagrams accepts SIDR requests for a datagram service. It fails with ErrInUse if the
// service has a listener.
func (m *CM) ListenDatagrams(name string) (*DatagramListener, error) {
	s := cm.DatagramServiceOf(name)
	l, err := m.listen("listen for datagrams", name, func() (*engine.CMListener, error) { return m.nic.ListenDatagrams(s.ID, m.cfg.Backlog) })
	if err != nil {
		return nil, err
	}
	return &DatagramListener{l, s}, nil
}

// Accept waits for the next SIDR request. It refuses malformed ones.
func (l *DatagramListener) Accept(deadline clock.Time) (*DatagramRequest, error) {
	const op = "accept"
	for {
		c, err := l.next(op, "datagram service", deadline)
		if err != nil {
			return nil, err
		}
		private, err := l.service.ParseResolve(c.Ask)
		if err == nil {
			return &DatagramRequest{l: l, c: c, private: private}, nil
		}
		_ = l.m.answer(c, mad.SIDRRep{Status: mad.SIDRRejected}) // fails if the peer has ended the exchange
	}
}

// DatagramRequest is a SIDR request that waits for an answer. Either Answer or Reject must be
// called, once.
type DatagramRequest struct {
	l       *DatagramListener
	c       *engine.CMConn
	private []byte
}

func (r *DatagramRequest) Peer() netip.Addr { return r.c.Peer }

func (r *DatagramRequest) Private() []byte { return r.private }

// Answer sends the peer the number and Q_Key of qp, to which the peer then sends its datagrams. qp
// must be a UD queue pair in RTR or RTS.
func (r *DatagramRequest) Answer(qp verbs.QP, private []byte) error {
	const op = "answer"
	attr, err := qp.Query()
	if err != nil {
		return err
	}
	if attr.Type != verbs.UD || attr.State != verbs.StateRTR && attr.State != verbs.StateRTS {
		return verbs.Errorf(op, verbs.ErrState, "queue pair %#x is %v in %v; it must be UD in RTR or RTS", attr.QPN, attr.Type, attr.State)
	}
	data, err := r.l.service.Answer(private)
	if err != nil {
		return err
	}
	if err := r.l.m.answer(r.c, mad.SIDRRep{Status: mad.SIDRValid, QPN: attr.QPN, QKey: attr.Init.QKey, Private: data}); err != nil {
		return err
	}
	r.l.m.count(func(s *CMStats) { s.Accepted++ })
	return nil
}

func (r *DatagramRequest) Reject() error {
	r.l.m.count(func(s *CMStats) { s.Rejected++ })
	return r.l.m.answer(r.c, mad.SIDRRep{Status: mad.SIDRRejected})
}

func (m *CM) answer(c *engine.CMConn, rep mad.SIDRRep) error {
	return m.nic.Step("answer", func(now clock.Time, g *engine.GSI, out *packetio.Batch) error { return g.Answer(now, c, rep, out) })
}
