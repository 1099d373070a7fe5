package engine

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/congestion/notify"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// notifier makes the NIC a notification point, which answers marked packets by congestion
// notification packets (CNPs), and passes received CNPs to the queue pairs that they name (A17.9.3).
type notifier struct {
	limit notify.Limiter
}

// newFlow makes the congestion control of a queue pair; nil if it is off.
func (p *port) newFlow() *congestion.Flow {
	if p.cfg.Congestion == nil {
		return nil
	}
	return p.cfg.Congestion.NewFlow()
}

// mayBeMarked reports whether packets of an opcode are sent as ECN-capable. Acknowledgements are not:
// their sender cannot slow them.
func mayBeMarked(op wire.Opcode) bool { return op != wire.RCAck && op != wire.RCAtomicAck }

// marked is called for a packet to qp that a switch has marked. It sends a CNP to the source of the
// packet, unless the limit forbids it (CA17-44).
func (n *notifier) marked(e *Engine, now clock.Time, qp *QP, f *wire.Frame, out *packetio.Batch) {
	e.counters.RxMarked++
	cc := e.cfg.Congestion
	if cc == nil || !n.limit.Allow(now, cc.Scope, cc.Interval, qp.Num(), sourceOf(f)) {
		return
	}
	r := &qp.route
	port, dest := r.udp.SrcPort, wire.QPN(0)
	if qp.connected() {
		dest = qp.q.Query().RTR.DestQPN
	} else {
		back := e.Port.backTo(f)
		r, port, dest = &back, f.UDP.SrcPort, f.DETH.SrcQP
	}
	// BTH as the annex says: PSN 0, no SE, M or AckReq; BECN as NICs set it. The 16 bytes are 0.
	cnp := wire.Packet{BTH: wire.BTH{Opcode: wire.CNP, PKey: f.BTH.PKey, DestQP: dest, BECN: true}}
	e.tx.head(r, port).SetClass(uint8(cc.DSCP) << 2)
	e.tx.emit(&cnp, r, out, &e.counters)
	e.counters.TxCnp++
}

func sourceOf(f *wire.Frame) netip.Addr {
	if f.V6 {
		return netip.AddrFrom16(f.IPv6.Src)
	}
	return netip.AddrFrom4(f.IPv4.Src)
}

// backTo returns the route to the sender of f, from the address to which f was sent.
func (p *port) backTo(f *wire.Frame) route {
	r := route{v6: f.V6, eth: wire.Ethernet{Dst: f.Eth.Src, Src: p.cfg.MAC}, udp: wire.UDP{DstPort: wire.UDPPort}}
	if r.v6 {
		r.ipv6 = wire.IPv6{NextHeader: wire.ProtocolUDP, HopLimit: transport.DefaultHopLimit, Src: f.IPv6.Dst, Dst: f.IPv6.Src}
		r.local = p.isMine(verbs.GID(f.IPv6.Src))
	} else {
		r.ipv4 = wire.IPv4{DF: true, TTL: transport.DefaultHopLimit, Protocol: wire.ProtocolUDP, Src: f.IPv4.Dst, Dst: f.IPv4.Src}
		r.local = p.isMine(verbs.GIDOf4(f.IPv4.Src))
	}
	return r
}

// handle handles a received CNP. It ignores a CNP that names no queue pair with congestion control,
// or that does not come from the queue pair's peer. A queue pair of datagrams has no peer: it takes
// CNPs from all addresses (CA17-45).
func (n *notifier) handle(e *Engine, now clock.Time, f *wire.Frame) {
	qp := e.Tables.qps[f.BTH.DestQP]
	if qp == nil || qp.flow == nil || f.Eth.Dst.IsMulticast() || !qp.receives() ||
		qp.connected() && !qp.route.fromPeer(f) || !verbs.SamePartition(f.BTH.PKey, qp.pkey) {
		e.counters.RxCnpIgnored++
		return
	}
	e.counters.RxCnp++
	qp.flow.Notified(now)
}

// CongestionInfo is the congestion control of a queue pair in a listing.
type CongestionInfo struct {
	congestion.FlowState
	QPN, Peer wire.QPN // Peer is 0 if the queue pair is not connected
	// To is the peer's address; the zero GID for datagrams.
	To    verbs.GID
	Owner *Owner
}

// Congestion returns the state of congestion control for each queue pair that can send, in ascending
// order of their numbers; none if congestion control is off.
func (l Listing) Congestion(now clock.Time) (list []CongestionInfo) {
	for _, q := range l.t.qps {
		if q.flow == nil || !q.receives() {
			continue
		}
		i := CongestionInfo{FlowState: q.flow.State(now), QPN: q.Num(), Owner: q.owner}
		if q.connected() {
			a := q.q.Query()
			i.Peer, i.To = a.RTR.DestQPN, a.RTR.DestGID
		}
		list = append(list, i)
	}
	slices.SortFunc(list, func(a, b CongestionInfo) int { return cmp.Compare(a.QPN, b.QPN) })
	return list
}
