package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// tornKind says which memory copy of a responder is paused, if any.
type tornKind uint8

const (
	notTorn tornKind = iota
	tornWrite
	tornRead
)

// torn is a memory copy that the fault plan has paused at a boundary of 64 bytes. A queue pair has
// at most one:
//
//   - A WRITE packet: the rest is written before the next request of this queue pair is handled and
//     before the WRITE is acknowledged. So only other queue pairs and the CPU can see the mixture,
//     as with a real NIC.
//   - A READ response: the first part was copied before the pause, the rest is copied when the
//     pause ends, and then the packet leaves.
type torn struct {
	*core
	kind  tornKind
	until clock.Time
	plan  mem.Tear
	// buf holds the payload. The buffer of a READ is filled from memory before the pause; when the
	// pause ends, the second part is read from memory once more.
	buf []byte
	// va and rkey are the target of a WRITE; psn is the PSN of a READ response.
	va   uint64
	rkey uint32
	psn  wire.PSN
}

func (t *torn) active() bool { return t.kind != notTorn }

// parts returns the two parts of a torn copy of n bytes, as byte ranges [begin, end), in the order
// in which they are copied.
func parts(tr mem.Tear, n int) (first, second [2]int) {
	head, tail := [2]int{0, tr.Cut}, [2]int{tr.Cut, n}
	if tr.TailFirst {
		return tail, head
	}
	return head, tail
}

// copyWrite copies the payload of a WRITE to the region. If the plan tears the copy, it copies the
// first part and pauses. A WRITE with immediate data is never torn: its completion tells the local
// application that the data is there. ok is false if the region's memory was unmapped.
func (t *torn) copyWrite(dst mem.Piece, src []byte, va uint64, rkey uint32, info *wire.OpInfo) (paused, ok bool) {
	plan, tear := t.env.Mem.PlanTear(va, len(src))
	if !tear || info.Flags&wire.OpImm != 0 || t.active() {
		return false, dst.Write(src, 0)
	}
	t.env.Counters.TornCopies++
	*t = torn{
		core: t.core, kind: tornWrite, plan: plan, until: t.lastNow.Add(plan.Pause),
		buf: append(t.buf[:0], src...), va: va, rkey: rkey,
	}
	part, _ := parts(plan, len(src))
	return true, dst.Write(src[part[0]:part[1]], part[0])
}

// settleWrite writes the rest of a torn WRITE, if its region is still registered.
func (t *torn) settleWrite() {
	if t.kind != tornWrite {
		return
	}
	t.kind = notTorn
	if dst, ok := t.access.remote(t.rkey, t.va, uint32(len(t.buf)), verbs.RemoteWrite); ok {
		_, part := parts(t.plan, len(t.buf))
		dst.Write(t.buf[part[0]:part[1]], part[0]) // fails if the memory was unmapped; then there is nothing to write to
	}
}

// copyRead copies the payload of response packet psn out of the region. whole is false if the fault
// plan tears the copy. The caller then calls copyRead again: when the pause is over, or at once if
// the queue pair is entering the ERROR state. ok is false if the region's memory was unmapped.
func (t *torn) copyRead(now clock.Time, psn wire.PSN, dst []byte, src mem.Piece, va uint64) (whole, ok bool) {
	if t.kind == tornRead && t.psn == psn && len(t.buf) == len(dst) {
		t.kind = notTorn
		_, part := parts(t.plan, len(dst))
		ok = src.Read(t.buf[part[0]:part[1]], part[0])
		copy(dst, t.buf)
		return true, ok
	}
	ok = src.Read(dst, 0)
	plan, tear := t.env.Mem.PlanTear(va, len(dst))
	if !tear || !ok {
		return true, ok
	}
	t.env.Counters.TornCopies++
	*t = torn{core: t.core, kind: tornRead, plan: plan, until: now.Add(plan.Pause), buf: append(t.buf[:0], dst...), psn: psn}
	return false, true
}
