package cm

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Largest lengths of private data in the messages of datagram services, in bytes.
const (
	// maxResolvePrivate and maxAnswerPrivate are the limits of a SIDR_REQ and of a SIDR_REP for a
	// service with a name.
	maxResolvePrivate = Named - 1
	maxAnswerPrivate  = Named - 1
	// maxPortAnswerPrivate is the limit of a SIDR_REP for a service that is a port of RDMA-CM.
	maxPortAnswerPrivate = mad.SIDRRepPrivate
)

// DatagramService is a Service whose queue pair a peer finds by SIDR_REQ and SIDR_REP (IBTA 12.11).
// A service whose name is a port number is that port of RDMA-CM's UDP port space. Any other service
// gets another number than the connected service with the same name.
type DatagramService struct{ Service }

// DatagramServiceOf returns the datagram service with that name.
func DatagramServiceOf(name string) DatagramService {
	s := ServiceOf(name)
	if _, port, ok := s.ID.Port(); ok && s.Port {
		s.ID = mad.PortService(mad.SpaceUDP, port)
		return DatagramService{s}
	}
	return DatagramService{ServiceOf("datagrams of " + name)}
}

// Resolve returns the private data of a SIDR_REQ that carries the application's data `private`.
// port is the requester's UDP port; it is used only if the service is a port of RDMA-CM.
func (s DatagramService) Resolve(private []byte, local, to netip.Addr, port uint16) (out [mad.SIDRReqPrivate]byte, err error) {
	err = s.ask("resolve", "SIDR_REQ", out[:], private, maxResolvePrivate, mad.IPData{SrcPort: port, Src: local, Dst: to})
	return out, err
}

// ParseResolve returns the application's private data in a SIDR_REQ.
func (s DatagramService) ParseResolve(req *mad.SIDRReq) ([]byte, error) {
	return s.asked(req.Private[:])
}

// Answer returns the private data of a SIDR_REP.
func (s DatagramService) Answer(private []byte) (out [mad.SIDRRepPrivate]byte, err error) {
	limit := maxAnswerPrivate
	b := append(out[:0], Named|byte(len(private)))
	if s.Port {
		limit, b = maxPortAnswerPrivate, out[:0]
	}
	err = fill("answer", "SIDR_REP", out[len(b):], private, limit)
	return out, err
}

// ParseAnswer returns the application's private data in a SIDR_REP.
func (s DatagramService) ParseAnswer(rep *mad.SIDRRep) ([]byte, error) {
	if s.Port {
		return rep.Private[:], nil
	}
	return Flagged(rep.Private[:])
}
