package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// gather fills dst with the bytes of the list from offset off on. Every piece is checked anew, because a region
// may be gone by the time of a retransmission.
func (q *QP) gather(dst []byte, sgl []verbs.SGE, off uint32) mem.Fault {
	for i := range sgl {
		s := sgl[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		if len(dst) == 0 {
			return mem.OK
		}
		src, fault := q.env.Mem.Local(q.cfg.PD, s, false)
		if fault != mem.OK {
			return fault
		}
		dst = dst[copy(dst, src[off:]):]
		off = 0
	}
	return mem.OK
}

// scatter writes src into the list of memory of pd from offset off on. The caller has checked that it fits.
func (q *QP) scatter(pd mem.PD, sgl []verbs.SGE, off uint32, src []byte) mem.Fault {
	for i := range sgl {
		s := sgl[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		if len(src) == 0 {
			return mem.OK
		}
		dst, fault := q.env.Mem.Local(pd, s, true)
		if fault != mem.OK {
			return fault
		}
		src = src[copy(dst[off:], src):]
		off = 0
	}
	return mem.OK
}

// checkSGL validates a whole list before the first packet of a message leaves.
func (q *QP) checkSGL(sgl []verbs.SGE, write bool) mem.Fault {
	for i := range sgl {
		if _, fault := q.env.Mem.Local(q.cfg.PD, sgl[i], write); fault != mem.OK {
			return fault
		}
	}
	return mem.OK
}
