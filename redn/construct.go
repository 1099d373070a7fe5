package redn

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// Operand is what an If compares: 48 bits, little-endian in 6 bytes of memory.
type Operand uint64

// OperandLen is the length of an operand in bytes. An operand lies in the 48 bits of a request's
// first 8 bytes that the NIC ignores when its checks of entries are off.
const OperandLen = 6

// control returns the first 8 bytes of a request as a number in host order. They have the opcode,
// the number of segments and, in the 48 bits that a ring without checks ignores, the operand y.
func control(op sendring.Opcode, segments int, y Operand) uint64 {
	var b [8]byte
	b[0], b[1], b[2] = byte(y), byte(y>>8), byte(y>>16)
	b[4], b[5], b[6] = byte(y>>24), byte(y>>32), byte(y>>40)
	b[sendring.OffOpcode], b[sendring.OffSegments] = byte(op), byte(segments)
	return binary.NativeEndian.Uint64(b[:])
}

const writeSegments = 3 // control, remote, one SGE

// Held is given in place of the memory of an operand that the conditional request holds already: a receive or an
// earlier request has put it into the memory that Request.Operand names, as in Figure 4 of the paper.
var Held = Mem{}

// conditional appends to queue `on` a NOP that becomes a WRITE if the operand at x equals y. If
// unless is true, it appends a WRITE that becomes a NOP if the operand equals y. To q it appends a
// READ that copies the operand into this request, unless x is Held, and a CAS on the request's first word that
// changes its opcode. The fence delays the CAS until the READ has ended.
func (q *Queue) conditional(on *Queue, x Mem, y Operand, dst, src, scratch Mem, unless bool) *Request {
	is, becomes := sendring.NOP, sendring.Write
	if unless {
		is, becomes = becomes, is
	}
	e := sendring.Entry{Op: is, Segments: writeSegments, RemoteAddr: dst.Addr, RKey: dst.RKey, NSGE: 1, Flags: sendring.Signalled}
	e.SGL[0] = src.sge()
	w := on.Append(e)
	w.changed = true
	if x != Held {
		low, high := w.Operand()
		q.Read(0, x.At(0, OperandLen), low, high)
	}
	q.CAS(sendring.Signalled|sendring.Fence, w.Control(), scratch.At(0, 8), control(is, writeSegments, y), control(becomes, writeSegments, 0))
	return w
}

// If appends requests that copy src to dst if the operand at x equals y. The copy is a request of
// queue `on`, which must be managed: otherwise the NIC may execute the copy before it is changed.
// All other requests are of q, and the next request of q waits until the copy is complete. scratch
// is 8 bytes that may be overwritten. If returns the conditional request.
//
// With an operand that is Held, If appends the conditional copy, 1 atomic, and behind it 3 WAITs or ENABLEs (see Cost): what
// Table 2 of the paper says. An operand in memory takes a copy more.
func (q *Queue) If(on *Queue, x Mem, y Operand, dst, src, scratch Mem) *Request {
	w := q.conditional(on, x, y, dst, src, scratch, false)
	q.decide(on)
	return w
}

// decide appends three requests to q: a WAIT until the requests of q have ended, because they
// change requests of queue `on`; an ENABLE of queue `on`, if that is managed; and a WAIT until the
// requests of queue `on` are complete.
func (q *Queue) decide(on *Queue) {
	q.Wait(q.Done)
	q.release(on)
	q.Wait(on.Done)
}

// release appends an ENABLE of queue `on` if that queue is managed. A queue that is not managed
// starts by its doorbell.
func (q *Queue) release(on *Queue) {
	if on.Managed {
		q.Enable(on)
	}
}

// IfElse appends requests that copy src to dst if the operand at x equals y. Otherwise the requests
// copy the memory `other` to dst.
func (q *Queue) IfElse(on *Queue, x Mem, y Operand, dst, src, other, scratch Mem) {
	q.conditional(on, x, y, dst, src, scratch, false)
	q.conditional(on, x, y, dst, other, scratch, true)
	q.decide(on)
}

// Move appends a copy of src to dst and waits until it is complete. This is what the x86
// instruction mov does, with an immediate operand if src is a constant.
func (q *Queue) Move(dst, src Mem) {
	q.Write(sendring.Signalled, dst, src)
	q.Wait(q.Done)
}

// Load appends requests that read an address at pointer (8 bytes, big-endian) and copy the bytes at
// this address to dst. This is what the x86 instruction mov with indirect addressing does. The copy
// is a request of queue `on`, which is managed. key is the R_Key of the memory at the address. The
// next request of q waits until the copy is complete.
func (q *Queue) Load(on *Queue, dst, pointer Mem, key uint32) {
	r := on.Read(sendring.Signalled, Mem{RKey: key}, dst)
	q.Read(sendring.Signalled, pointer.At(0, 8), r.Remote())
	q.decide(on)
}
