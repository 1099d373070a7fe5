package transform

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// WordLen is the length in bytes of the word that an atomic operation works on (IBTA 9.4.5).
const WordLen = 8

// Result returns the value of a word after a CAS or FAA; old is the value before it (IBTA 9.4.5).
func Result(op wire.Opcode, compare, swapOrAdd, old uint64) uint64 {
	switch {
	case op == wire.RCFetchAdd:
		return old + swapOrAdd
	case old == compare:
		return swapOrAdd
	}
	return old
}

// ToWrite changes an atomic into an RDMA WRITE of value to the same word under the same R_Key. It
// stores the bytes in payload, which must stay unchanged until f has been encoded. The WRITE
// requests an acknowledgement: a responder always answers an atomic, but a WRITE only on request
// (IBTA 9.7.5.1.1).
func ToWrite(f *wire.Frame, value uint64, payload *[WordLen]byte) {
	PutWord(payload, value)
	toWriteOnly(f, payload[:])
}

// ToEmptyWrite changes a request into an RDMA WRITE of no bytes under the same R_Key. Such a WRITE
// takes one PSN, is counted and acknowledged as a message, and changes no memory. f is an atomic or
// has a RETH.
func ToEmptyWrite(f *wire.Frame) { toWriteOnly(f, nil) }

func toWriteOnly(f *wire.Frame, payload []byte) {
	va, _, rkey, _ := Target(f)
	f.BTH.Opcode, f.BTH.AckReq = wire.RCWriteOnly, true
	f.RETH = wire.RETH{VA: va, RKey: rkey, Length: uint32(len(payload))}
	f.AtomicETH = wire.AtomicETH{}
	f.Payload = payload
	f.UDP.Checksum = 0
}

// Target returns the memory that a request names in its RETH or AtomicETH: the address, the length
// in bytes and the R_Key. ok is false for a packet without these headers.
func Target(f *wire.Frame) (va uint64, n, rkey uint32, ok bool) {
	switch {
	case f.BTH.Opcode.Has(wire.HasAtomicETH):
		return f.AtomicETH.VA, WordLen, f.AtomicETH.RKey, true
	case f.BTH.Opcode.Has(wire.HasRETH):
		return f.RETH.VA, f.RETH.Length, f.RETH.RKey, true
	}
	return 0, 0, 0, false
}

// PutWord stores a number as the payload of a WRITE of one word, in little-endian byte order, which
// servers' memory is assumed to have.
func PutWord(payload *[WordLen]byte, value uint64) { binary.LittleEndian.PutUint64(payload[:], value) }

// Piece says what a WRITE does to one word: it replaces the bits of Mask by those of Bits. If Mask
// is all ones, the WRITE sets the whole word; if it is 0, none of it.
type Piece struct{ Bits, Mask uint64 }

// PieceOf returns what a single-packet WRITE f does to the word at va. f must have a RETH.
func PieceOf(f *wire.Frame, va uint64) Piece {
	var p Piece
	for i := range uint64(WordLen) {
		at := va + i - f.RETH.VA // wraps around if the byte is before the payload
		if at < uint64(len(f.Payload)) {
			p.Mask |= 0xff << (8 * i)
			p.Bits |= uint64(f.Payload[at]) << (8 * i)
		}
	}
	return p
}

// Apply returns the value of the word after the WRITE; old is the value before it.
func (p Piece) Apply(old uint64) uint64 { return old&^p.Mask | p.Bits }

// Whole reports whether the WRITE sets all bytes of the word.
func (p Piece) Whole() bool { return p.Mask == ^uint64(0) }
