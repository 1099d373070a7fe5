// Package engine is a whole RoCEv2 NIC as one machine: tables of protection domains, regions,
// completion queues and queue pairs, demultiplexing by destination queue pair, framing, arbitration
// between queue pairs, and one deadline. It composes transport's queue pairs; it has no clock,
// goroutine, lock or socket.
//
// Contract. The caller owns the engine and uses it from one goroutine at a time. It hands in frames
// (Frame), posts work, calls Tick when Deadline has come, and sends the frames that any of these
// append to the Batch it passed. Completions are in the completion queues when a call returns;
// Activity changes whenever one was added or an asynchronous event was raised, so that a shell knows
// when to wake applications.
//
// A frame passes these checks in this order, and each one that fails counts the drop under its own
// name: addressed to this NIC, well-formed, ICRC, opcode known or a reliable connection's, queue
// pair there and ready, opcode of its transport service, sent by its peer if it has one, P_Key; the
// Q_Key of datagrams is checked by the queue pair. Frames that are not RoCEv2 are ignored and not
// counted, but for queries of IGMP and MLD, which groups answers. A frame to a multicast group is for
// the NIC if a queue pair is attached, and the last three checks are made for each such queue pair.
//
// The parts, which Engine composes: tables (the objects of one incarnation), events, port
// (addresses and routes), groups (multicast), receivePath (rx.go), transmitPath (tx.go), schedule (deadlines, tick.go)
// and GSI (the connection manager).
//
// Queue pair 1 is the engine's own: management datagrams go to the connection manager behind it,
// see GSI.
//
// Down is a crash: every object is forgotten and its methods answer verbs.ErrClosed. Up is a new
// incarnation with the same addresses.
package engine
