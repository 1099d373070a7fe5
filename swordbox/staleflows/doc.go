// Package staleflows refuses, after a restart of the switch, the flows whose requests its former
// incarnation has moved. The switch no longer knows the PSN shifts of these flows and the requests
// in flight. So it forwards none of their packets: a server would take them for other requests.
// Each request of such a flow is answered with a fatal NAK (remote operational error), so that the
// client's queue pair enters the error state at once and the application connects again, as after
// any failure of a server.
//
// A NAK acknowledges all requests before its PSN (IBTA 9.7.5.1.2). It therefore carries the PSN of
// the flow's oldest unanswered request, which the journal has, and never that of a later request
// that arrived first.
//
// Requests to a server are dropped while connections of the former incarnation may still deliver
// late requests to it; see Config.Blocked.
//
// A flow is forgotten when the connection manager announces one of its queue pairs for another
// connection, or when no packet of it was seen for longer than NICs retry.
package staleflows
