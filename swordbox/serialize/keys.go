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
		return true // the responder checks no key for 0 bytes (IBTA C9-88)
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
	if len(k.banned) == 0 {
		return false
	}
	_, banned := k.banned[rkey]
	return banned
}

// ban keeps requests under a key off the shared connections from now on.
func (k *keys) ban(rkey uint32) {
	k.forget(rkey)
	if k.banned == nil || len(k.banned) >= maxKeys {
		k.banned = make(map[uint32]struct{}) // the table is full; the server will refuse each banned key once more
	}
	k.banned[rkey] = struct{}{}
}
