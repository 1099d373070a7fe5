package hard

import "github.com/rdmalab/rdmalab/softrnic/wire"

// right is what a request wants to do.
type right uint8

const (
	rightWrite right = iota
	rightRead
	rightAtomic
)

func rightOf(op wire.Opcode) right {
	switch {
	case op.Is(wire.OpAtomic):
		return rightAtomic
	case op.Is(wire.OpRead):
		return rightRead
	}
	return rightWrite
}

// maxKeys bounds the keys that are known to work.
const maxKeys = 4096

type keyRight struct {
	rkey  uint32
	right right
}

// span is a range of addresses, last included.
type span struct{ first, last uint64 }

// keys knows for which addresses a remote key was seen to work. A region is one range of addresses, so everything between
// two addresses that worked works, too. A request that is not known to work stays on its own connection, where a wrong
// key harms nobody else (hole 20).
type keys struct {
	table map[keyRight]span
	// banned worked on their clients' connections and were refused on a shared one: they are of another protection domain,
	// or were taken back. They stay where they work (hole 22).
	banned map[uint32]struct{}
}

// covers reports whether the key was seen to give the right to n bytes at va.
func (k *keys) covers(rkey uint32, r right, va uint64, n uint32) bool {
	if n == 0 {
		return true // no key is checked then (IBTA C9-88)
	}
	s, ok := k.table[keyRight{rkey, r}]
	return ok && va >= s.first && va+uint64(n)-1 <= s.last && va+uint64(n)-1 >= va
}

// prove notes that n bytes at va could be accessed.
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
		clear(k.table) // they prove themselves again
		fallthrough
	default:
		s = span{va, last}
	}
	k.table[id] = s
}

// forget takes a key as unknown again.
func (k *keys) forget(rkey uint32) {
	for _, r := range []right{rightWrite, rightRead, rightAtomic} {
		delete(k.table, keyRight{rkey, r})
	}
}

// isBanned reports whether a key stays off shared connections.
func (k *keys) isBanned(rkey uint32) bool {
	if len(k.banned) == 0 {
		return false
	}
	_, banned := k.banned[rkey]
	return banned
}

// ban keeps a key off shared connections.
func (k *keys) ban(rkey uint32) {
	k.forget(rkey)
	if k.banned == nil || len(k.banned) >= maxKeys {
		k.banned = make(map[uint32]struct{}) // they are refused once more
	}
	k.banned[rkey] = struct{}{}
}
