package rdmacm

import (
	"cmp"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Endpoint has the values of a queue pair that its peer needs for a connection. CM and OOB both
// send them, and both use LocalEndpoint and BringUp.
type Endpoint struct {
	QPN wire.QPN
	// PSN is the first PSN that this endpoint sends.
	PSN wire.PSN
	GID verbs.GID
	// MTU and RdAtomic are the largest values that this side supports. In the responder's reply of the
	// out-of-band exchange they are the values that both sides use.
	MTU      verbs.MTU
	RdAtomic int
	// Ahead is how many packets ahead of the expected one this side can hold; 0 means go-back-N. Both
	// sides use selective retransmission if both have it.
	Ahead int
}

// Defaults of Params.
const (
	defaultRdAtomic = 16
	// defaultTimeout suits a shared machine: see docs/explain/patience.md.
	defaultTimeout     = 15
	defaultRetry       = 7
	defaultMinRNRTimer = 12
	// maxRetry and maxRdAtomic are the largest values that a peer may send.
	maxRetry    = 7
	maxRdAtomic = 1 << 12
)

func (p Params) withDefaults() Params {
	if p.Access == 0 && !p.NoAccess {
		p.Access = verbs.RemoteRights
	}
	p.RdAtomic = cmp.Or(p.RdAtomic, defaultRdAtomic)
	p.Timeout = cmp.Or(p.Timeout, defaultTimeout)
	p.RetryCount, p.RNRRetry = retries(p.RetryCount), retries(p.RNRRetry)
	p.MinRNRTimer = cmp.Or(p.MinRNRTimer, defaultMinRNRTimer)
	return p
}

// wished returns p with a peer's values in place of the parameters that are 0. retry, rnrRetry and
// timeout are the values in the peer's message (IBTA 12.7.38/retries); −1 means that the message
// has no such value.
func (p Params) wished(retry, rnrRetry, timeout int) Params {
	wish := func(own *uint8, n int) {
		switch {
		case *own != 0 || n < 0:
		case n == 0:
			*own = NoRetry
		default:
			*own = min(uint8(n), maxRetry)
		}
	}
	wish(&p.RetryCount, retry)
	wish(&p.RNRRetry, rnrRetry)
	if p.Timeout == 0 && timeout > 0 { // as a code, 0 would mean no timeout
		p.Timeout = cm.PeerTimeout(uint8(timeout))
	}
	return p
}

func retries(n uint8) uint8 {
	switch n {
	case 0:
		return defaultRetry
	case NoRetry:
		return 0
	}
	return n
}

// LocalEndpoint returns the values of qp that a peer with the address `peer` needs to connect to
// qp. The first PSN is random. LocalEndpoint fails if qp is not in RESET.
func LocalEndpoint(ctx verbs.Context, qp verbs.QP, peer netip.Addr, p Params) (Endpoint, error) {
	attr, err := qp.Query()
	if err != nil {
		return Endpoint{}, err
	}
	if attr.State != verbs.StateReset {
		return Endpoint{}, verbs.Errorf("connect", verbs.ErrState, "queue pair %#x is not in RESET; reset it or make another", attr.QPN)
	}
	dev := ctx.Device()
	gid, ok := verbs.SourceGID(dev.GIDs, peer)
	if !ok {
		return Endpoint{}, verbs.Errorf("connect", verbs.ErrUnreachable, "this NIC has no address of the family of %v", peer)
	}
	p = p.withDefaults()
	ahead := dev.Ahead
	if attr.Type != verbs.RC {
		ahead = 0
	}
	mtu := maxMTU(dev.LinkMTU, peer)
	if p.PathMTU != 0 {
		mtu = min(mtu, p.PathMTU)
	}
	return Endpoint{
		QPN:      attr.QPN,
		PSN:      wire.PSN(ctx.Runtime().Rand().Uint32()).Add(0),
		GID:      dev.GIDs[gid],
		MTU:      mtu,
		RdAtomic: min(p.RdAtomic, max(dev.MaxRdAtomic, 1)),
		Ahead:    ahead,
	}, nil
}

// Agree returns e with the values that both sides support: the smaller path MTU, and the smaller
// number of READs and atomics in flight. Ahead is the remote side's, or 0 if one side has none.
func (e Endpoint) Agree(remote Endpoint) Endpoint {
	e.MTU = min(e.MTU, remote.MTU)
	e.RdAtomic = min(e.RdAtomic, remote.RdAtomic)
	if e.Ahead > 0 {
		e.Ahead = remote.Ahead
	}
	return e
}

// BringUp moves qp from RESET to RTS, connected to remote, with the values that both sides support
// (see Agree). On error qp is in ERROR, or still in RESET if not even the first step was possible.
func BringUp(ctx verbs.Context, qp verbs.QP, p Params, local, remote Endpoint) error {
	depth := local.Agree(remote).RdAtomic
	return bringUp(ctx, qp, p, local, remote, depth, depth)
}

// bringUp does the work of BringUp with a different limit for each direction: incoming is how many
// READs and atomics the peer may have in flight, outgoing how many this side may. 0 means none.
func bringUp(ctx verbs.Context, qp verbs.QP, p Params, local, remote Endpoint, incoming, outgoing int) error {
	p = p.withDefaults()
	both := local.Agree(remote)
	gid, ok := verbs.SourceGID(ctx.Device().GIDs, remote.GID.Addr())
	if !ok {
		return verbs.Errorf("connect", verbs.ErrUnreachable, "this NIC has no address of the family of %v", remote.GID)
	}
	if err := qp.ToInit(verbs.ToInit{Access: p.Access, PKeyIndex: p.PKeyIndex}); err != nil {
		return err
	}
	err := qp.ToRTR(verbs.ToRTR{
		DestQPN: remote.QPN, DestGID: remote.GID, SourceGID: gid, RecvPSN: remote.PSN, PathMTU: both.MTU,
		MaxDestRdAtomic: depthOf(incoming), MinRNRTimer: p.MinRNRTimer, TrafficClass: p.TrafficClass,
		Ahead: both.Ahead,
	})
	if err == nil {
		err = qp.ToRTS(verbs.ToRTS{
			SendPSN: local.PSN, Timeout: p.Timeout, RetryCount: p.RetryCount, RNRRetry: p.RNRRetry, MaxRdAtomic: depthOf(outgoing),
		})
	}
	if err != nil {
		fail(qp)
	}
	return err
}

// depthOf converts a number of READs and atomics in flight to that of package verbs, where -1 means
// none.
func depthOf(n int) int {
	if n == 0 {
		return -1
	}
	return n
}

// fail moves a half-connected queue pair to ERROR.
func fail(qp verbs.QP) {
	_ = qp.ToError() // fails only if the queue pair was destroyed meanwhile
}

// maxMTU returns the largest path MTU with which a packet, with headers and ICRC, fits the link.
func maxMTU(linkMTU int, peer netip.Addr) verbs.MTU {
	overhead := 64 // IPv4, UDP, BTH, RETH, immediate data and ICRC
	if !peer.Unmap().Is4() {
		overhead = 84 // an IPv6 header is 20 bytes longer than one of IPv4
	}
	for m := verbs.MTU4096; m > verbs.MTU256; m /= 2 {
		if int(m)+overhead <= linkMTU {
			return m
		}
	}
	return verbs.MTU256
}
