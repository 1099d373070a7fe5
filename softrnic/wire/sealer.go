package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Sealer computes ICRCs. For short packets it is twice as fast as the functions without it, because
// it has memory to which it copies the packet. The zero value is ready to use. A Sealer is for one
// goroutine, and must not be copied while it is in use.
type Sealer struct {
	buf [sealBuf]byte
}

// Lengths with which hash/crc32 is fast: at least sealMin bytes, and multiples of sealUnit.
const (
	sealMin  = 64
	sealUnit = 16
	sealBuf  = 256
	// leadLen is the length of the lead: bytes that take the CRC register from 0, which it has
	// after zeros, to icrcSeed.
	leadLen = 4
)

// sealLead is the lead as a little-endian word. The register after four bytes is a sum of one entry
// of the table for each; the topmost byte of the target value identifies that entry, from the last
// byte to the first.
var sealLead = func() uint32 {
	var top [256]byte // index of the entry with that top byte
	for i, c := range crc32.IEEETable {
		top[c>>24] = byte(i)
	}
	// Step backwards: want = table[x] ^ reg>>8, so x is known by the top byte, and reg is known
	// except for its low byte.
	want := uint32(icrcSeed)
	for range leadLen {
		x := top[want>>24]
		want = (want^crc32.IEEETable[x])<<8 | uint32(x)
	}
	return want
}()

// AppendFrame is f.AppendTo(b).
func (s *Sealer) AppendFrame(b []byte, f *Frame) []byte { return s.AppendWith(b, f, &f.Packet) }

// AppendWith is AppendFrame with p in place of the frame's packet, which saves a copy of p.
func (s *Sealer) AppendWith(b []byte, f *Frame, p *Packet) []byte {
	start := len(b)
	b = f.appendOpen(b, p)
	return binary.LittleEndian.AppendUint32(b, s.icrc(b[start+f.Eth.Len():], f.V6))
}

// Check is CheckICRC.
func (s *Sealer) Check(frame []byte) bool {
	covered, sum, v6, ok := icrcSpan(frame)
	return ok && binary.LittleEndian.Uint32(sum) == s.icrc(covered, v6)
}

// icrc is the function icrc with the packet copied behind zeros, as many as give it a fast length,
// and masked there.
func (s *Sealer) icrc(b []byte, v6 bool) uint32 {
	total := max(sealMin, (len(b)+leadLen+sealUnit-1)&^(sealUnit-1))
	if total > sealBuf {
		return icrc(b, v6)
	}
	at := total - len(b)
	clear(s.buf[:at])
	binary.LittleEndian.PutUint32(s.buf[at-leadLen:], sealLead)
	copy(s.buf[at:], b)
	masks := icrcMaskIPv4[:]
	if v6 {
		masks = icrcMaskIPv6[:]
	}
	for i, m := range masks {
		if m != 0 {
			w := s.buf[at+8*i:]
			binary.LittleEndian.PutUint64(w, binary.LittleEndian.Uint64(w)|m)
		}
	}
	return crc32.Update(^uint32(0), crc32.IEEETable, s.buf[:total])
}
