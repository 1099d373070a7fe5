package why

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// Choose returns the queue pair with number qpn of a listing: the one that exists, else the one that
// has gone last. With qpn 0 it returns the one that noted something last, other than an orderly end.
// It returns nil if there is none.
func Choose(list []hostd.QPObject, qpn uint32) (best *hostd.QPObject) {
	var at time.Time
	for i := range list { // those that have gone come first
		q := &list[i]
		switch {
		case qpn == 0:
			if t := Troubled(q); !t.IsZero() && t.After(at) {
				best, at = q, t
			}
		case q.QPN == qpn:
			best = q
		}
	}
	return best
}

// PeerOf returns the other end of q in the listing of its peer.
func PeerOf(list []hostd.QPObject, q *hostd.QPObject) (best *hostd.QPObject) {
	for i := range list {
		if p := &list[i]; p.QPN == q.PeerQPN && (p.PeerQPN == q.QPN || p.PeerQPN == 0) {
			best = p
		}
	}
	return best
}

// Troubled returns when the queue pair noted something last, other than an orderly end; the zero time
// if it never did.
func Troubled(q *hostd.QPObject) (at time.Time) {
	for i := range q.Notes {
		n := &q.Notes[i]
		if n.Kind == "ended" && orderly(n) {
			continue
		}
		if n.At.After(at) {
			at = n.At
		}
	}
	return at
}

// orderly reports whether an end is one that a program, or its peer, has asked for.
func orderly(n *hostd.NoteStatus) bool {
	c := reason.Code(n.Code)
	return c == reason.ByProgram || c == reason.ByManager
}
