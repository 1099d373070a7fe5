package engine

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Owner says to which process an object belongs. The engine only keeps the pointer; the shell that
// makes the objects sets it.
type Owner struct {
	PID  int32 // 0 means unknown: the process is in another PID namespace
	Name string
}

// QPInfo is a queue pair in a listing. It is a copy.
type QPInfo struct {
	transport.Snapshot
	Owner *Owner // nil means unknown
	PD    uint32
	// The numbers of the completion queues and of the shared receive queue; SRQ 0 means none.
	SendCQ, RecvCQ, SRQ uint32
	Ring                bool // it executes a program in a send ring
	// Gone: the queue pair was destroyed, reset or lost with its NIC; the rest is its last state.
	Gone bool
}

// MRInfo is a region or a bound window in a listing.
type MRInfo struct {
	mem.Entry
	Owner *Owner
}

// CQInfo is a completion queue in a listing.
type CQInfo struct {
	Number uint32
	Owner  *Owner
	// Depth is the capacity, Queued the number of completions that wait to be polled, QPs the number of
	// uses by queue pairs.
	Depth, Queued, QPs int
	Overrun            bool // a completion did not fit, which is an error
}

// PDInfo is a protection domain in a listing, and SRQInfo a shared receive queue.
type (
	PDInfo struct {
		Number uint32
		Owner  *Owner
		Uses   int // queue pairs, shared receive queues and address handles in it
	}
	SRQInfo struct {
		Number, PD uint32
		XRC        bool // requests of XRC name it
		Owner      *Owner
	}
)

// CMInfo is a connection of the connection manager in a listing.
type CMInfo struct {
	cm.Entry
	// End says how the connection ended; 0 while it has not.
	End    cm.EventKind
	Reject *mad.REJ // the peer's refusal, if the connection ended with one
}

// MaxFormer is the number of queue pairs that a NIC remembers after they have gone: as many that
// went wrong, and as many others.
const MaxFormer = 64

// ends tells the shell of queue pairs that have failed.
type ends struct {
	tell func(wire.QPN, *Owner, *reason.Note)
}

// WatchEnds makes the engine call f once for each queue pair whose work request fails, which refuses a
// request of its peer, or which goes to ERROR. The engine calls f in the middle of a step: f must not
// call the engine, nor keep the Note after it returns. nil removes f.
func WatchEnds(e *Engine, f func(wire.QPN, *Owner, *reason.Note)) { e.ends.tell = f }

// told calls the function of WatchEnds. qp has failed since the last call.
func (x *ends) told(qp *QP) {
	qp.ended = true
	if x.tell != nil {
		end, _ := qp.q.Notes().End()
		x.tell(qp.Num(), qp.owner, &end)
	}
}

// former remembers queue pairs that have gone, oldest first, so that a program's error can be
// explained when the program has ended.
type former struct {
	wrong, other []QPInfo
}

func (f *former) add(i QPInfo) {
	list := &f.other
	if wentWrong(&i) {
		list = &f.wrong
	}
	if len(*list) == MaxFormer {
		*list = slices.Delete(*list, 0, 1)
	}
	i.Gone = true
	*list = append(*list, i)
}

// wentWrong reports whether a queue pair has noted anything but its orderly end.
func wentWrong(i *QPInfo) bool {
	return slices.ContainsFunc(i.Notes, func(n reason.Note) bool { return !n.Orderly() })
}

func (q *QP) info() QPInfo {
	i := QPInfo{
		Snapshot: q.q.Snapshot(), Owner: q.owner, Ring: q.ring != nil,
	}
	if q.xrcd == nil {
		i.PD, i.SendCQ, i.RecvCQ = uint32(q.pd.num), q.send.ID(), q.recv.ID()
	}
	if q.srq != nil {
		i.SRQ = q.srq.num
	}
	return i
}

// retire remembers a queue pair that is about to lose its connection. One that was never connected
// is not remembered.
func (f *former) retire(q *QP) {
	if s := q.q.State(); s != verbs.StateReset && s != verbs.StateInit || !q.q.Notes().Empty() {
		f.add(q.info())
	}
}

// QPPage is how many queue pairs a caller asks QPsOf for at most: the NIC stands still meanwhile.
const QPPage = 128

