package packettrace

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Record is a frame in a trace: when the switch got it, and its first bytes. In memory it has Size
// bytes, big-endian. The number before a group of fields is its offset, and the number behind a field
// is the length of the field, both in bytes:
//
//	  0: number 8, time 8
//	 16: epoch 4, length 4
//	 24: port 2, packets 2, taken 2, zero 2
//	 32: head 92, the first bytes of the frame, then zeros
//	124: CRC-32 (IEEE 802.3) of the bytes before, 4
type Record struct {
	// Number counts the records of an epoch, from 1. Time is when the frame came in, by the switch's
	// clock.
	Number uint64
	Time   clock.Time
	// Epoch names the ring that the record belongs to. It is never 0, and is another one after a
	// restart of the switch.
	Epoch uint32
	// Length is the length of the frame in bytes. Port is the port at which it came in.
	Length uint32
	Port   uint16
	// Packets is how many packets the frame has: more than 1 in a super-frame. Taken is for how many
	// of these packets the record stands: those that belong to the sample.
	Packets, Taken uint16
	// Head has the first bytes of the frame, at most HeadLen. A parsed Record shares them with its
	// source.
	Head []byte
}

// Size is the length of a record in bytes. HeadLen is how many bytes of a frame it has at most: enough
// for Ethernet, IPv6, UDP, BTH and RETH.
const (
	Size    = 128
	HeadLen = 92

	headAt = 32
	sumAt  = headAt + HeadLen
)

// AppendTo appends the record, Size bytes.
func (r *Record) AppendTo(b []byte) []byte {
	be, from := binary.BigEndian, len(b)
	b = be.AppendUint64(be.AppendUint64(b, r.Number), uint64(r.Time))
	b = be.AppendUint32(be.AppendUint32(b, r.Epoch), r.Length)
	b = be.AppendUint16(be.AppendUint16(be.AppendUint16(be.AppendUint16(b, r.Port), r.Packets), r.Taken), 0)
	n := min(len(r.Head), HeadLen)
	b = append(b, r.Head[:n]...)
	b = append(b, zeros[:HeadLen-n]...)
	return be.AppendUint32(b, crc32.ChecksumIEEE(b[from:]))
}

var zeros [HeadLen]byte

// Bounds of a frame: mostLength is more than a super-frame has, and each of its packets has at least leastPacket bytes,
// BTH and ICRC.
const mostLength, leastPacket = 72 << 10, 16

// Parse reads a record. ok is false if b does not begin with a whole record: the memory was never
// written, has other data, or was read while the record was written. The record's Head shares the
// bytes of b.
func (r *Record) Parse(b []byte) (ok bool) {
	be := binary.BigEndian
	if len(b) < Size || be.Uint32(b[sumAt:]) != crc32.ChecksumIEEE(b[:sumAt]) {
		return false
	}
	*r = Record{
		Number: be.Uint64(b), Time: clock.Time(be.Uint64(b[8:])), Epoch: be.Uint32(b[16:]), Length: be.Uint32(b[20:]),
		Port: be.Uint16(b[24:]), Packets: be.Uint16(b[26:]), Taken: be.Uint16(b[28:]),
	}
	r.Head = b[headAt : headAt+int(min(r.Length, HeadLen))]
	return r.Epoch != 0 && r.Number != 0 && r.Taken != 0 && r.Taken <= r.Packets && r.Length <= mostLength && int(r.Packets) <= 1+int(r.Length)/leastPacket
}
