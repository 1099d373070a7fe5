package redn

import "github.com/rdmalab/rdmalab/softrnic/sendring"

// Max appends a request that writes the largest of at most 16 numbers to word. The numbers have 1
// to 8 bytes, little-endian.
func (q *Queue) Max(f sendring.Flags, word Mem, numbers ...Mem) *Request {
	return q.remote(sendring.Max, f, word.At(0, wordLen), numbers...)
}

// Min appends a request that writes the smallest of the numbers to word; see Max.
func (q *Queue) Min(f sendring.Flags, word Mem, numbers ...Mem) *Request {
	return q.remote(sendring.Min, f, word.At(0, wordLen), numbers...)
}

// IfAtMost appends requests that copy src to dst if the operand at x is at most y. The NIC computes
// the maximum of both, and an If compares this with y. bound is memory that holds y; word and
// scratch are 8 bytes each that may be overwritten. IfAtMost appends one request more than If, the
// MAX.
func (q *Queue) IfAtMost(on *Queue, x Mem, y Operand, bound, dst, src, word, scratch Mem) {
	q.Max(0, word, x.At(0, OperandLen), bound.At(0, OperandLen))
	q.If(on, word, y, dst, src, scratch)
}

// IfAtLeast appends requests that copy src to dst if the operand at x is at least y; see IfAtMost.
func (q *Queue) IfAtLeast(on *Queue, x Mem, y Operand, bound, dst, src, word, scratch Mem) {
	q.Min(0, word, x.At(0, OperandLen), bound.At(0, OperandLen))
	q.If(on, word, y, dst, src, scratch)
}