// QPNumbers returns the numbers of the queue pairs, in no order.
func QPNumbers(e *Engine) []wire.QPN {
	return slices.AppendSeq(make([]wire.QPN, 0, len(e.qps)), maps.Keys(e.qps))
}

// QPsOf returns the queue pairs with these numbers, without those that do not exist.
func QPsOf(e *Engine, numbers []wire.QPN) (out []QPInfo) {
	for _, n := range numbers {
		if q := e.qps[n]; q != nil {
			out = append(out, q.info())
		}
	}
	return out
}

// FormerQPs returns the queue pairs that the NIC remembers after they have gone: first those without
// an error, each list oldest first.
func FormerQPs(e *Engine) []QPInfo { return slices.Concat(e.former.other, e.former.wrong) }

// MRsOf returns the regions and windows, in ascending order of their numbers.
func MRsOf(e *Engine) []MRInfo {
	out := make([]MRInfo, 0, len(e.mrs)+len(e.mws))
	for m := range e.mrs {
		out = append(out, MRInfo{m.region.Entry(), m.owner})
	}
	for w := range e.mws {
		out = append(out, MRInfo{w.w.Entry(), w.owner})
	}
	slices.SortFunc(out, func(a, b MRInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// CQsOf returns the completion queues, in ascending order of their numbers.
func CQsOf(e *Engine) []CQInfo {
	out := make([]CQInfo, 0, len(e.cqs))
	for n, c := range e.cqs {
		out = append(out, CQInfo{Number: n, Owner: c.owner, Depth: c.q.Cap(), Queued: c.q.Len(), QPs: c.refs, Overrun: c.failed})
	}
	slices.SortFunc(out, func(a, b CQInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// ListPDs returns the protection domains, in ascending order of their numbers.
func (t *tables) ListPDs() []PDInfo {
	out := make([]PDInfo, 0, len(t.pds))
	for n, p := range t.pds {
		out = append(out, PDInfo{Number: uint32(n), Owner: p.owner, Uses: p.qps + p.srqs + p.ahs})
	}
	slices.SortFunc(out, func(a, b PDInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// ListSRQs returns the shared receive queues, in ascending order of their numbers.
func (t *tables) ListSRQs() []SRQInfo {
	out := make([]SRQInfo, 0, len(t.srqs))
	for n, s := range t.srqs {
		out = append(out, SRQInfo{Number: n, PD: uint32(s.pd.num), XRC: s.xrcd != nil, Owner: s.owner})
	}
	slices.SortFunc(out, func(a, b SRQInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// CMsOf returns the connections of the connection manager, and the services for which applications
// listen.
func CMsOf(e *Engine) (conns []CMInfo, services []mad.ServiceID) {
	if e.gsi == nil {
		return nil, nil
	}
	for _, x := range e.gsi.m.Entries() {
		i := CMInfo{Entry: x}
		if c := e.gsi.conns[x.ID]; c != nil {
			i.End, i.Reject = c.End, c.Reject
		}
		conns = append(conns, i)
	}
	return conns, e.gsi.m.Services()
}

// SetOwner says to which process the queue pair belongs.
func (q *QP) SetOwner(o *Owner) { q.owner = o }

// SetOwner says to which process the region belongs.
func (m *MR) SetOwner(o *Owner) { m.owner = o }

// SetOwner says to which process the queue belongs.
func (c *CQ) SetOwner(o *Owner) { c.owner = o }

// SetOwner says to which process the domain belongs.
func (p *PD) SetOwner(o *Owner) { p.owner = o }

// SetOwner says to which process the shared receive queue belongs.
func (s *SRQ) SetOwner(o *Owner) { s.owner = o }

// SetOwner says to which process the window belongs.
func (m *MW) SetOwner(o *Owner) { m.owner = o }

// Deny notes that a verb on the queue pair was refused.
func (q *QP) Deny(now clock.Time, why error) {
	n := q.q.Notes()
	if last := n.Newest(); last != nil && last.Kind == reason.Denied && last.Text == why.Error() {
		last.Times++
		return
	}
	n.Add(reason.Note{At: now, Kind: reason.Denied, Text: why.Error(), Times: 1})
}
