package serialize

import "github.com/rdmalab/rdmalab/softrnic/wire"

// A client's NIC retransmits requests that have not been answered, and the server's NIC answers
// them. The PSNs of both lag behind the newest PSN on the client's connection by at most the
// largest number of PSNs that was ever in flight there. So the switch records this number for each
// flow. An older PSN may belong to another connection, whose queue pair has reused the QPN of one
// that has ended. The switch does not forward such a request as a duplicate without effect, because
// the server would execute it. A client that has received no answer for long may be as far behind;
// the switch itself answers requests of which it knows that the server has executed them, see
// duplicate.executed.

// slack is a margin: a duplicate may lag behind the newest PSN by slack plus twice far, the largest
// number of PSNs that were in flight.
const slack = 4096

// reaches raises far to the number of PSNs in flight on the client's connection, if that number is
// larger.
func (k *clientConn) reaches() {
	if d := wire.Diff(k.psns.own, k.acked); d > k.far {
		k.far = d
	}
}

// isFar reports whether a PSN is so far behind the newest one that no packet in flight on the client's
// connection can have it: further than slack and twice the largest number of PSNs in flight so far.
func (k *clientConn) isFar(psn, newest wire.PSN) bool { return wire.Diff(newest, psn) > slack+2*k.far }
