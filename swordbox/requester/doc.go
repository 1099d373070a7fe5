// Package requester is the switch's requester on a switch's connection: a reliable connection that
// the switch made to a memory server and that carries single-packet requests of many clients (it
// closes holes 1 to 7, 11, 12, 20 and 21 of swordbox/HOLES.md).
//
// Contract. A Conn is used by one goroutine at a time. The server executes requests in the order of
// Submit. The Conn keeps a copy of each request until an answer of the server covers it, and
// retransmits it without the client: after a sequence NAK, after an answer that skipped a READ or
// an atomic (IBTA 9.7.6.1), after an RNR NAK when its time has passed, and after a timeout. So a
// request is executed exactly once even if its client is dead. Each request is finished by exactly
// one User.Done, in the order of Submit.
//
// A fatal NAK ends the connection: the request that it names ends as Refused with the syndrome, and
// all later ones, which the server has not executed (IBTA 9.9.3: a responder that refuses a request
// goes to the error state), end as Returned. When the server has not answered for Config.Silence,
// it is unknown what was executed, and all requests end as Lost. No request is carried over to the
// connection that Attach brings next.
//
// Files. conn.go has Conn, its queue of requests, and Submit; send.go sends requests within window
// and depth, and ends them; receive.go handles answers, NAKs included, and the server's own
// requests; retry.go has the ACK timer, its expiry (Tick) and the return to the oldest request.
//
// Limits. The package does not establish connections, knows no client and no memory word, and does
// not split messages. A request takes one PSN; the user ensures that a READ or WRITE is not longer
// than the path MTU.
package requester
