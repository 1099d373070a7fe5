package transport

// minWindow is the smallest window in packets. At the largest path MTU a message of 64 KiB fits
// into it.
const minWindow = 16

// flowWindow limits the request packets in flight of one requester.
//
// If a packet is lost, the responder drops the packets behind it. So each retry narrows the window,
// and each acknowledged packet widens it again. On a link without loss the window never changes. At
// 10 % loss it avoids most of the packets that go-back-N would otherwise waste, and it protects a
// slow peer from too many retransmissions. The specification allows a requester to send less than
// it could.
type flowWindow struct {
	size, limit int // in packets: the present size and the largest one (Config.Window)
	// flight counts the packets in flight since the last retry: request packets that are not
	// acknowledged, and response packets of READs that are not received. It exceeds size by less than
	// the response packets of one READ.
	flight int
	// sinceAckReq counts packets since the last one with AckReq.
	sinceAckReq int
}

// full reports whether the requester must wait for an acknowledgement before it sends the next
// packet.
func (w *flowWindow) full() bool { return w.flight >= w.size }

// narrow reduces a larger window to n packets, but not to less than minWindow.
func (w *flowWindow) narrow(n int) { w.size = min(w.size, max(n, minWindow)) }

// widen makes the window n packets larger, up to the configured size.
func (w *flowWindow) widen(n int) { w.size = min(w.limit, w.size+n) }

// asksAck is called for each packet that is sent, and reports whether the packet must request an
// acknowledgement. This is so for the last packet of a message, for a packet that fills the window,
// and for packet number `every` since the last such request.
func (w *flowWindow) asksAck(last bool, every int) bool {
	w.sinceAckReq++
	if !last && w.sinceAckReq < every && !w.full() {
		return false
	}
	w.sinceAckReq = 0
	return true
}
