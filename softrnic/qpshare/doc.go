// Package qpshare lets the threads of one application share queue pairs. All threads reach a
// service of a host through one connection, as the threads of the published Clover do. Each thread
// has a Member: a verbs.Context and an rdmacm.Dialer, which it uses like a NIC of its own. Queue
// pairs of its protection domain are shared if they are connected to one of the services of
// Config.Shared; other queue pairs belong to the thread alone.
//
// All queue pairs, shared or not, use one completion queue, and each completion goes to the member
// that posted the work request. One of the waiting members, the leader, polls for all: it wakes
// each member that gets a completion. When the leader has a completion of its own, another waiting
// member becomes leader.
//
// A connection fails for all members: their work requests on it are flushed. The next Dial of each
// member uses a new connection, which they share again. A member that moves its queue pair to ERROR
// while work requests are in flight also ends the connection for all members, because there is no
// other way to get work requests back from a NIC. A member that has none in flight, or that only
// destroys its queue pair, leaves without effect on the others.
//
// No memory is shared: each member registers its own regions. All regions are in one protection
// domain.
package qpshare
