package serialize

import "github.com/rdmalab/rdmalab/softrnic/wire"

// A request moves to a shared connection only if the client is connected to the same incarnation of
// the server as the switch. The server may have restarted with the same QPNs, R_Keys and addresses
// after the client connected and before the switch did, and a client that was silent meanwhile has
// not noticed. Without a switch the client's next request fails, because its queue pair does not
// exist any more; if the request were moved, its atomic would be executed on the memory of the new
// incarnation.
//
// No number proves that the incarnation is the same, because all of them may repeat. The proof is
// that the client's connection works: if a request is sent on it for the first time after the
// newest shared connection was attached, and is then acknowledged, its queue pair exists in the
// incarnation of the server to which the shared connection belongs, or in a later one, in which the
// shared connection is dead. So each flow must be proven once for each shared connection that its
// server gets, also for the first one; until then requests stay on the client's connection, as
// without a switch. The proof also shows that the two flows of a connection that was learnt from
// packets are paired correctly: the flow's PSN was acknowledged by the flow's server.

// proof is the state of the proof that a flow's connection and the server's shared ones belong to
// the same incarnation of the server.
type proof struct {
	incarnation uint32 // value of server.incarnation that is proven
	asked       uint32 // value of server.incarnation that an acknowledgement of mark would prove; 0: none
	mark        wire.PSN
	breaks      uint32 // value of server.breaks at the last proof
}

// isProven reports whether the flow's connection is proven to belong to the same incarnation of the
// server as the newest shared connection.
func (k *clientConn) isProven() bool { return k.proof.incarnation == k.s.incarnation }

// isSuspect reports whether the server may have begun a new incarnation since the last proof of the
// flow, because a shared connection has been replaced. An apparent duplicate may then be the first
// request of a new connection with the same numbers.
func (k *clientConn) isSuspect() bool { return k.proof.breaks != k.s.breaks }

// sends is called with the PSN of a request that is sent on the client's connection for the first
// time.
func (k *clientConn) sends(own wire.PSN) {
	if k.proof.incarnation != k.s.incarnation && k.proof.asked != k.s.incarnation {
		k.proof.asked, k.proof.mark = k.s.incarnation, own
	}
}

// proves is called when all requests before end on the client's connection have been acknowledged.
func (k *clientConn) proves(end wire.PSN) {
	if p := &k.proof; p.incarnation != k.s.incarnation && p.asked == k.s.incarnation && wire.Diff(end, p.mark) > 0 {
		p.incarnation, p.breaks = k.s.incarnation, k.s.breaks
		k.s.m.stats.Proofs++
	}
}
