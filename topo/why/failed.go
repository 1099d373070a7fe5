package why

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// failure tells why the queue pair has failed. It returns false if it has not.
func failure(v *View, add adder) bool {
	end := v.Own.QP.LastError
	if end == nil {
		return false
	}
	switch end.Kind {
	case "failed":
		failedWork(v, end, add)
	case "refused":
		add(lookOf(end, v.Own.Host, v.Peer.Host), "%s refused %s with PSN %d of %s, because %s.", v.Own.Host, end.Opcode, end.First, v.Peer.Host, end.Because)
		if end.Answer != "" {
			add("", "It answered with %s, and %s completes its work request with an error: `rdmalab why %s %#x`.", end.Answer, v.Peer.Host, v.Peer.Host, v.Own.QP.PeerQPN)
		}
	case "denied":
		add("", "%s refused a verb: %s.", v.Own.Host, end.Because)
	default:
		add(lookOf(end, v.Own.Host, v.Peer.Host), "Queue pair %#x of %s went to ERROR, because %s.", v.Own.QP.QPN, v.Own.Host, end.Because)
		peerEnd(v, add)
	}
	return true
}

// failedWork tells why a work request has failed: the peer's reason if the peer has refused it, what
// became of the requests and answers if none came, else the requester's own.
func failedWork(v *View, end *hostd.NoteStatus, add adder) {
	name := "A work request"
	if end.Work != nil && end.Work.Number != 0 {
		name = work(end.Work)
	}
	took := ""
	if !end.Since.IsZero() && end.At.After(end.Since) {
		took = fmt.Sprintf(" %v after its post", short(end.At.Sub(end.Since)))
	}
	refused := find(v.Peer.QP, "refused", end.First)
	code := reason.Code(end.Code)
	switch {
	case refused != nil && code >= reason.PeerInvalid && code <= reason.PeerUnknown:
		add(lookOf(refused, v.Peer.Host, v.Own.Host), "%s failed%s: %s, because %s.", name, took, end.Status, refused.Because)
		add("", "%s says so: it refused %s with PSN %d by %s.", v.Peer.Host, refused.Opcode, refused.First, refused.Answer)
	default:
		add(lookOf(end, v.Own.Host, v.Peer.Host), "%s failed%s: %s, because %s.", name, took, end.Status, end.Because)
	}
	if code >= reason.Timeout && code <= reason.NotReady {
		again := fmt.Sprintf("PSN %d", end.First)
		if end.Last != end.First {
			again = fmt.Sprintf("PSNs %d to %d", end.First, end.Last)
		}
		add("", "It waited for %s (PSN %d) and sent %s again %s.", orPacket(end.Packet), end.First, again, times(uint32(end.Tries)))
	}
	switch code {
	case reason.Timeout:
		silent(v, end, add)
	case reason.SequenceNak:
		dropped(v, end, toPeer, add)
	case reason.ImpliedNak:
		dropped(v, end, fromPeer, add)
	default: // the peer has answered
	}
	answeredFor(v, end.First, end.Last, add)
	if code != reason.Timeout || v.Peer.Trouble != "" {
		peerTrouble(v, add)
	}
	add("", "The completion has vendor_err %#x; work requests behind it are flushed with %#x.", end.Code, uint32(reason.AfterFailure))
}

// silent tells why no answer came.
func silent(v *View, end *hostd.NoteStatus, add adder) {
	p, lost := v.Peer, anyWay
	switch {
	case p.Trouble != "":
		return
	case p.QP == nil:
		add(fmt.Sprintf("`rdmalab qps %s`", p.Host), "%s has no queue pair %#x: it drops requests for it, without an answer.", p.Host, v.Own.QP.PeerQPN)
	case p.QP.Gone:
		add("", "Queue pair %#x of %s is gone (of %v): %s drops requests for it, without an answer.", p.QP.QPN, p.Host, p.QP.Owner, p.Host)
		peerEnd(v, add)
	case p.QP.State != "RTR" && p.QP.State != "RTS" && p.QP.State != "SQD":
		add("", "Queue pair %#x of %s is in %s: it drops requests, without an answer.", p.QP.QPN, p.Host, p.QP.State)
		peerEnd(v, add)
	case diff(p.QP.RecvPSN, end.First) > 0:
		lost = fromPeer
		add("", "%s has executed the requests up to PSN %d: its answers were lost on the way to %s.", p.Host, (p.QP.RecvPSN-1)&0xffffff, v.Own.Host)
	default:
		lost = toPeer
		add("", "%s still expects PSN %d: the requests were lost on the way from %s.", p.Host, p.QP.RecvPSN, v.Own.Host)
	}
	dropped(v, end, lost, add)
}

// peerEnd tells why the peer's queue pair has failed, if it has.
func peerEnd(v *View, add adder) {
	q := v.Peer.QP
	if q == nil {
		return
	}
	end := q.LastError
	if end == nil {
		end = newest(q, "ended")
	}
	if end != nil {
		add(lookOf(end, v.Peer.Host, v.Own.Host), "%s says: %s.", v.Peer.Host, end.Text)
	}
}

// peerTrouble tells what could not be asked.
func peerTrouble(v *View, add adder) {
	switch {
	case v.Peer.Trouble != "":
		add("", "%s could not be asked: %s.", v.Peer.Host, v.Peer.Trouble)
	case v.Peer.QP == nil && v.Own.QP.PeerQPN != 0:
		add("", "%s remembers no queue pair %#x, so its side of the story is missing.", v.Peer.Host, v.Own.QP.PeerQPN)
	}
}
