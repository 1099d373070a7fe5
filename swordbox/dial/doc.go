// Package dial makes and keeps the connections of the switch itself: reliable connections to a memory server's service,
// made by the datagrams of the connection manager as by any other client, one for each shard. A Dialer is a machine of
// the switch program: it is handed datagrams and time, and sends through the pipeline's context.
//
// What it does not do: it carries no requests. A connection that is up is handed to its user as a Shared, who owns its
// PSNs from then on, and who says when it has failed (Again). The server needs nothing special; the service must give out
// queue pairs in the protection domain of the memory that clients use, as it does for those clients.
//
// Contract. One goroutine at a time. Want and Unwant say which connections shall be; Adopt enters one that was made
// elsewhere. Packet, Tick, Again and Close send datagrams through the Ctx that they are given. What happened since is
// taken with Next until there is nothing more.
package dial
