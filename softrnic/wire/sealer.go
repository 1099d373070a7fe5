package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// Sealer computes ICRCs. For short packets it is twice as fast as Frame.AppendTo and CheckICRC,
// because it has memory to which it copies the packet. The zero value is ready to use. A Sealer is
// for one goroutine, and must not be copied while it is in use.
type Sealer struct {
	buf [sealBuf]byte
}

// hash/crc32 is fast for lengths of at least sealMin bytes that are multiples of sealUnit. So a
// Sealer copies a packet, with zeros and the lead in front of it, to a buffer of sealBuf bytes,
// unless the packet is too long for that.
const (
	sealMin  = 64
	sealUnit = 16
	sealBuf  = 256
	// leadLen is the length of the lead: bytes in front of a packet's headers that change the CRC
	// register from 0 to icrcSeed. Any number of zeros can precede the lead, because zeros do not
	// change a register that is 0.
	leadLen = 4
)

// sealLead is the lead (see leadLen) as a little-endian word. It is computed backwards. The
// register after four bytes is the exclusive or of one shifted table entry for each byte, and the
// topmost byte of the register identifies the entry of the last byte. Without that entry, the
// topmost byte identifies the entry of the byte before, and so on.
var sealLead = func() uint32 {
	var top [256]byte // index of the table entry with this top byte
	for i, c := range crc32.IEEETable {
		top[c>>24] = byte(i)
	}
	// want is the register after a byte of the lead; the loop goes from the last byte to the first.
	// want is table[x] ^ reg>>8, where reg is the register before the byte, and x is the index of
	// the table entry that the byte selects. The top byte of want gives x, and so the three upper
	// bytes of reg. The lowest byte of reg is not known, and holds x instead.
	want := uint32(icrcSeed)
	for range leadLen {
		x := top[want>>24]
		want = (want^crc32.IEEETable[x])<<8 | uint32(x)
	}
	return want
}()

// AppendFrame appends frame f to b; the result is that of f.AppendTo(b).
func (s *Sealer) AppendFrame(b []byte, f *Frame) []byte { return s.AppendWith(b, f, &f.Packet) }

// AppendWith appends frame f with packet p instead of the frame's own, so that the caller need not
// copy p into f.
func (s *Sealer) AppendWith(b []byte, f *Frame, p *Packet) []byte {
	start := len(b)
	b = f.appendOpen(b, p)
	return binary.LittleEndian.AppendUint32(b, s.icrc(b[start+f.Eth.Len():], f.V6))
}

// Check reports whether the frame has a correct ICRC, as CheckICRC does.
func (s *Sealer) Check(frame []byte) bool {
	covered, sum, v6, ok := icrcSpan(frame)
	return ok && binary.LittleEndian.Uint32(sum) == s.icrc(covered, v6)
}

// icrc returns the same result as the function icrc. It copies the packet, puts the lead in front
// of it (see leadLen), and zeros in front of the lead, so that hash/crc32 gets a length for which
// it is fast (see sealMin). It replaces the masked fields in the copy.
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
