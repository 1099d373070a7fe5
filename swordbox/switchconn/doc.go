// Package switchconn makes and keeps the switch's connections. They are reliable connections to the
// service of a memory server, one for each shard. The switch makes them by datagrams of the
// connection manager, as any client does. The switch program passes datagrams and time to a Dialer,
// which sends through the pipeline's context.
//
// A Dialer carries no requests. When a connection is up, the Dialer hands it to its user as a
// Shared. From then on the user manages the PSNs of the connection, and reports when it has failed
// (Again). The server needs nothing special. Its service must create the queue pair in the
// protection domain of the memory that clients use, as it does for clients.
//
// Contract. A Dialer is used by one goroutine at a time. Want and Unwant set which connections
// there should be; Adopt adds one that was made elsewhere. Methods that get a Ctx send datagrams
// through it. After each call of such a method or of Adopt, the caller takes events with Next until
// there are none.
//
//	dialer.go    calls of the user
//	link.go      attempts, and the end of connections; state.go: their states
//	datagram.go  the connection manager's messages
//	former.go    connections whose end the server has not confirmed
package switchconn
