package rdmacm

import (
	"cmp"
	"errors"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

func (m *CM) Listen(name string) (Listener, error) {
	s := serviceOf(name)
	l, err := m.listen("listen", name, func() (*engine.CMListener, error) { return m.nic.Listen(s.ID, m.cfg.Backlog) })
	if err != nil {
		return nil, err
	}
	return &cmListener{l, s}, nil
}

// cmListener receives the requests for one service.
type cmListener struct {
	*listening
	service service
}

// Accept waits for the next request. It skips requests whose initiator has given up, and refuses
// malformed ones.
func (l *cmListener) Accept(deadline clock.Time) (Request, error) {
	const op = "accept"
	for {
		c, err := l.next(op, "service", deadline)
		if err != nil {
			return nil, err
		}
		private, err := l.service.ParseRequest(c.Request)
		if err == nil {
			r := &cmRequest{l: l, c: c, private: private}
			l.m.mu.Lock()
			l.m.requests[r] = struct{}{}
			l.m.mu.Unlock()
			return r, nil
		}
		l.m.reject(l.service, c, err.Error())
	}
}

// cmRequest is a connection request that waits for an answer.
type cmRequest struct {
	l       *cmListener
	c       *engine.CMConn
	private []byte
}

func (r *cmRequest) Service() string  { return r.l.name }
func (r *cmRequest) Peer() netip.Addr { return r.c.Peer }
func (r *cmRequest) Private() []byte  { return r.private }

// answer marks the request as answered. It fails if it was answered before.
func (r *cmRequest) answer(op string) error {
	r.l.m.mu.Lock()
	defer r.l.m.mu.Unlock()
	if _, open := r.l.m.requests[r]; !open {
		return verbs.Errorf(op, verbs.ErrState, "the request was answered already")
	}
	delete(r.l.m.requests, r)
	return nil
}

func (r *cmRequest) Accept(qp verbs.QP, p Params, private []byte, deadline clock.Time) error {
	const op = "accept"
	m, s := r.l.m, r.l.service
	if err := checkNames(op, r.l.name, private); err != nil {
		return unanswered(err)
	}
	if _, err := s.Reply(private, verbs.MTU256); err != nil {
		return unanswered(err)
	}
	if err := r.answer(op); err != nil {
		return err
	}
	rep, err := r.bringUp(qp, p, private)
	if err != nil {
		return err
	}
	err = m.nic.Step(op, func(now clock.Time, g *engine.GSI, out *packetio.Batch) error {
		if r.c.End != 0 {
			return s.ended(op, r.c)
		}
		return g.Accept(now, r.c, rep, out)
	})
	var seen engine.CMConn
	if err == nil {
		seen, err = m.await(op, r.c, func() bool { return r.c.Established }, deadline)
	}
	switch {
	case err != nil:
	case seen.End != 0 || seen.Dead():
		err = s.ended(op, &seen)
	default:
		m.count(func(s *CMStats) { s.Accepted++ })
		return nil
	}
	m.abort(r.c)
	fail(qp)
	if errors.Is(err, verbs.ErrTimeout) {
		m.count(func(s *CMStats) { s.TimedOut++ })
	}
	return err
}

// bringUp moves the responder's queue pair to RTS, or refuses the request.
func (r *cmRequest) bringUp(qp verbs.QP, p Params, private []byte) (mad.REP, error) {
	m, s, req := r.l.m, r.l.service, r.c.Request
	remote := Endpoint{
		QPN: req.QPN, GID: verbs.GID(req.Primary.LocalGID), MTU: cm.MTUOf(req.MTU),
		RdAtomic: int(max(req.InitiatorDepth, req.ResponderResources)),
	}
	if !s.Port {
		remote.Ahead = aheadOf(req.Private[:], requestPrefix+len(r.private))
	}
	p = p.wished(int(req.Retry), int(req.RNRRetry), int(req.Primary.AckTimeout))
	if err := checkType(qp, req.Type); err != nil {
		m.refuse(r.c, cm.Refusal{Reason: mad.ReasonInvalidType})
		return mad.REP{}, err
	}
	p.PKeyIndex, _ = verbs.PKeyIndex(m.cfg.Context.Device().PKeys, req.PKey) // always found: the NIC has refused requests with other P_Keys
	local, err := m.endpoint(qp, remote.GID.Addr(), p)
	if err == nil && s.Port && local.MTU < remote.MTU {
		// For a port, the initiator chooses the path MTU: the REJ names the largest one that this
		// side supports.
		m.refuse(r.c, cm.Refusal{Reason: mad.ReasonInvalidMTU, Info: []byte{cm.MTUCode(local.MTU)}})
		return mad.REP{}, verbs.Errorf("accept", verbs.ErrInvalid, "%v wants path MTU %d, this side can do %d", r.c.Peer, remote.MTU, local.MTU)
	}
	data, _ := s.Reply(private, min(local.MTU, remote.MTU)) // Accept has tried it
	if s.Port || remote.Ahead == 0 || !putAhead(data[:], replyPrefix+len(private), local.Ahead) {
		local.Ahead = 0 // go-back-N: the initiator will not hear of another
	}
	expected := local.PSN
	local.PSN, remote.PSN = req.PSN, expected // each message has the PSN that its sender expects to receive first
	incoming, outgoing := min(local.RdAtomic, int(req.InitiatorDepth)), min(local.RdAtomic, int(req.ResponderResources))
	if err == nil {
		err = bringUp(m.cfg.Context, qp, p, local, remote, incoming, outgoing)
	}
	if err != nil {
		m.reject(s, r.c, "the responder's queue pair: "+err.Error())
		return mad.REP{}, err
	}
	return mad.REP{
		QPN: local.QPN, PSN: expected, ResponderResources: uint8(incoming), InitiatorDepth: uint8(outgoing),
		AckDelay: cm.AckDelay, RNRRetry: p.withDefaults().RNRRetry, Private: data,
	}, nil
}

// typeOf returns the code of a queue pair's transport service in a REQ (IBTA 12.6.5/type).
func typeOf(qp verbs.QP) (uint8, error) {
	attr, err := qp.Query()
	if err != nil {
		return 0, err
	}
	switch attr.Type {
	case verbs.RC:
		return mad.TypeRC, nil
	case verbs.UC:
		return mad.TypeUC, nil
	case verbs.UD: // UD has no connections
	case verbs.XRCInitiator, verbs.XRCTarget: // a REQ of this package names no XRC
	}
	return 0, verbs.Errorf("connect", verbs.ErrInvalid, "a queue pair of type %v has no connections", attr.Type)
}

// checkType fails if the transport service of a REQ is not that of the local queue pair.
func checkType(qp verbs.QP, asked uint8) error {
	own, err := typeOf(qp)
	if err == nil && own != asked {
		err = verbs.Errorf("accept", verbs.ErrInvalid, "the request is for service %d, the queue pair is of service %d (0 is RC, 1 is UC)", asked, own)
	}
	return err
}

func (r *cmRequest) Reject(reason string) error {
	return r.Answer(cmp.Or(reason, "no reason given"), nil)
}

// Answer answers the request with a REJ that carries the private data.
func (r *cmRequest) Answer(reason string, private []byte) error {
	s := r.l.service
	if err := checkAnswer(private, s.Port); err != nil {
		return unanswered(err)
	}
	if err := r.answer("reject"); err != nil {
		return err
	}
	r.l.m.refuse(r.c, cm.Refusal{Reason: mad.ReasonConsumer, Private: s.reject(reason, private)})
	return nil
}
