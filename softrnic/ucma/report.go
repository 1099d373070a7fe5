package ucma

import (
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Changed reports a change of a connection to the program. The engine calls it; see
// engine.CMWatcher.
func (m watcher) Changed(c *engine.CMConn) {
	x := m.conns[c]
	switch {
	case x == nil:
	case c.Left && x.may(onLeave):
		m.left(x)
	case c.End != 0 || c.Dead():
		m.ended(x, c)
	case c.Reply != nil && x.step(onReply):
		m.replied(x, c.Reply)
	case c.Answered != nil && x.may(onEstablished):
		m.resolved(x, c.Answered)
	case c.Established && x.step(onEstablished):
		m.cfg.tell(x, established, 0, nil)
	}
}

// Lost reports to the program that the NIC of its listener has gone down. The engine calls it; see
// engine.CMWatcher.
func (m watcher) Lost(l *engine.CMListener) {
	if x := m.listeners[l]; x != nil && !x.mirror { // of a mirror, the other NICs still listen
		m.cfg.tell(x, deviceRemoval, 0, nil)
	}
}

// ended reports the end of a connection to the program, once.
func (m watcher) ended(x *id, c *engine.CMConn) {
	from := x.state
	if x.datagrams() && from == Accepted {
		return // the SIDR request was answered: there is no connection
	}
	cause := onEnd
	if c.End == cm.EventDisconnected || c.End == cm.EventUnanswered {
		cause = onPart
	}
	if !x.step(cause) {
		return
	}
	x.answered()
	if c.Dead() && c.End == 0 {
		if from == Connecting || from == Answered {
			m.cfg.tell(x, unreachable, -int32(unix.ENODEV), nil)
			return
		}
		m.cfg.tell(x, disconnected, 0, nil)
		return
	}
	switch c.End {
	case cm.EventRejected:
		var p connParam
		reason := mad.ReasonTimeout
		if c.Reject != nil {
			reason = c.Reject.Reason
			p.PrivateLen = uint8(copy(p.Private[:], c.Reject.Private[:]))
		}
		m.cfg.tell(x, rejected, int32(reason), p)
	case cm.EventUnreachable:
		m.cfg.tell(x, unreachable, -int32(unix.ETIMEDOUT), nil)
	case cm.EventUnanswered:
		m.cfg.tell(x, disconnected, -int32(unix.ETIMEDOUT), nil)
	default:
		m.cfg.tell(x, disconnected, 0, nil)
	}
}

// left reports the end of a connection's time-wait to the program. As in the kernel, a program whose
// peer has ended the connection gets this event only after its own Disconnect.
func (m *Manager) left(x *id) {
	x.step(onLeave)
	m.cfg.tell(x, timewaitExit, 0, nil)
}

// replied stores the parameters of the peer's REP, and reports the REP to the program.
func (m watcher) replied(x *id, rep *mad.REP) {
	t := &x.terms
	t.peerQPN, t.peerPSN = rep.QPN, rep.PSN
	t.resources, t.depth = min(t.resources, rep.InitiatorDepth), min(t.depth, rep.ResponderResources)
	t.rnrRetry = rep.RNRRetry
	p := connParam{
		QPN: uint32(rep.QPN), Resources: rep.InitiatorDepth, Depth: rep.ResponderResources, RNRRetry: rep.RNRRetry,
		SRQ: flag(rep.SRQ), FlowControl: flag(rep.FlowControl),
	}
	p.PrivateLen = uint8(copy(p.Private[:], rep.Private[:]))
	m.cfg.tell(x, connectResponse, 0, p)
}

// resolved reports the result of a SIDR request to the program: the queue pair of a datagram
// service, or a refusal.
func (m watcher) resolved(x *id, rep *mad.SIDRRep) {
	if rep.Status != mad.SIDRValid {
		x.step(onEnd)
		m.cfg.tell(x, unreachable, int32(rep.Status), nil)
		return
	}
	x.step(onEstablished)
	p := datagramParam{QPN: uint32(rep.QPN), QKey: rep.QKey, AH: m.cfg.ahOf(x, x.dst.Addr())}
	p.PrivateLen = uint8(copy(p.Private[:], rep.Private[:]))
	m.cfg.tell(x, established, 0, p)
}
