package sendring

import (
	"encoding/binary"
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// calcLen is the length of the result of a MAX or MIN, and the largest length of its numbers, in
// bytes.
const calcLen = 8

var errNumber = errors.New("MAX and MIN need at least one number, each of 1 to 8 bytes")

// calculate executes the entry e, a MAX or MIN: it reads the numbers now, and makes wr a WRITE of
// the result. It returns false if the entry was refused.
func (r *Ring) calculate(h Host, e *Entry) bool {
	var result uint64
	for i, s := range e.SGL[:e.NSGE] {
		if s.Length == 0 || s.Length > calcLen {
			r.refuse(h, errNumber, verbs.LocQPOpErr)
			return false
		}
		clear(r.number[:])
		if !h.Fetch(r.number[:s.Length], s) {
			r.refuse(h, errMemory, verbs.LocProtErr)
			return false
		}
		n := binary.LittleEndian.Uint64(r.number[:])
		if i == 0 || e.Op == Max && n > result || e.Op == Min && n < result {
			result = n
		}
	}
	if e.NSGE == 0 {
		r.refuse(h, errNumber, verbs.LocQPOpErr)
		return false
	}
	binary.LittleEndian.PutUint64(r.number[:], result)
	r.wr.SGL, r.wr.Data = nil, r.number[:]
	r.wr.Flags |= verbs.Inline
	return true
}
