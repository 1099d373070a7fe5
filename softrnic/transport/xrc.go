package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Extended reliable connections (annex A14) are reliable connections in one direction: an initiator has no
// responder, and a target has no requester. Each request names a shared receive queue of the target's
// host. It decides whose receives and whose memory the request reaches.

// XRCDomain finds the shared receive queues that requests to a target name.
type XRCDomain interface {
	// Find returns XRC shared receive queue n of the NIC, nil if there is none, and whether it is in
	// the domain.
	Find(n uint32) (srq *SRQ, inside bool)
}

// NewXRCSRQ returns an empty shared receive queue for requests of XRC, whose completions go to c. See
// NewSRQ for the rest.
func NewXRCSRQ(id uint32, pd mem.PD, c *cq.CQ, init verbs.SRQInit) (*SRQ, error) {
	s, err := NewSRQ(id, pd, init)
	if err == nil {
		s.received = c.Source()
	}
	return s, err
}

// Close removes the completions of an XRC queue from its completion queue, and lets no more come there. It is
// called when the queue is destroyed; a target may still have a receive of the queue, in the middle of a message.
func (s *SRQ) Close() {
	if s.received != nil {
		s.received.Close()
	}
}

// Break makes an XRC queue refuse all requests from now on, because its completion queue has overrun.
func (s *SRQ) Break() { s.broken = true }

// named returns the shared receive queue that a request of XRC names. The request is refused if there is
// none of this number, if it is in another domain, or if it is broken (annex A14).
func (c *core) named(p *wire.Packet) (*SRQ, verdict) {
	s, inside := c.cfg.XRC.Find(p.XRCETH.SRQN)
	switch {
	case s == nil:
		return nil, refuseSRQ
	case !inside:
		return nil, refuseDomain
	case s.broken:
		return nil, refuseBrokenSRQ
	}
	return s, pass
}

// checkSRQ makes the request reach the receives and the memory of the shared receive queue that it
// names. All packets of a message name the same one.
func (x *executor) checkSRQ(p *wire.Packet) verdict {
	s, v := x.named(p)
	switch {
	case v != pass:
		return v
	case x.msg != noMessage && s != x.rcv.srq:
		return refuseSRQ
	}
	x.rcv.srq, x.rcv.pd, x.access.guests = s, s.pd, s.pd
	return pass
}
