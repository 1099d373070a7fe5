package rdmacm

import (
	"fmt"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// maxDepth is the largest number of READs and atomics in flight that the 8-bit fields of a message
// can hold.
const maxDepth = 255

// service is a cm.Service: the number that names a service in CM messages, and the format of the
// private data in these messages. The methods here make and read a REJ of the service.
type service struct{ cm.Service }

func serviceOf(name string) service { return service{cm.ServiceOf(name)} }

// reject returns the private data of a REJ: a length and as much of the reason as fits, then a
// length and the data of Request.Answer. If private is empty, there is no second length: the
// receiver then reads a zero of the field's padding as this length.
func (s service) reject(reason string, private []byte) []byte {
	if s.Port {
		return []byte(reason)
	}
	if len(private) == 0 {
		reason = reason[:min(len(reason), cm.MaxRejectPrivate)]
		return append([]byte{cm.Named | byte(len(reason))}, reason...)
	}
	reason = reason[:min(len(reason), cm.MaxRejectPrivate, mad.REJPrivate-2-len(private))] // the length field has 7 bits
	b := append([]byte{cm.Named | byte(len(reason))}, reason...)
	return append(append(b, byte(len(private))), private...)
}

// answerOf returns the data that the peer gave to Request.Answer, from its REJ. The REJ's private
// data begin with the length of reason (a byte) and reason. answerOf returns nil if the REJ has no
// such data.
func answerOf(rej *mad.REJ, reason []byte) []byte {
	b := rej.Private[1+len(reason):]
	if len(b) == 0 || b[0] == 0 || int(b[0]) > min(MaxAnswer, len(b)-1) {
		return nil
	}
	return b[1 : 1+b[0]]
}

// rejected returns the error for a peer's REJ.
func (s service) rejected(rej *mad.REJ) error {
	if rej == nil {
		return &RejectError{Reason: "no reason given"}
	}
	text, private := rej.Reason.String(), rej.Private[:]
	if !s.Port {
		private = nil
	}
	switch {
	case rej.Reason == mad.ReasonInvalidService:
		text = "no service of this name there (" + text + ")"
	case rej.Reason == mad.ReasonNoResources:
		text = "too many waiting requests (" + text + ")"
	case rej.Reason == mad.ReasonInvalidMTU && rej.InfoLen > 0:
		text = fmt.Sprintf("%s: the peer can do %d", text, cm.MTUOf(rej.Info[0]))
	case rej.Reason == mad.ReasonConsumer && !s.Port:
		if b, err := cm.Flagged(rej.Private[:]); err == nil {
			private = answerOf(rej, b)
			if len(b) > 0 {
				text = string(b)
			}
		}
	}
	return &RejectError{Reason: text, Code: rej.Reason, Private: private}
}

// errSilent is the error if the peer has answered none of the retries.
var errSilent = fmt.Errorf("%w: no answer", verbs.ErrTimeout)

// ended returns the error for a connection that ended while it was being made.
func (s service) ended(op string, c *engine.CMConn) error {
	switch {
	case c.Dead():
		return verbs.Errorf(op, verbs.ErrClosed, "the NIC went down, or the queue pair was destroyed")
	case c.End == cm.EventUnreachable:
		return verbs.Errorf(op, errSilent, "%v", c.Peer)
	case c.End == cm.EventRejected && c.Reject != nil && c.Reject.Reason == mad.ReasonTimeout:
		return verbs.Errorf(op, verbs.ErrTimeout, "%v has given up", c.Peer)
	case c.End == cm.EventRejected:
		return fmt.Errorf("%s: %v: %w", op, c.Peer, s.rejected(c.Reject))
	}
	return verbs.Errorf(op, verbs.ErrUnreachable, "%v has ended the connection", c.Peer)
}

// ephemeralPort returns a random source port. It is for the IP addressing header in the private
// data of a REQ.
func ephemeralPort(r *rand.Rand) uint16 {
	const first = 0xc000
	return first | uint16(r.Uint32())
}
