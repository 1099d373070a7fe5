// Package requester is the switch's requester on a switch's connection: a reliable connection that
// the switch has made to a memory server. It carries single-packet requests of many clients. It
// closes holes 1 to 7, 11, 12, 20 and 21 of swordbox/HOLES.md.
//
// Contract. A Conn is used by one goroutine at a time. The server executes requests in the order of
// Submit. The Conn keeps a copy of each request until an answer of the server covers it. It
// retransmits the request without the client: after a sequence NAK, after an answer that skipped a
// READ or an atomic (IBTA 9.7.6.1), after the wait that an RNR NAK demands, and after a timeout. So
// while the connection lasts, a request is executed exactly once even if its client is dead. The
// Conn ends each request by exactly one call of User.Done, in the order of Submit.
//
// SubmitOnce is the exception: the Conn keeps no copy of the payload of such a WRITE, and
// retransmits a WRITE of no bytes in its place.
//
// A fatal NAK ends the connection. The request that it names ends as Refused with the syndrome, or
// as Returned (User.Retry). All later ones end as Returned: the server has not executed them,
// because a responder that refuses a request goes to the error state (IBTA 9.9.3). When the server
// has not answered for Config.Silence, it is unknown what was executed, and all requests end as
// Lost. No request is carried over to the next connection (Attach).
//
// Files. conn.go has Conn, its queue of requests, and Submit. send.go sends requests as window and
// depth allow, and ends them. receive.go handles answers, including NAKs, and the server's own
// requests. retry.go has the ACK timer, its expiry (Tick) and the return to the oldest request. pace.go has the
// limits that an operator sets.
//
// Limits. The package does not establish connections, knows no client and no memory word, and does
// not split messages. A request takes one PSN; the user ensures that a READ or WRITE is not longer
// than the path MTU.
package requester
