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

// Listing lists the objects of a NIC. It belongs to the time at which the caller has exclusive use of the engine.
type Listing struct {
	t      *tables
	former *former
	gsi    *GSI // nil: no connection manager
}

// Listing returns the lists of the NIC's objects.
func (e *Engine) Listing() Listing { return Listing{&e.Tables, &e.former, e.gsi} }

// QPPage is how many queue pairs a caller asks Listing.QPs for at most: the NIC stands still meanwhile.
const QPPage = 128

// QPNumbers returns the numbers of the queue pairs, in no order.
func (l Listing) QPNumbers() []wire.QPN {
	return slices.AppendSeq(make([]wire.QPN, 0, len(l.t.qps)), maps.Keys(l.t.qps))
}

// QPs returns the queue pairs with these numbers, without those that do not exist.
func (l Listing) QPs(numbers []wire.QPN) (out []QPInfo) {
	for _, n := range numbers {
		if q := l.t.qps[n]; q != nil {
			out = append(out, q.info())
		}
	}
	return out
}

// QPAttrs returns the attributes of all queue pairs in the order of their creation.
func (l Listing) QPAttrs() []verbs.QPAttr {
	out := make([]verbs.QPAttr, 0, len(l.t.order))
	for _, qp := range l.t.order {
		out = append(out, qp.q.Query())
	}
	return out
}

// RingQPNs returns the queue pairs that execute entries of a ring, in the order of their creation.
func (l Listing) RingQPNs() (out []wire.QPN) {
	for _, qp := range l.t.order {
		if qp.ring != nil {
			out = append(out, qp.Num())
		}
	}
	return out
}

// PeerOf returns the number of the queue pair to which queue pair n is connected. It returns false if
// n does not exist or is not connected.
func (l Listing) PeerOf(n wire.QPN) (wire.QPN, bool) {
	qp := l.t.qps[n]
	if qp == nil || !qp.connected() {
		return 0, false
	}
	peer := qp.q.Query().RTR.DestQPN
	return peer, peer != 0
}

// FormerQPs returns the queue pairs that the NIC remembers after they have gone: first those without
// an error, each list oldest first.
func (l Listing) FormerQPs() []QPInfo { return slices.Concat(l.former.other, l.former.wrong) }

// MRs returns the regions and windows, in ascending order of their numbers.
func (l Listing) MRs() []MRInfo {
	out := make([]MRInfo, 0, len(l.t.mrs)+len(l.t.mws))
	for m := range l.t.mrs {
		out = append(out, MRInfo{m.region.Entry(), m.owner})
	}
	for w := range l.t.mws {
		out = append(out, MRInfo{w.w.Entry(), w.owner})
	}
	slices.SortFunc(out, func(a, b MRInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// CQs returns the completion queues, in ascending order of their numbers.
func (l Listing) CQs() []CQInfo {
	out := make([]CQInfo, 0, len(l.t.cqs))
	for n, c := range l.t.cqs {
		out = append(out, CQInfo{Number: n, Owner: c.owner, Depth: c.q.Cap(), Queued: c.q.Len(), QPs: c.refs, Overrun: c.failed})
	}
	slices.SortFunc(out, func(a, b CQInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// PDs returns the protection domains, in ascending order of their numbers.
func (l Listing) PDs() []PDInfo {
	out := make([]PDInfo, 0, len(l.t.pds))
	for n, p := range l.t.pds {
		out = append(out, PDInfo{Number: uint32(n), Owner: p.owner, Uses: p.qps + p.srqs + p.ahs})
	}
	slices.SortFunc(out, func(a, b PDInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// SRQs returns the shared receive queues, in ascending order of their numbers.
func (l Listing) SRQs() []SRQInfo {
	out := make([]SRQInfo, 0, len(l.t.srqs))
	for n, s := range l.t.srqs {
		out = append(out, SRQInfo{Number: n, PD: uint32(s.pd.num), XRC: s.xrcd != nil, Owner: s.owner})
	}
	slices.SortFunc(out, func(a, b SRQInfo) int { return cmp.Compare(a.Number, b.Number) })
	return out
}

// CMs returns the connections of the connection manager, and the services for which applications
// listen.
func (l Listing) CMs() (conns []CMInfo, services []mad.ServiceID) {
	if l.gsi == nil {
		return nil, nil
	}
	for _, x := range l.gsi.m.Entries() {
		i := CMInfo{Entry: x}
		if c := l.gsi.conns[x.ID]; c != nil {
			i.End, i.Reject = c.End, c.Reject
		}
		conns = append(conns, i)
	}
	return conns, l.gsi.m.Services()
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
