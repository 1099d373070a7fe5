// Package switchconn makes and keeps the switch's connections: reliable connections to the service
// of a memory server, made by the datagrams of the connection manager as any client makes them, one
// for each shard. The switch program passes datagrams and time to a Dialer, which sends through the
// pipeline's context.
//
// A Dialer carries no requests. It hands a connection that is up to its user as a Shared. From then
// on the user manages its PSNs, and reports when it has failed (Again). The server needs nothing
// special; its service must create queue pairs in the protection domain of the memory that clients
// use, as it does for those clients.
//
// Contract. One goroutine at a time uses a Dialer. Want and Unwant set which connections there
// should be; Adopt adds one that was made elsewhere. Packet, Tick, Again and Close send datagrams
// through the Ctx that is passed to them. After them the caller takes events with Next until there
// are none.
//
//	dialer.go    calls of the user
//	link.go      attempts, and the end of connections; state.go: their states
//	datagram.go  the connection manager's messages
//	former.go    connections whose end the server has not confirmed
package switchconn
