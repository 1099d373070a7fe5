// Package cm is the connection manager of one NIC as a state machine: it makes and ends connections
// by the datagrams of package mad (InfiniBand specification, volume 1, chapter 12). It knows only
// the numbers of queue pairs; its caller moves them between states, as the machine's events
// require.
//
// Contract. The machine is used from one goroutine at a time. It takes datagrams (Handle), calls of
// applications (Connect, Accept, Reject, Disconnect …) and time (Tick, when Deadline has come), and
// appends to Actions the datagrams to be sent and the events for applications. The owner, a number
// that the caller chooses, says to which application an event or a call belongs.
//
// The initiator: Connect sends a REQ. EventReply reports the REP; the caller moves its queue pair
// to RTS and calls Ready, which sends the RTU: the connection is established. The responder:
// EventRequest reports the REQ; the caller moves its queue pair to RTS and calls Accept, which
// sends the REP. EventEstablished follows the RTU, or PacketSeen if the first packet of the
// connection arrives before the RTU. Either side ends the connection with Disconnect; both get
// EventDisconnected, or EventUnanswered if the peer does not answer, and EventClosed when the
// time-wait is over.
//
// Datagrams may be lost, duplicated and reordered. REQ, REP, DREQ and SIDR_REQ are retransmitted
// until they are answered or their retries are used up. While the connection or its time-wait
// lasts, a duplicate gets the same answer as the first copy. When a REQ arrives again before the
// application has answered it, an MRA makes the initiator wait longer.
package cm
