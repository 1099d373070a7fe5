package rdmacm

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// maxDepth is what the 8 bits of a message hold.
const maxDepth = 255

// Private data of a service with a name begin with their length, in a REP behind the code of the agreed path MTU. The first
// byte has the bit named, so that another program's are not taken for them.
const (
	// MaxRequestPrivate, MaxReplyPrivate and MaxRejectPrivate are the most private data that CM carries for a service with
	// a name, in bytes.
	MaxRequestPrivate = mad.REQPrivate - 1
	MaxReplyPrivate   = mad.REPPrivate - 2
	MaxRejectPrivate  = named - 1
	// MaxPortRequestPrivate and MaxPortReplyPrivate are those for a port.
	MaxPortRequestPrivate = mad.REQPrivate - mad.IPDataLen
	MaxPortReplyPrivate   = mad.REPPrivate

	named = 0x80
)

// service is a service's name as the wire has it.
type service struct {
	id mad.ServiceID
	// port is true for a port of RDMA-CM, where other programs are met.
	port bool
}

const (
	// localServices is the prefix of service IDs that are administered by the local system (IBTA A3.2.3.1), for names.
	localServices mad.ServiceID = 0x02 << 56
	// sdpService is the bit by which Wireshark knows the Sockets Direct Protocol.
	sdpService mad.ServiceID = 1 << 16
)

// serviceOf turns a name into a number: a port, or a hash of 55 bits.
func serviceOf(name string) service {
	if n, err := strconv.ParseUint(name, 10, 16); err == nil && n > 0 && name[0] != '0' {
		return service{id: mad.PortService(mad.SpaceTCP, uint16(n)), port: true}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return service{id: localServices | mad.ServiceID(h.Sum64()>>8)&^sdpService}
}

// request fills the private data of a REQ.
func (s service) request(private []byte, local Endpoint, to netip.Addr, port uint16) (out [mad.REQPrivate]byte, err error) {
	limit := MaxRequestPrivate
	b := append(out[:0], named|byte(len(private)))
	if s.port {
		limit = MaxPortRequestPrivate
		ip := mad.IPData{SrcPort: port, Src: local.GID.Addr(), Dst: to}
		b = ip.AppendTo(out[:0])
	}
	if len(private) > limit {
		return out, opError("dial", verbs.ErrInvalid, "%d bytes of private data; at most %d go into a request", len(private), limit)
	}
	copy(out[len(b):], private)
	return out, nil
}

// parseRequest finds the peer's private data in a REQ.
func (s service) parseRequest(req *mad.REQ) ([]byte, error) {
	if s.port {
		var ip mad.IPData
		return req.Private[mad.IPDataLen:], ip.Parse(req.Private[:])
	}
	return flagged(req.Private[:])
}

// reply fills the private data of a REP.
func (s service) reply(private []byte, mtu verbs.MTU) (out [mad.REPPrivate]byte, err error) {
	limit := MaxReplyPrivate
	b := append(out[:0], named|mtuCode(mtu), byte(len(private)))
	if s.port {
		limit, b = MaxPortReplyPrivate, out[:0]
	}
	if len(private) > limit {
		return out, opError("accept", verbs.ErrInvalid, "%d bytes of private data; at most %d go into a reply", len(private), limit)
	}
	copy(out[len(b):], private)
	return out, nil
}

// parseReply finds the peer's private data in a REP, and the agreed path MTU; that is asked for one of a port.
func (s service) parseReply(rep *mad.REP, asked verbs.MTU) ([]byte, verbs.MTU, error) {
	if s.port {
		return rep.Private[:], asked, nil
	}
	mtu := mtuOf(rep.Private[0] &^ named)
	if mtu == 0 || mtu > asked || rep.Private[0]&named == 0 {
		return nil, 0, fmt.Errorf("%w: path MTU code %d in a reply, asked for %d bytes", ErrProtocol, rep.Private[0], asked)
	}
	b, err := exact(int(rep.Private[1]), rep.Private[2:])
	return b, mtu, err
}

// reject fills the private data of a REJ: as much of the reason as there is room for.
func (s service) reject(reason string) []byte {
	if s.port {
		return []byte(reason)
	}
	reason = reason[:min(len(reason), MaxRejectPrivate)]
	return append([]byte{named | byte(len(reason))}, reason...)
}

// flagged is data with a length in front that has the bit named.
func flagged(b []byte) ([]byte, error) {
	if b[0]&named == 0 {
		return nil, fmt.Errorf("%w: private data of another kind than this project's", ErrProtocol)
	}
	return exact(int(b[0]&^named), b[1:])
}

// exact is the first n bytes of b.
func exact(n int, b []byte) ([]byte, error) {
	if n > len(b) {
		return nil, fmt.Errorf("%w: %d bytes of private data announced, there is room for %d", ErrProtocol, n, len(b))
	}
	return b[:n], nil
}

// mtuCode is the code of a path MTU in messages: 1 is 256 bytes, 5 is 4096.
func mtuCode(m verbs.MTU) uint8 {
	code := uint8(1)
	for ; m > verbs.MTU256; m /= 2 {
		code++
	}
	return code
}

// mtuOf is the path MTU of a code, 0 if it has none.
func mtuOf(code uint8) verbs.MTU {
	if code < 1 || code > 5 {
		return 0
	}
	return verbs.MTU256 << (code - 1)
}

// rejected is the error for a peer's REJ.
func (s service) rejected(rej *mad.REJ) error {
	if rej == nil {
		return &RejectError{Reason: "no reason given"}
	}
	text := rej.Reason.String()
	switch {
	case rej.Reason == mad.ReasonInvalidService:
		text = "no service of this name there (" + text + ")"
	case rej.Reason == mad.ReasonNoResources:
		text = "too many waiting requests (" + text + ")"
	case rej.Reason == mad.ReasonInvalidMTU && rej.InfoLen > 0:
		text = fmt.Sprintf("%s: the peer can do %d", text, mtuOf(rej.Info[0]))
	case rej.Reason == mad.ReasonConsumer && !s.port:
		if b, err := flagged(rej.Private[:]); err == nil && len(b) > 0 {
			text = string(b)
		}
	}
	return &RejectError{Reason: text, Code: rej.Reason, Private: rej.Private[:]}
}

// errSilent is a peer that did not answer for the time of all retries.
var errSilent = fmt.Errorf("%w: no answer", verbs.ErrTimeout)

// ended is the error for a connection that has come to its end too early.
func (s service) ended(op string, c *engine.CMConn) error {
	switch {
	case c.Dead():
		return opError(op, verbs.ErrClosed, "the NIC went down, or the queue pair was destroyed")
	case c.End == cm.EventUnreachable:
		return opError(op, errSilent, "%v", c.Peer)
	case c.End == cm.EventRejected && c.Reject != nil && c.Reject.Reason == mad.ReasonTimeout:
		return opError(op, verbs.ErrTimeout, "%v has given up", c.Peer)
	case c.End == cm.EventRejected:
		return fmt.Errorf("%s: %v: %w", op, c.Peer, s.rejected(c.Reject))
	}
	return opError(op, verbs.ErrUnreachable, "%v has ended the connection", c.Peer)
}

// ephemeralPort is a source port for the header of RDMA-CM.
func ephemeralPort(r *rand.Rand) uint16 {
	const first = 0xc000
	return first | uint16(r.Uint32())
}
