// Package cm is the connection manager of one NIC as a machine: it makes and ends connections by the datagrams of
// package mad (InfiniBand specification, volume 1, chapter 12). It knows nothing of queue pairs but their numbers; bringing them up and down
// is its caller's work, in step with its events.
//
// Contract. The machine is used from one goroutine at a time. It is handed datagrams (Handle), wishes of applications
// (Connect, Accept, Reject, Disconnect …) and time (Tick, when Deadline has come), and appends to Actions the datagrams
// to be sent and the events that applications shall see. What an event or a wish belongs to is told by the owner, a
// number that the caller chose.
//
// The initiator: Connect sends a REQ. EventReply brings the REP; the caller takes its queue pair to RTS and calls Ready,
// which sends the RTU: the connection is established. The responder: EventRequest brings the REQ; the caller takes its
// queue pair to RTS and calls Accept, which sends the REP; EventEstablished comes with the RTU, or by PacketSeen when
// the first packet of the connection itself comes before it. Either side ends the connection with Disconnect; both see
// EventDisconnected.
//
// Datagrams get lost, doubled and overtaken. REQ, REP and DREQ are sent again until they are answered or their retries
// are used up; a message that comes twice is answered as it was the first time, for as long as the connection, or its
// time-wait behind it, is remembered. A REQ whose application takes its time is answered with an MRA when it comes
// again, which makes the initiator wait longer.
package cm
