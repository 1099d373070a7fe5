package serialize

import "github.com/rdmalab/rdmalab/softrnic/wire"

// A client's NIC retransmits unanswered requests, and the server's NIC answers them again. The PSNs
// of these packets lag behind the newest PSN on the client's connection, at most by the largest
// number of PSNs that were ever in flight there. The switch records this number for each flow
// (far). A request with an older PSN may belong to a new connection whose queue pair has the same
// QPN as before. The switch must not forward such a request as a harmless duplicate, because the
// server would execute it. The requests of a client that has had no answer for a long time may be
// that old, too. The switch answers these requests itself if it knows that the server has executed
// them; see duplicate.executed.

// slack is a margin in PSNs: a duplicate may lag behind the newest PSN by at most slack plus twice
// the flow's number `far`.
const slack = 4096

// reaches raises far to the number of PSNs in flight on the client's connection, if that number is
// larger.
func (k *clientConn) reaches() {
	if d := wire.Diff(k.psns.own, k.acked); d > k.far {
		k.far = d
	}
}

// isFar reports whether a PSN is so far behind the newest one that no packet in flight on the
// client's connection can have it: by more than slack plus twice far.
func (k *clientConn) isFar(psn, newest wire.PSN) bool { return wire.Diff(newest, psn) > slack+2*k.far }
