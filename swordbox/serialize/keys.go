package serialize

import "github.com/rdmalab/rdmalab/softrnic/wire"

// right is the access right that a request needs.
type right uint8

const (
	rightWrite right = iota
	rightRead
	rightAtomic
)

func rightOf(op wire.Opcode) right {
	switch {
	case op == wire.RCAtomicWrite:
		return rightWrite
	case op.Is(wire.OpAtomic):
		return rightAtomic
	case op.Is(wire.OpRead):
		return rightRead
	}
	return rightWrite
}

// maxKeys bounds the table of R_Keys that are proven to work.
const maxKeys = 4096

type keyRight struct {
	rkey  uint32
	right right
}

// span is a range of addresses, last included.
type span struct{ first, last uint64 }

// keys records at which addresses, under which R_Keys, requests have succeeded. A region is one
// range of addresses, so all addresses between two proven ones are proven, too. A request to an
// unproven address stays on the client's connection, where a wrong R_Key ends no other client's
// connection (hole 20).
type keys struct {
	table map[keyRight]span
	// banned are R_Keys that worked on clients' connections and were refused on a shared one: the
	// key belongs to another protection domain, or its region was deregistered. Requests under
	// these keys stay on the clients' connections (hole 22).
	banned map[uint32]struct{}
}

// covers reports whether the key is proven to give right r to n bytes at va.
func (k *keys) covers(rkey uint32, r right, va uint64, n uint32) bool {
	if n == 0 {
		// The responder checks no key for 0 bytes (IBTA C9-88). By a request of 0 bytes under R_Key 0,
		// which no region has, a client asks whether the server still has its connection
		// (remotemem.Fabric.Expect). Only that connection can answer this.
		return rkey != 0
	}
	s, ok := k.table[keyRight{rkey, r}]
	return ok && va >= s.first && va+uint64(n)-1 <= s.last && va+uint64(n)-1 >= va
}

// prove records that a request with right r to n bytes at va has succeeded.
func (k *keys) prove(rkey uint32, r right, va uint64, n uint32) {
	last := va + uint64(n) - 1
	if n == 0 || last < va || k.isBanned(rkey) {
		return
	}
	if k.table == nil {
		k.table = make(map[keyRight]span)
	}
	id := keyRight{rkey, r}
	s, ok := k.table[id]
	switch {
	case ok:
		s = span{min(s.first, va), max(s.last, last)}
	case len(k.table) >= maxKeys:
		clear(k.table) // the table is full; later requests prove their keys again
		fallthrough
	default:
		s = span{va, last}
	}
	k.table[id] = s
}

// forget makes a key unproven.
func (k *keys) forget(rkey uint32) {
	for _, r := range []right{rightWrite, rightRead, rightAtomic} {
		delete(k.table, keyRight{rkey, r})
	}
}

// isBanned reports whether requests under a key must not use shared connections.
func (k *keys) isBanned(rkey uint32) bool {
	_, banned := k.banned[rkey]
	return banned
}

// ban keeps requests under a key off the shared connections from now on.
func (k *keys) ban(rkey uint32) {
	k.forget(rkey)
	if k.banned == nil || len(k.banned) >= maxKeys {
		// If the table is full, it is emptied; the server will refuse each banned key once more.
		k.banned = make(map[uint32]struct{})
	}
	k.banned[rkey] = struct{}{}
}

// A request may move to a shared connection only if the client's connection and the switch's
// connection end at the same incarnation of the server. The server may have restarted with the same
// QPNs, R_Keys and addresses, after the client connected and before the switch did. A client that
// was silent meanwhile has not noticed the restart. Without a switch the client's next request
// fails, because its queue pair does not exist at the server any more. If the switch moved the
// request, the new incarnation of the server would execute its atomic.
//
// No number proves that the incarnation is the same, because every number may repeat. The proof is
// that the client's connection works: the server acknowledges a request that was first sent there
// after the newest shared connection was attached. Then the server's queue pair exists in the
// incarnation to which the shared connection belongs, or in a later one. In a later one the shared
// connection is dead, so the server executes no moved request. So each flow must be proven again
// for each shared connection that its server gets, including the first. Until then its requests
// stay on the client's connection, as without a switch. If the connection was learnt from packets,
// the proof also shows that its two flows are paired correctly, because the flow's server
// acknowledged the flow's PSN.

// proof is the state of the proof that a flow's connection and the server's shared ones belong to
// the same incarnation of the server.
type proof struct {
	incarnation uint32 // value of server.incarnation that is proven
	// asked is the value of server.incarnation that an acknowledgement of the request with PSN mark
	// would prove; 0 means none.
	asked  uint32
	mark   wire.PSN
	breaks uint32 // value of server.breaks at the last proof
}

// isProven reports whether the client's connection is proven to end at the same incarnation of the
// server as the newest shared connection.
func (k *clientConn) isProven() bool { return k.proof.incarnation == k.s.incarnation }

// isSuspect reports whether the server may have begun a new incarnation since the last proof of the
// flow, because a shared connection has replaced an earlier one since then. A request that looks
// like a duplicate may then be the first request of a new connection with the same numbers.
func (k *clientConn) isSuspect() bool { return k.proof.breaks != k.s.breaks }

// sends is called for each request that is sent on the client's connection for the first time, with
// its PSN there. If the flow must be proven and no request serves as the proof yet, this request
// does.
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
