package why

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// WorkOf returns the work request that id means on a queue pair, as far as its notes have it: the newest one
// with this wr_id, or else the one with this number among the posts. It returns nil if no note has it.
func WorkOf(q *hostd.QPObject, id uint64) *hostd.WorkStatus {
	var byNumber *hostd.WorkStatus
	for i := len(q.Notes) - 1; i >= 0; i-- {
		w := q.Notes[i].Work
		switch {
		case w == nil || w.Number == 0:
		case w.ID == id:
			return w
		case w.Number == id && byNumber == nil:
			byNumber = w
		}
	}
	return byNumber
}

// ChooseWork returns the queue pair of a listing that noted something of work request id last; nil if none did.
func ChooseWork(list []hostd.QPObject, id uint64) (best *hostd.QPObject) {
	for i := range list {
		if q := &list[i]; WorkOf(q, id) != nil && (best == nil || Troubled(q).After(Troubled(best))) {
			best = q
		}
	}
	return best
}

// Narrow returns the view of one work request: of the notes of both sides and of the packets those that are
// about it.
func Narrow(v View, w *hostd.WorkStatus) View {
	own := *v.Own.QP
	own.Notes = slices.DeleteFunc(slices.Clone(own.Notes), func(n hostd.NoteStatus) bool { return !about(&n, w) })
	if own.LastError != nil && !about(own.LastError, w) {
		own.LastError = nil
	}
	own.Totals = reason.Totals{}
	v.Own.QP = &own
	if v.Peer.QP != nil {
		peer := *v.Peer.QP
		peer.Notes = slices.DeleteFunc(slices.Clone(peer.Notes), func(n hostd.NoteStatus) bool { return !covers(w, n.First, n.Last) })
		v.Peer.QP = &peer
	}
	v.Packets = slices.DeleteFunc(slices.Clone(v.Packets), func(p Packet) bool { return !covers(w, p.PSN, p.PSN) })
	v.Decided = slices.DeleteFunc(slices.Clone(v.Decided), func(d Decision) bool { return !covers(w, d.PSN, d.PSN) })
	return v
}

// about reports whether a requester's note is about w.
func about(n *hostd.NoteStatus, w *hostd.WorkStatus) bool {
	if n.Work != nil && n.Work.Number == w.Number {
		return true
	}
	return n.Kind == "sent again" && covers(w, n.First, n.Last)
}

// covers reports whether PSNs first to last have one of w.
func covers(w *hostd.WorkStatus, first, last uint32) bool {
	end := (w.PSN + max(w.Packets, 1) - 1) & 0xffffff
	return diff(last, w.PSN) >= 0 && diff(end, first) >= 0
}
