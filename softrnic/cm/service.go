package cm

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// ErrProtocol means that a peer's message contradicts the protocol.
var ErrProtocol = errors.New("malformed connection message")

// The private data of a service with a name begin with their length. In a REP the code of the
// agreed path MTU precedes the length. The first byte has the bit Named, by which a receiver
// distinguishes them from the private data of other programs.
const (
	Named = 0x80
	// MaxRequestPrivate, MaxReplyPrivate and MaxRejectPrivate are the largest lengths of private
	// data of a service with a name, in bytes.
	MaxRequestPrivate = mad.REQPrivate - 1
	MaxReplyPrivate   = mad.REPPrivate - 2
	MaxRejectPrivate  = Named - 1
	// MaxPortRequestPrivate and MaxPortReplyPrivate are the largest lengths of private data of a
	// service that is a port of RDMA-CM, in bytes. In a REQ to such a service, the IP addresses
	// precede the private data.
	MaxPortRequestPrivate = mad.REQPrivate - mad.IPDataLen
	MaxPortReplyPrivate   = mad.REPPrivate
)

const (
	// localServices is the prefix of service IDs that are administered by the local system (IBTA
	// A3.2.3.1). The ID of a service with a name, which is no port, has this prefix.
	localServices mad.ServiceID = 0x02 << 56
	// sdpService is the bit by which Wireshark recognizes the Sockets Direct Protocol. It is 0 in
	// the service IDs of names.
	sdpService mad.ServiceID = 1 << 16
)

// Service is a service's number in messages, and the format of its private data.
type Service struct {
	ID mad.ServiceID
	// Port: the service is a port of RDMA-CM's port space, which programs over librdmacm use.
	Port bool
}

// ServiceOf returns the service with that name. If the name is not the number of a port, the
// service ID has a hash of the name, of 55 bits.
func ServiceOf(name string) Service {
	if n, err := strconv.ParseUint(name, 10, 16); err == nil && name[0] != '0' {
		return Service{ID: mad.PortService(mad.SpaceTCP, uint16(n)), Port: true}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // cannot fail
	return Service{ID: localServices | mad.ServiceID(h.Sum64()>>8)&^sdpService}
}

// Request returns the private data of a REQ. port is the initiator's port; only a service that is a
// port uses it.
func (s Service) Request(private []byte, local, to netip.Addr, port uint16) (out [mad.REQPrivate]byte, err error) {
	err = s.ask("dial", "REQ", out[:], private, MaxRequestPrivate, mad.IPData{SrcPort: port, Src: local, Dst: to})
	return out, err
}

// ask writes an application's private data into a message that asks for the service. In a message
// for a port, ip precedes these data. In a message for a name, at most limit bytes of them fit. op
// and message are for the error.
func (s Service) ask(op, message string, out, private []byte, limit int, ip mad.IPData) error {
	b := append(out[:0], Named|byte(len(private)))
	if s.Port {
		b = ip.AppendTo(out[:0])
		limit = len(out) - len(b)
	}
	return fill(op, message, out[len(b):], private, limit)
}

// fill copies private data, at most limit bytes, into a message.
func fill(op, message string, out, private []byte, limit int) error {
	if len(private) > limit {
		return verbs.Errorf(op, verbs.ErrInvalid, "%d bytes of private data; at most %d fit into a %s", len(private), limit, message)
	}
	copy(out, private)
	return nil
}

// ParseRequest returns the application's private data in a REQ.
func (s Service) ParseRequest(req *mad.REQ) ([]byte, error) { return s.asked(req.Private[:]) }

// asked returns the application's private data in a message that asks for the service.
func (s Service) asked(b []byte) ([]byte, error) {
	if s.Port {
		var ip mad.IPData
		return b[mad.IPDataLen:], ip.Parse(b)
	}
	return Flagged(b)
}

// Reply returns the private data of a REP.
func (s Service) Reply(private []byte, mtu verbs.MTU) (out [mad.REPPrivate]byte, err error) {
	limit := MaxReplyPrivate
	b := append(out[:0], Named|MTUCode(mtu), byte(len(private)))
	if s.Port {
		limit, b = MaxPortReplyPrivate, out[:0]
	}
	err = fill("accept", "REP", out[len(b):], private, limit)
	return out, err
}

// ParseReply returns the application's private data in a REP, and the agreed path MTU. If the
// service is a port of RDMA-CM, the REP does not contain the MTU: ParseReply then returns `asked`,
// the MTU of the request.
func (s Service) ParseReply(rep *mad.REP, asked verbs.MTU) ([]byte, verbs.MTU, error) {
	if s.Port {
		return rep.Private[:], asked, nil
	}
	mtu := MTUOf(rep.Private[0] &^ Named)
	if mtu == 0 || mtu > asked || rep.Private[0]&Named == 0 {
		return nil, 0, fmt.Errorf("%w: path MTU code %d in a reply, asked for %d bytes", ErrProtocol, rep.Private[0], asked)
	}
	b, err := exact(int(rep.Private[1]), rep.Private[2:])
	return b, mtu, err
}

// Flagged returns the private data in b. b begins with one byte that has their length and the bit
// Named.
func Flagged(b []byte) ([]byte, error) {
	if b[0]&Named == 0 {
		return nil, fmt.Errorf("%w: private data of another kind than this project's", ErrProtocol)
	}
	return exact(int(b[0]&^Named), b[1:])
}

// exact returns the first n bytes of b.
func exact(n int, b []byte) ([]byte, error) {
	if n > len(b) {
		return nil, fmt.Errorf("%w: %d bytes of private data announced, there is room for %d", ErrProtocol, n, len(b))
	}
	return b[:n], nil
}

// MTUCode returns the code of a path MTU in messages, and for C programs (enum ibv_mtu): 1 is 256
// bytes, 5 is 4096.
func MTUCode(m verbs.MTU) uint8 {
	code := uint8(1)
	for ; m > verbs.MTU256; m /= 2 {
		code++
	}
	return code
}

// MTUOf returns the path MTU of a code; 0 for an invalid code.
func MTUOf(code uint8) verbs.MTU {
	if code < 1 || code > 5 {
		return 0
	}
	return verbs.MTU256 << (code - 1)
}
