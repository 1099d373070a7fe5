package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// tornKind says which copy of the responder pauses.
type tornKind uint8

const (
	notTorn tornKind = iota
	tornWrite
	tornRead
)

// torn is a memory copy that the fault plan paused at a line boundary. A queue pair has at most
// one:
//
//   - a WRITE packet: the rest is written before the next request of this queue pair is looked at and before the
//     WRITE is acknowledged, so only other queue pairs and the CPU can see the mixture, as with a real NIC;
//   - a READ response: its first part was fetched early, the rest is fetched when the pause ends, and the packet
//     leaves then.
type torn struct {
	*core
	kind  tornKind
	until clock.Time
	plan  mem.Tear
	// buf holds the payload: of a WRITE all of it, of a READ the part that was copied already.
	buf []byte
	// va and rkey are where a WRITE goes; psn is the packet of a READ response.
	va   uint64
	rkey uint32
	psn  wire.PSN
}

func (t *torn) active() bool { return t.kind != notTorn }

// parts are the two halves of a copy in the order of the plan.
func parts(tr mem.Tear, n int) (first, second [2]int) {
	head, tail := [2]int{0, tr.Cut}, [2]int{tr.Cut, n}
	if tr.TailFirst {
		return tail, head
	}
	return head, tail
}

// copyWrite copies a WRITE payload to the region, or its first part if the plan tears it, and then
// pauses. A WRITE with immediate data is whole: its completion tells the local application that the
// data is there. Not ok: the region's memory is gone.
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

// settleWrite writes the rest of a torn WRITE, if its region is still there.
func (t *torn) settleWrite() {
	if t.kind != tornWrite {
		return
	}
	t.kind = notTorn
	if dst, ok := t.remote(t.rkey, t.va, uint32(len(t.buf)), verbs.RemoteWrite); ok {
		_, part := parts(t.plan, len(t.buf))
		dst.Write(t.buf[part[0]:part[1]], part[0]) // memory that is gone holds no half of it
	}
}

// copyRead copies the payload of response packet psn out of the region. Not whole: the plan tears
// the copy, and the caller must call it again when respond is due. Not ok: the region's memory is
// gone.
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
