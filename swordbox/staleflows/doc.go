// Package staleflows works after a restart of the switch: it refuses the flows whose requests a
// former incarnation of the switch has moved. The switch no longer knows the PSN shifts of these
// flows, and which of their requests are in flight. So it forwards none of their packets: a server
// would take them for other requests. It answers each request of such a flow with a fatal NAK
// (remote operational error). The client's queue pair then enters the error state at once, and the
// application connects again, as after any failure of a server.
//
// A NAK acknowledges all requests before its PSN (IBTA 9.7.5.1.2). So its PSN is that of the flow's
// oldest unanswered request, which is in the journal, and never that of a later request that
// happens to arrive first.
//
// While earlier connections of the switch, which have ended or belong to a former incarnation, may
// still deliver late requests to a server, the machine drops requests to that server; see
// Config.Blocked.
//
// The machine forgets a flow when the connection manager announces one of its queue pairs for
// another connection, when the client was silent for longer than NICs retry, or when the client
// sends a packet so long after the first NAK (refuseTime) that it belongs to another connection.
package staleflows
