package redn

import (
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// operandHalf is the length of each of the two pieces of an operand in bytes. The pieces are not
// adjacent in a work request (see Request.Operand).
const operandHalf = OperandLen / 2

// setOperand puts operand y into the request when the program is built, so that no READ has to
// bring it.
func (r *Request) setOperand(y Operand) {
	r.entry.OpMod = byte(y)
	r.entry.Index = uint16(byte(y>>8))<<8 | uint16(byte(y>>16))
	r.entry.QPN = 0
	for i := 3; i < OperandLen; i++ {
		r.entry.QPN = r.entry.QPN<<8 | wire.QPN(byte(y>>(8*i)))
	}
}

// operandPieces returns the memory of the first n bytes of the operand.
func (r *Request) operandPieces(n int) []Mem {
	low, high := r.Operand()
	if n <= operandHalf {
		return []Mem{low.At(0, n)}
	}
	return []Mem{low, high.At(0, n-operandHalf)}
}

// limb is a part of a longer operand that one CAS can compare: 48 bits, or fewer at the end of the
// operand. x is the memory of the part; y is the value with which the program compares it.
type limb struct {
	x Mem
	y Operand
}

// limbs splits an operand of any length into parts of at most 48 bits, the most that one CAS can
// compare.
func limbs(x Mem, y []byte) (all []limb) {
	for at := 0; at < len(y); at += OperandLen {
		n := min(OperandLen, len(y)-at)
		l := limb{x: x.At(at, n)}
		for i := range n {
			l.y |= Operand(y[at+i]) << (8 * i)
		}
		all = append(all, l)
	}
	return all
}

// IfBytes appends requests that copy src to dst if the bytes at x are equal to y. y has at least
// one byte; `on` and scratch are as in If.
//
// It appends one CAS for each part of y, of up to 6 bytes. Each CAS makes a conditional request of
// queue `on` effective, or leaves it a NOP. If the part is equal, this request copies the next part
// of x into the place that the next CAS compares. Until then this place has a value that differs.
// So after a part that differs no later CAS succeeds, although all of them are executed.
func (q *Queue) IfBytes(on *Queue, x Mem, y []byte, dst, src, scratch Mem) {
	parts := limbs(x, y)
	first, done := on.next, on.Done.Count
	for i, p := range parts {
		e := sendring.Entry{Op: sendring.NOP, Flags: sendring.Signalled}
		becomes := sendring.Write
		if i == len(parts)-1 {
			e.Segments, e.RemoteAddr, e.RKey, e.NSGE = writeSegments, dst.Addr, dst.RKey, 1
			e.SGL[0] = src.sge()
		} else {
			next, behind := parts[i+1].x, &Request{queue: on, index: on.next + 1}
			pieces := behind.operandPieces(next.Len)
			becomes = sendring.Read
			e.Segments, e.RemoteAddr, e.RKey, e.NSGE = uint8(2+len(pieces)), next.Addr, next.RKey, len(pieces)
			for j, m := range pieces {
				e.SGL[j] = m.sge()
			}
		}
		w := on.Append(e)
		w.changed = true
		w.setOperand(p.y ^ 1)
		if i == 0 {
			q.Read(0, p.x, w.operandPieces(p.x.Len)...)
		}
		segments := int(e.Segments)
		q.CAS(sendring.Signalled|sendring.Fence, w.Control(), scratch.At(0, 8), control(sendring.NOP, segments, p.y), control(becomes, segments, 0))
		q.Wait(q.Done)
		if on.Managed {
			q.enable(on, first+uint32(i)+1)
		}
		q.wait(on.Done, done+uint32(i)+1)
	}
}
