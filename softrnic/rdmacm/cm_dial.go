package rdmacm

import (
	"errors"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

const (
	// maxDials is the largest number of attempts of one Dial.
	maxDials = 64
	// stalePause is the time before the next attempt if the peer still has an old connection that it
	// must end first.
	stalePause = 20 * time.Millisecond
)

func (m *CM) Dial(qp verbs.QP, addr netip.Addr, name string, p Params, private []byte, deadline clock.Time) ([]byte, error) {
	const op = "dial"
	if err := checkDial(addr, name, private); err != nil {
		return nil, err
	}
	if m.closed.Load() {
		return nil, verbs.Errorf(op, verbs.ErrClosed, "the manager was closed")
	}
	addr = addr.Unmap().WithZone("")
	rt := m.cfg.Context.Runtime()
	deadline = min(deadline, rt.Now().Add(maxDial))
	local, err := m.endpoint(qp, addr, p)
	if err != nil {
		return nil, err
	}
	s := serviceOf(name)
	var got []byte
	for range maxDials {
		got, err = m.dial(s, qp, local, addr, p, private, deadline)
		pause, again := redial(err)
		if !again || rt.Now().Add(pause) >= deadline {
			break
		}
		rt.Sleep(pause)
	}
	switch {
	case err == nil:
		m.count(func(s *CMStats) { s.Dialed++ })
	case errors.Is(err, verbs.ErrTimeout):
		m.count(func(s *CMStats) { s.TimedOut++ })
	}
	return got, err
}

// redial is called after an attempt of Dial that has failed with err. again is true if Dial must
// try again: after `pause` if the peer must first end an old connection, at once if the peer has
// not answered any retry. The caller checks the deadline.
func redial(err error) (pause time.Duration, again bool) {
	var rej *RejectError
	if errors.As(err, &rej) {
		return stalePause, rej.Code == mad.ReasonStale
	}
	return 0, errors.Is(err, errSilent)
}

// dial makes one attempt of Dial.
func (m *CM) dial(s service, qp verbs.QP, local Endpoint, to netip.Addr, p Params, private []byte, deadline clock.Time) ([]byte, error) {
	const op = "dial"
	req, err := m.request(s, local, to, p, private)
	if err == nil {
		req.Type, err = typeOf(qp)
	}
	if err != nil {
		return nil, err
	}
	var c *engine.CMConn
	err = m.nic.Step(op, func(now clock.Time, g *engine.GSI, out *packetio.Batch) error {
		c, err = g.Connect(now, local.GID.Addr(), to, req, out)
		return err
	})
	if err != nil {
		return nil, err
	}
	seen, err := m.await(op, c, func() bool { return c.Reply != nil }, deadline)
	if err == nil && (seen.End != 0 || seen.Dead()) {
		err = s.ended(op, &seen)
	}
	if err != nil {
		m.abort(c)
		return nil, err
	}
	return m.finish(s, c, seen.Reply, qp, local, p)
}

// await waits until wanted returns true or c has ended. It returns a copy of c at that time,
// because the engine writes to c later.
func (m *CM) await(op string, c *engine.CMConn, wanted func() bool, deadline clock.Time) (engine.CMConn, error) {
	var seen engine.CMConn
	err := m.nic.Await(op, func() bool {
		seen = *c
		return wanted() || c.End != 0 || c.Dead() || m.closed.Load()
	}, deadline)
	if err == nil && m.closed.Load() {
		return seen, verbs.Errorf(op, verbs.ErrClosed, "the manager was closed")
	}
	if errors.Is(err, verbs.ErrTimeout) {
		err = verbs.Errorf(op, verbs.ErrTimeout, "%v did not answer", c.Peer)
	}
	return seen, err
}

// request returns the REQ for one connection.
func (m *CM) request(s service, local Endpoint, to netip.Addr, p Params, private []byte) (mad.REQ, error) {
	p = p.withDefaults()
	pkeys := m.cfg.Context.Device().PKeys
	if p.PKeyIndex < 0 || p.PKeyIndex >= len(pkeys) {
		return mad.REQ{}, verbs.Errorf("dial", verbs.ErrInvalid, "P_Key index %d; the port has %d", p.PKeyIndex, len(pkeys))
	}
	data, err := s.Request(private, local.GID.Addr(), to, ephemeralPort(m.cfg.Context.Runtime().Rand()))
	if err == nil && !s.Port {
		putAhead(data[:], requestPrefix+len(private), local.Ahead)
	}
	return mad.REQ{
		Service: s.ID, QPN: local.QPN, PSN: local.PSN, ResponderResources: uint8(local.RdAtomic), InitiatorDepth: uint8(local.RdAtomic),
		Retry: p.RetryCount, RNRRetry: p.RNRRetry, PKey: pkeys[p.PKeyIndex], MTU: cm.MTUCode(local.MTU), Private: data,
		Primary: mad.Path{TrafficClass: p.TrafficClass, AckTimeout: p.Timeout},
	}, err
}

// finish moves the initiator's queue pair to RTS after the REP has arrived, and sends the RTU.
func (m *CM) finish(s service, c *engine.CMConn, rep *mad.REP, qp verbs.QP, local Endpoint, p Params) ([]byte, error) {
	const op = "dial"
	private, mtu, err := s.ParseReply(rep, local.MTU)
	if err == nil && (rep.QPN < firstFreeQPN || rep.QPN > lastQPN) {
		err = verbs.Errorf(op, ErrProtocol, "%v answers with queue pair %#x", c.Peer, rep.QPN)
	}
	if err == nil {
		p = p.wished(-1, int(rep.RNRRetry), -1)
		remote := Endpoint{QPN: rep.QPN, GID: verbs.GIDOf(c.Peer), MTU: mtu, RdAtomic: local.RdAtomic}
		if !s.Port {
			remote.Ahead = aheadOf(rep.Private[:], replyPrefix+len(private))
		}
		local.PSN, remote.PSN = rep.PSN, local.PSN // each message has the PSN that its sender expects to receive first
		err = bringUp(m.cfg.Context, qp, p, local, remote,
			min(local.RdAtomic, int(rep.InitiatorDepth)), min(local.RdAtomic, int(rep.ResponderResources)))
	}
	if err != nil {
		m.reject(s, c, "the initiator's queue pair: "+err.Error())
		return nil, err
	}
	err = m.nic.Step(op, func(now clock.Time, g *engine.GSI, out *packetio.Batch) error {
		if c.End != 0 {
			return s.ended(op, c) // the peer has already ended the connection
		}
		return g.Ready(now, c, out)
	})
	if err != nil {
		fail(qp)
		return nil, err
	}
	return private, nil
}

// abort ends a connection. If the NIC is down, the connection has already ended.
func (m *CM) abort(c *engine.CMConn) {
	_ = m.nic.Step("abort", func(now clock.Time, g *engine.GSI, out *packetio.Batch) error {
		g.Abort(now, c, out)
		return nil
	})
}

func (m *CM) reject(s service, c *engine.CMConn, reason string) {
	m.refuse(c, cm.Refusal{Reason: mad.ReasonConsumer, Private: s.reject(reason, nil)})
}

// refuse sends a REJ. An error has no effect: the peer has ended the exchange.
func (m *CM) refuse(c *engine.CMConn, why cm.Refusal) {
	m.count(func(s *CMStats) { s.Rejected++ })
	_ = m.nic.Step("reject", func(now clock.Time, g *engine.GSI, out *packetio.Batch) error { return g.Reject(now, c, why, out) })
}

// Disconnect ends the connection of qp, which this CM or another one of the NIC has made. It
// returns when the peer has answered or all retries have failed; then qp is in ERROR, and, if the
// peer has answered, so is the peer's queue pair. It fails with ErrState if qp has no connection,
// for example because the peer has ended it.
func (m *CM) Disconnect(qp verbs.QP, deadline clock.Time) error {
	const op = "disconnect"
	var c *engine.CMConn
	err := m.nic.Step(op, func(now clock.Time, g *engine.GSI, out *packetio.Batch) error {
		if c = g.ConnOf(qp.QPN()); c == nil {
			return verbs.Errorf(op, verbs.ErrState, "queue pair %#x has no connection", qp.QPN())
		}
		return g.Disconnect(now, c, out)
	})
	if err != nil {
		return err
	}
	return m.nic.Await(op, func() bool { return c.End != 0 || c.Dead() }, deadline)
}

// AwaitDisconnect waits until either side has ended the connection of qp. It returns at once if
// there is none.
func (m *CM) AwaitDisconnect(qp verbs.QP, deadline clock.Time) error {
	const op = "await disconnect"
	var c *engine.CMConn
	err := m.nic.Step(op, func(_ clock.Time, g *engine.GSI, _ *packetio.Batch) error {
		c = g.ConnOf(qp.QPN())
		return nil
	})
	if err != nil || c == nil {
		return err
	}
	return m.nic.Await(op, func() bool { return c.End != 0 || c.Dead() }, deadline)
}
