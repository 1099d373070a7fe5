package ucma

import (
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// reports receives the reports of the NIC's connection manager, and has the identifiers that they are about.
type reports struct {
	cfg       *Config
	ids       map[uint32]*id
	next      uint32 // the handle of an identifier to try next
	conns     map[*engine.CMConn]*id
	listeners map[*engine.CMListener]*id
}

var _ engine.CMWatcher = (*reports)(nil)

// Changed reports a change of a connection to the program. The engine calls it; see
// engine.CMWatcher.
func (r *reports) Changed(c *engine.CMConn) {
	x := r.conns[c]
	switch {
	case x == nil:
	case c.Left && x.may(onLeave):
		r.left(x)
	case c.End != 0 || c.Dead():
		r.ended(x, c)
	case c.Reply != nil && x.step(onReply):
		r.replied(x, c.Reply)
	case c.Answered != nil && x.may(onEstablished):
		r.resolved(x, c.Answered)
	case c.Established && x.step(onEstablished):
		r.cfg.tell(x, established, 0, nil)
	}
}

// Lost reports to the program that the NIC of its listener has gone down. The engine calls it; see
// engine.CMWatcher.
func (r *reports) Lost(l *engine.CMListener) {
	if x := r.listeners[l]; x != nil && !x.mirror { // of a mirror, the other NICs still listen
		r.cfg.tell(x, deviceRemoval, 0, nil)
	}
}

// ended reports the end of a connection to the program, once.
func (r *reports) ended(x *id, c *engine.CMConn) {
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
			r.cfg.tell(x, unreachable, -int32(unix.ENODEV), nil)
			return
		}
		r.cfg.tell(x, disconnected, 0, nil)
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
		r.cfg.tell(x, rejected, int32(reason), p)
	case cm.EventUnreachable:
		r.cfg.tell(x, unreachable, -int32(unix.ETIMEDOUT), nil)
	case cm.EventUnanswered:
		r.cfg.tell(x, disconnected, -int32(unix.ETIMEDOUT), nil)
	default:
		r.cfg.tell(x, disconnected, 0, nil)
	}
}

// left reports the end of a connection's time-wait to the program. As in the kernel, a program whose
// peer has ended the connection gets this event only after its own Disconnect.
func (r *reports) left(x *id) {
	x.step(onLeave)
	r.cfg.tell(x, timewaitExit, 0, nil)
}

// replied stores the parameters of the peer's REP, and reports the REP to the program.
func (r *reports) replied(x *id, rep *mad.REP) {
	t := &x.terms
	t.peerQPN, t.peerPSN = rep.QPN, rep.PSN
	t.resources, t.depth = min(t.resources, rep.InitiatorDepth), min(t.depth, rep.ResponderResources)
	t.rnrRetry = rep.RNRRetry
	p := connParam{
		QPN: uint32(rep.QPN), Resources: rep.InitiatorDepth, Depth: rep.ResponderResources, RNRRetry: rep.RNRRetry,
		SRQ: flag(rep.SRQ), FlowControl: flag(rep.FlowControl),
	}
	p.PrivateLen = uint8(copy(p.Private[:], rep.Private[:]))
	r.cfg.tell(x, connectResponse, 0, p)
}

// resolved reports the result of a SIDR request to the program: the queue pair of a datagram
// service, or a refusal.
func (r *reports) resolved(x *id, rep *mad.SIDRRep) {
	if rep.Status != mad.SIDRValid {
		x.step(onEnd)
		r.cfg.tell(x, unreachable, int32(rep.Status), nil)
		return
	}
	x.step(onEstablished)
	p := datagramParam{QPN: uint32(rep.QPN), QKey: rep.QKey, AH: r.cfg.ahOf(x, x.dst.Addr())}
	p.PrivateLen = uint8(copy(p.Private[:], rep.Private[:]))
	r.cfg.tell(x, established, 0, p)
}
