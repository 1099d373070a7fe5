package nictable

import (
	"encoding/binary"
	"errors"
)

// Version returns the version of the last item that an answer had.
func (c *Client) Version() uint32 { return c.version }

// MaxPrograms is how many programs there may be, unless SetMost says so.
const MaxPrograms = maxPrograms

// SetMost sets how many programs there may be.
func (e *Estate) SetMost(n int) { e.most = n }

// Answer returns the value with which the server answers a GET.
func (s *Server) Answer(key uint64) ([]byte, error) { return s.get(key, nil) }

// SetVersion sets the version of the newest item.
func (s *Server) SetVersion(n uint32) { s.t.version = n }

// Twin returns another key with the fingerprint of a key.
func Twin(key uint64) uint64 { return unmix(mix(key+1)^1<<60) - 1 }

// unmix is the inverse of mix.
func unmix(x uint64) uint64 {
	const factor = 0xd6e8feb86659fd93
	inverse := uint64(1) // of factor, modulo 2^64: each step doubles the number of right bits
	for range 7 {
		inverse *= 2 - factor*inverse
	}
	x ^= x >> 32
	for range 2 {
		x *= inverse
		x ^= x >> 32
	}
	return x
}

// TakeInMove lets the server's process end within the move of a key, which then is in both of its
// slots, and another process take the table over. It returns the number of moves before and after
// that, and how many slots have the key.
func (s *Server) TakeInMove(key uint64) (before, after uint64, slots int, err error) {
	f := fingerprint(key)
	both, from := s.e.shape.slotsOf(f), s.t.find(f)
	if err := s.t.set(both[0]+both[1]-from, s.t.slots[from]); err != nil {
		return 0, 0, 0, err
	}
	moves := func() uint64 {
		var b [wordLen]byte
		err = errors.Join(err, s.e.mr.ReadAt(b[:], 0))
		return binary.LittleEndian.Uint64(b[:])
	}
	before = moves()
	t, terr := s.e.take()
	if terr != nil {
		return 0, 0, 0, terr
	}
	for _, n := range both {
		if t.slots[n].print == f {
			slots++
		}
	}
	return before, moves(), slots, err
}

// SlotsOf returns the two slots of a key, in the order in which they are tried.
func (s Shape) SlotsOf(key uint64) [probes]int { return s.slotsOf(fingerprint(key)) }
