package transport

// A requester may have Config.Window packets under way. What is sent behind a lost packet is sent in vain, because the
// responder drops it: so each retry narrows the window, and each acknowledged packet widens it again. On a link that
// loses nothing the window never changes; at 10 % loss this saves most of the packets of go-back-N, and it keeps a peer
// that is merely slow from being buried under retransmissions. The specification leaves a requester free to send less.

// minWindow is what a timeout narrows the window to, in packets: enough to carry a message of 64 KiB at the largest path
// MTU.
const minWindow = 16

// narrow makes the window at most n packets, and not less than minWindow.
func (q *QP) narrow(n int) {
	q.req.window = min(q.req.window, max(n, minWindow))
}

// widen makes the window n packets larger, up to what was configured.
func (q *QP) widen(n int) {
	q.req.window = min(q.cfg.Window, q.req.window+n)
}
