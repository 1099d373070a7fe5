package transport

// minWindow is the smallest window in packets. At the largest path MTU a message of 64 KiB fits
// into it.
const minWindow = 16

// flowWindow limits the request packets in flight of one requester.
//
// Packets sent behind a lost packet are wasted, because the responder drops them. So each retry
// narrows the window, and each acknowledged packet widens it again. On a link without loss the
// window never changes; at 10 % loss it saves most of the packets of go-back-N, and it protects a
// slow peer from too many retransmissions. The specification allows a requester to send less.
type flowWindow struct {
	size, limit int // in packets: now, and at most (Config.Window)
	// flight counts the packets in flight in this round: request packets not acknowledged, and
	// response packets of READs not received. It exceeds size only by the rest of the last READ.
	flight int
	// sinceAckReq counts packets since the last one with AckReq.
	sinceAckReq int
}

// full reports whether an acknowledgement must arrive before the next packet may leave.
func (w *flowWindow) full() bool { return w.flight >= w.size }

// narrow limits the window to n packets, but not to less than minWindow.
func (w *flowWindow) narrow(n int) { w.size = min(w.size, max(n, minWindow)) }

// widen makes the window n packets larger, up to the configured size.
func (w *flowWindow) widen(n int) { w.size = min(w.limit, w.size+n) }

// asksAck counts a packet that leaves and reports whether it must request an acknowledgement: the
// last packet of a message, each every-th packet, and a packet that fills the window.
func (w *flowWindow) asksAck(last bool, every int) bool {
	w.sinceAckReq++
	if !last && w.sinceAckReq < every && !w.full() {
		return false
	}
	w.sinceAckReq = 0
	return true
}
