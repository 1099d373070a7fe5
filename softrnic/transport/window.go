package transport

// minWindow is the size to which a timeout narrows the window, in packets: enough to carry a
// message of 64 KiB at the largest path MTU.
const minWindow = 16

// flowWindow bounds the request packets in flight of one requester.
//
// What is sent behind a lost packet is wasted, because the responder drops it: so each retry
// narrows the window, and each acknowledged packet widens it again. On a link that loses nothing
// the window never changes; at 10 % loss this saves most of the packets of go-back-N, and it keeps
// a slow peer from being buried under retransmissions. The specification leaves a requester free
// to send less.
type flowWindow struct {
	size, limit int // packets now, and Config.Window
	// flight counts packets in flight in this round: requests that are not acknowledged, and
	// responses that READs asked for and that are missing. It exceeds size only by the rest of the
	// last READ.
	flight int
	// sinceAckReq counts packets since the last one with AckReq.
	sinceAckReq int
}

// full reports that nothing may be sent until something is acknowledged.
func (w *flowWindow) full() bool { return w.flight >= w.size }

// narrow makes the window at most n packets, and not less than minWindow.
func (w *flowWindow) narrow(n int) { w.size = min(w.size, max(n, minWindow)) }

// widen makes the window n packets larger, up to the configured size.
func (w *flowWindow) widen(n int) { w.size = min(w.limit, w.size+n) }

// asksAck counts a packet that leaves and reports whether it must ask for an acknowledgement: the
// last of a message, each every-th, and one that fills the window.
func (w *flowWindow) asksAck(last bool, every int) bool {
	w.sinceAckReq++
	if !last && w.sinceAckReq < every && !w.full() {
		return false
	}
	w.sinceAckReq = 0
	return true
}
