// Package cm is the connection manager of one NIC as a machine: it makes and ends connections by
// the datagrams of package mad (InfiniBand specification, volume 1, chapter 12). It knows only the
// numbers of queue pairs; its caller brings them up and down, in step with its events.
//
// Contract. The machine is used from one goroutine at a time. It takes datagrams (Handle), calls of
// applications (Connect, Accept, Reject, Disconnect …) and time (Tick, when Deadline has come), and
// appends to Actions the datagrams to be sent and the events for applications. The owner, a number
// that the caller chooses, tells to which application an event or a call belongs.
//
// The initiator: Connect sends a REQ. EventReply reports the REP; the caller takes its queue pair
// to RTS and calls Ready, which sends the RTU: the connection is established. The responder:
// EventRequest reports the REQ; the caller takes its queue pair to RTS and calls Accept, which
// sends the REP; EventEstablished follows the RTU, or PacketSeen when the first packet of the
// connection itself arrives before it. Either side ends the connection with Disconnect; both see
// EventDisconnected.
//
// Datagrams are lost, duplicated and reordered. REQ, REP and DREQ are retransmitted until they are
// answered or their retries are used up; a duplicate is answered as the first copy was, while the
// connection or its time-wait lasts. When a REQ arrives again that the application has not
// answered, an MRA makes the initiator wait longer.
package cm
