package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// memoryAccess is how a queue pair reaches memory.
type memoryAccess struct {
	mem *mem.Table
	qpn wire.QPN
	pd  mem.PD // of the queue pair
	// guests is the protection domain of the memory that requests of the peer may access: that of the
	// queue pair or, for a target of XRC, that of the shared receive queue which the present request
	// names.
	guests mem.PD
}

// remote returns n bytes at va of the region that a request names. It returns false if rkey does
// not grant the peer the rights `need` for all these bytes.
func (a *memoryAccess) remote(rkey uint32, va uint64, n uint32, need verbs.Access) (mem.Piece, bool) {
	return a.remoteIn(a.guests, rkey, va, n, need)
}

// remoteIn is remote in protection domain pd.
func (a *memoryAccess) remoteIn(pd mem.PD, rkey uint32, va uint64, n uint32, need verbs.Access) (mem.Piece, bool) {
	b, fault := a.mem.Remote(pd, a.qpn, rkey, va, n, need)
	return b, fault == mem.OK
}

// gather fills dst with the bytes of the SGL from offset `off` on. Every SGE is checked again,
// because its region may have been deregistered before a retransmission.
func (a *memoryAccess) gather(dst []byte, sgl []verbs.SGE, off uint32) mem.Fault {
	for i := range sgl {
		s := &sgl[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		n := min(len(dst), int(s.Length-off))
		if n == 0 {
			break
		}
		if fault := a.mem.Read(a.pd, s, off, dst[:n]); fault != mem.OK {
			return fault
		}
		dst, off = dst[n:], 0
	}
	return mem.OK
}

// scatter writes src into the SGL, from offset `off` on. The memory must be in protection domain
// pd. The caller has checked that src fits.
func (a *memoryAccess) scatter(pd mem.PD, sgl []verbs.SGE, off uint32, src []byte) mem.Fault {
	for i := range sgl {
		s := &sgl[i]
		if off >= s.Length {
			off -= s.Length
			continue
		}
		n := min(len(src), int(s.Length-off))
		if n == 0 {
			break
		}
		if fault := a.mem.Write(pd, s, off, src[:n]); fault != mem.OK {
			return fault
		}
		src, off = src[n:], 0
	}
	return mem.OK
}

// checkSGL returns the first fault of an SGE, for example a wrong L_Key or a range outside of the
// region. With write, each region must also allow local writes. It is called before the first
// packet of a message leaves.
func (a *memoryAccess) checkSGL(sgl []verbs.SGE, write bool) mem.Fault {
	for i := range sgl {
		if _, fault := a.mem.Local(a.pd, sgl[i], write); fault != mem.OK {
			return fault
		}
	}
	return mem.OK
}

// refusedSGL returns why the first piece of an SGL that may not be accessed is refused. If all may
// be accessed, it describes the last piece, whose memory was then unmapped.
func (a *memoryAccess) refusedSGL(sgl []verbs.SGE, pd mem.PD, write bool) (x mem.Refusal) {
	for i := range sgl {
		if sgl[i].Length == 0 {
			continue
		}
		if x = a.mem.RefusedLocal(pd, sgl[i], write); x.Fault != mem.OK {
			break
		}
	}
	return x
}
