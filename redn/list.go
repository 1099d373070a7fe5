package redn

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// A node of a list has the bytes that a READ scatters over the requests of a walk: the address of the
// value and that of the next node, both big-endian; the first seven bytes of the control segment of the
// answer, which are the key and an opcode; the immediate data of the answer; and seven bytes for the
// request that ends a recycled walk. The opcodes are those of NOPs, but in the node behind the last one.
const (
	keyLen = controlLen - 1
	// NodeLen is the length of a node.
	NodeLen = 2*wordLen + 2*keyLen + 4
	// walkCopies is how often a client sends the key: a READ scatters it over as many requests.
	walkCopies = sendring.MaxSGE
	// WalkLen is the length of the request of a client.
	WalkLen = walkCopies*keyLen + wordLen
)

// appendKey appends the first seven bytes of a control segment.
func appendKey(b []byte, op sendring.Opcode, key Operand) []byte {
	word := binary.NativeEndian.AppendUint64(nil, control(op, 0, key))
	return append(b, word[:keyLen]...)
}

// AppendNode appends a node.
func AppendNode(b []byte, key Operand, value, next uint64) []byte {
	return appendNode(b, key, value, next, sendring.NOP, sendring.NOP, Hit)
}

// AppendEnd appends what is behind the last node: it is at address self. The bytes at value are copied
// to clients whose key is in no node of the list.
func AppendEnd(b []byte, value, self uint64) []byte {
	return appendNode(b, 0, value, self, sendring.WriteImm, sendring.MaskedFetchAdd, Miss)
}

func appendNode(b []byte, key Operand, value, next uint64, answer, end sendring.Opcode, imm uint32) []byte {
	b = binary.BigEndian.AppendUint64(b, value)
	b = binary.BigEndian.AppendUint64(b, next)
	b = appendKey(b, answer, key)
	b = binary.BigEndian.AppendUint32(b, imm)
	return appendKey(b, end, key)
}

// AppendWalk appends what a client sends: the key, in the byte order of compare values, and the address
// of the first node.
func AppendWalk(b []byte, key Operand, head uint64) []byte {
	one := appendKey(nil, sendring.NOP, key)
	for range walkCopies {
		for i := range one {
			b = append(b, one[keyLen-1-i])
		}
	}
	return binary.BigEndian.AppendUint64(b, head)
}

// key returns the part of the compare value of a CAS that the client's key replaces.
func (r *Request) key() Mem { return r.bytes(sendring.OffCompare+1, keyLen) }

// head returns the first seven bytes of the control segment.
func (r *Request) head() Mem { return r.bytes(0, keyLen) }

// immediate returns the immediate data.
func (r *Request) immediate() Mem { return r.bytes(sendring.OffImm, 4) }

// dataAddr returns the address in the first data segment of a WRITE.
func (r *Request) dataAddr() Mem { return r.bytes(offDataAddr, wordLen) }

// answer returns a WRITE with immediate data of a value, whose address is filled in later.
func answer(client Mem, key uint32, imm uint32) sendring.Entry {
	e := sendring.Entry{Op: sendring.WriteImm, Flags: sendring.Signalled, Imm: imm, RemoteAddr: client.Addr, RKey: client.RKey, NSGE: 1}
	e.SGL[0].LKey, e.SGL[0].Length = key, uint32(client.Len)
	return e
}

// walkCAS appends the CAS that makes a NOP an op if its key is the client's. It waits for the READ that
// brings the key of the node.
func (q *Queue) walkCAS(r *Request, segments int, op sendring.Opcode, scratch Mem) *Request {
	return q.CAS(sendring.Signalled|sendring.Fence, r.Control(), scratch.At(0, wordLen), control(sendring.NOP, segments, 0), control(op, segments, 0))
}
