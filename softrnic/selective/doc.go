// Package selective has the state machines of selective retransmission for one reliable connection:
// what a sender knows of its packets in flight, what it takes for lost, and what a receiver has got
// ahead of the packet that it expects.
//
// All of them are pure: the caller passes the time and the events, and asks what to send. A packet
// is named by its offset, the number of PSNs from the oldest one that is not settled.
//
// The parts:
//
//	board.go     Board: the scoreboard of a sender, one state for each PSN in flight
//	recovery.go  Recovery: what is lost, by the rules of Kind, and when to look again
//	arrivals.go  Arrivals: the bitmap of a receiver
//
// A PSN belongs to a request packet, or to a response packet of a READ, atomic or FLUSH, which the
// PSN of the request implies. So the scoreboard covers both directions: a hole in the responses is
// lost as a hole in the requests is, and the caller requests just these responses again.
package selective
