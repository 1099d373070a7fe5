// Package shared is the requester of a switch on a connection of its own to a memory server: a reliable connection that
// carries single-packet requests of many clients (hole 1 to 7, 11, 12, 20 and 21 of the SwordBox notes).
//
// Contract. A Conn is a value that one goroutine uses at a time. Submit queues a request in the order in which the server
// shall execute it. The Conn keeps a copy until an answer of the server covers it, and sends it again by itself: after a
// sequence NAK, after an answer that skipped a READ or an atomic (IBTA 9.7.6.1), after an RNR NAK when its time has passed,
// and when the server is silent for too long. So a request is executed once even if its client is dead. Each request is
// finished by exactly one User.Done, in the order of Submit.
//
// A fatal NAK ends the connection: the request that it names is Done with its syndrome, and the others, which the server
// has not executed (IBTA 9.9.3: a responder that refused goes to the error state), wait for Attach to bring a new
// connection. With no answer after all tries it is unknown what was executed: all that were sent are Done as lost.
//
// What it does not do: it makes no connection, knows no client and no memory word, and splits no message. A request
// takes one PSN; the user sees to it that a READ or WRITE is not longer than the path MTU.
package shared
