package serialize

import "github.com/rdmalab/rdmalab/softrnic/wire"

// A request may move to a shared connection only if the client's connection and the switch's
// connection end at the same incarnation of the server. The server may have restarted with the same
// QPNs, R_Keys and addresses, after the client connected and before the switch did. A client that
// was silent meanwhile has not noticed. Without a switch the client's next request fails, because
// its queue pair does not exist at the server any more. If the switch moved the request, the new
// incarnation of the server would execute its atomic.
//
// No number proves that the incarnation is the same, because every number may repeat. The proof is
// that the client's connection works. The switch takes a request that is sent on the client's
// connection for the first time after the newest shared connection was attached. If the server
// acknowledges this request, its queue pair exists in the incarnation to which the shared
// connection belongs, or in a later one, in which the shared connection is dead. So each flow must
// be proven again for each shared connection that its server gets, including the first. Until then
// its requests stay on the client's connection, as without a switch. If the connection was learnt
// from packets, the proof also shows that its two flows are paired correctly, because the flow's
// server acknowledged the flow's PSN.

// proof is the state of the proof that a flow's connection and the server's shared ones belong to
// the same incarnation of the server.
type proof struct {
	incarnation uint32 // value of server.incarnation that is proven
	asked       uint32 // value of server.incarnation that an acknowledgement of mark would prove; 0 means none
	mark        wire.PSN
	breaks      uint32 // value of server.breaks at the last proof
}

// isProven reports whether the client's connection is proven to end at the same incarnation of the
// server as the newest shared connection.
func (k *clientConn) isProven() bool { return k.proof.incarnation == k.s.incarnation }

// isSuspect reports whether the server may have begun a new incarnation since the last proof of the
// flow: a shared connection has been replaced. A request that looks like a duplicate may then be
// the first request of a new connection with the same numbers.
func (k *clientConn) isSuspect() bool { return k.proof.breaks != k.s.breaks }

// sends is called for each request that is sent on the client's connection for the first time, with
// its PSN there. If the flow must be proven and no request serves as the proof yet, this one does.
func (k *clientConn) sends(own wire.PSN) {
	if k.proof.incarnation != k.s.incarnation && k.proof.asked != k.s.incarnation {
		k.proof.asked, k.proof.mark = k.s.incarnation, own
	}
}

// proves is called when all requests before `end` on the client's connection have been
// acknowledged. If the request that serves as the proof is one of them, the flow is proven.
func (k *clientConn) proves(end wire.PSN) {
	if p := &k.proof; p.incarnation != k.s.incarnation && p.asked == k.s.incarnation && wire.Diff(end, p.mark) > 0 {
		p.incarnation, p.breaks = k.s.incarnation, k.s.breaks
		k.s.m.stats.Proofs++
	}
}
