package redn

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// A node of a list has the bytes that one READ scatters over the requests of a walk:
//
//	the address of the value and the address of the next node, both big-endian
//	seven bytes for the control segment of the answer: the key and an opcode
//	the immediate data of the answer
//	seven bytes for the control segment of the request that ends a walk of a ListServer
//
// The two opcodes are NOP in all nodes except the one behind the last node (AppendEnd): its opcodes
// make the NIC end the walk.
const (
	keyLen = controlLen - 1
	// NodeLen is the length of a node in bytes.
	NodeLen = 2*wordLen + 2*keyLen + 4
	// walkCopies is how many copies of the key a client's request contains: the NIC can scatter them
	// over that many CAS of a walk.
	walkCopies = sendring.MaxSGE
	// WalkLen is the length of a client's request (AppendWalk) in bytes.
	WalkLen = walkCopies*keyLen + wordLen
)

// appendKey appends the first seven bytes of a control segment that has the opcode op and the
// operand key.
func appendKey(b []byte, op sendring.Opcode, key Operand) []byte {
	word := binary.NativeEndian.AppendUint64(nil, control(op, 0, key))
	return append(b, word[:keyLen]...)
}

// AppendNode appends a node of a list: value is the address of the value of key, and next is the
// address of the next node.
func AppendNode(b []byte, key Operand, value, next uint64) []byte {
	return appendNode(b, key, value, next, sendring.NOP, sendring.NOP, Hit)
}

// AppendEnd appends the node that follows the last node of a list, and ends each walk that reaches
// it. self is the address at which this node will be: the node names itself as its next node.
// Clients whose key is in no node of the list get the bytes at value.
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

// AppendWalk appends the request that a client sends: walkCopies copies of the key, in the byte
// order of compare values, and head, the address of the first node.
func AppendWalk(b []byte, key Operand, head uint64) []byte {
	one := appendKey(nil, sendring.NOP, key)
	slices.Reverse(one)
	b = append(b, bytes.Repeat(one, walkCopies)...)
	return binary.BigEndian.AppendUint64(b, head)
}

// key returns the memory of that part of a CAS's compare value which the client's key replaces.
func (r *Request) key() Mem { return r.bytes(sendring.OffCompare+1, keyLen) }

// head returns the memory of the first seven bytes of the control segment: the opcode and the
// operand.
func (r *Request) head() Mem { return r.bytes(0, keyLen) }

func (r *Request) immediate() Mem { return r.bytes(sendring.OffImm, 4) }

// dataAddr returns the memory of the address in the first data segment of a WRITE.
func (r *Request) dataAddr() Mem { return r.bytes(offDataAddr, wordLen) }

// answer returns a WRITE with immediate data imm to the client's buffer. Another request of the
// program fills in the address of the value; key is the L_Key of the value's memory.
func answer(client Mem, key uint32, imm uint32) sendring.Entry {
	e := sendring.Entry{Op: sendring.WriteImm, Flags: sendring.Signalled, Imm: imm, RemoteAddr: client.Addr, RKey: client.RKey, NSGE: 1}
	e.SGL[0].LKey, e.SGL[0].Length = key, uint32(client.Len)
	return e
}

// walkCAS appends a CAS that changes the opcode of r from NOP to op if the key in r is the
// client's. segments is the number of segments of r. The fence delays the CAS until the READ that
// copies the node's key into r has ended.
func (q *Queue) walkCAS(r *Request, segments int, op sendring.Opcode, scratch Mem) *Request {
	return q.CAS(sendring.Signalled|sendring.Fence, r.Control(), scratch.At(0, wordLen), control(sendring.NOP, segments, 0), control(op, segments, 0))
}
