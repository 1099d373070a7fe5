package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

// Requests with data, READ responses and datagrams wait for the queue pair's congestion.Flow, if it
// has one; ACKs and NAKs do not. A CNP slows requests and READ responses alike (A17.9.3, CA17-45).

// frameOverhead is the number of bytes of a frame that are not in the packet: Ethernet 14, IPv4 20,
// UDP 8, ICRC 4, FCS 4. IPv6 has 20 more, which pacing leaves out.
const frameOverhead = 50

// pacing is what the requester of a reliable connection knows of its Flow.
type pacing struct {
	// at is when the Flow lets the next packet leave; clock.Never if no packet waits for it.
	at clock.Time
	// end is one past the PSN of the packet whose acknowledgement gives a round-trip time.
	end uint32
}

func (p *pacing) stop()  { p.at = clock.Never }
func (p *pacing) reset() { *p = pacing{at: clock.Never} }

// mustPause reports whether the Flow lets no packet leave now, and when to ask again. It is for the
// packets that no window limits.
func mustPause(f *congestion.Flow, now clock.Time) (at clock.Time, wait bool) {
	if f == nil || f.Ready(now, 0) {
		return 0, false
	}
	return f.At(), true
}

// charge tells the Flow of the packets in out from index `from` on.
func charge(f *congestion.Flow, now clock.Time, from int, out *Actions) {
	if f == nil {
		return
	}
	for i := from; i < len(out.Tx); i++ {
		f.Sent(now, out.Tx[i].Packet.Len()+frameOverhead)
	}
}

// mustWait reports whether the Flow lets no request leave now.
func (r *requester) mustWait(now clock.Time) bool {
	f := r.cfg.Flow
	if f.Ready(now, r.window.flight) {
		r.pace.at = clock.Never
		return false
	}
	r.pace.at = f.At()
	return true
}

// paced is called for a request that leaves: the last packet in out. It gets AckReq if the rate is so low
// that the ACK timer could expire before the next packet with AckReq, and if the Flow limits the packets
// in flight: otherwise packets without AckReq could fill a window that has become smaller.
func (r *requester) paced(now clock.Time, out *Actions) {
	charge(r.cfg.Flow, now, len(out.Tx)-1, out)
	f, bth := r.cfg.Flow, &out.Tx[len(out.Tx)-1].Packet.BTH
	if f.Windowed() || r.rts.Timeout != 0 && f.Slow(now, r.cfg.AckEvery, AckTimeout(r.rts.Timeout)/4) {
		bth.AckReq = true
		r.window.sinceAckReq = 0
	}
	if end := bth.PSN.Next(); bth.AckReq && end == r.maxPSN && !r.heal.open && f.Measure(now) {
		r.pace.end = uint32(end)
	}
}

// pacedAck is called when the peer has acknowledged n packets, up to una.
func (r *requester) pacedAck(n int) {
	arrived := (uint32(r.una)-r.pace.end)&max24 < maxOutstandingPSNs
	r.cfg.Flow.Acked(r.lastNow, n, int(r.mtu)+frameOverhead, arrived)
}

// tickPace sends what waited for the Flow.
func (r *requester) tickPace(now clock.Time, out *Actions) {
	if r.pace.at > now {
		return
	}
	r.pace.at = clock.Never
	r.pump(now, out)
	r.sender.checkDrained(out)
}

// lost is called when the requester begins to retransmit. Without a Flow it narrows the window to n
// packets, which is a congestion control, too.
func (r *requester) lost(now clock.Time, l congestion.Loss, n int) {
	if f := r.cfg.Flow; f != nil {
		f.Lost(now, l)
		return
	}
	r.window.narrow(n)
}
