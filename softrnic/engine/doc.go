// Package engine is a whole RoCEv2 NIC as one state machine: tables of protection domains, regions,
// completion queues and queue pairs, demultiplexing by destination queue pair, framing, arbitration
// between queue pairs, and one deadline. It composes transport's queue pairs; it has no clock,
// goroutine, lock or socket.
//
// Contract. The caller owns the engine and uses it from one goroutine at a time. It passes received
// frames to Frame, posts work, calls Tick when Deadline has come, and sends the frames that these
// calls append to their Batch. When a call returns, its completions are in the completion queues.
// Activity changes whenever a completion is queued or an asynchronous event is raised: this tells
// the shell when to wake applications.
//
// A received frame must pass these checks, in this order. The frame is addressed to this NIC and
// well-formed. Its ICRC is right. Its opcode is known, or is a reserved one of reliable
// connections, for which the responder sends a NAK. Its queue pair exists and is in a state that
// receives. The opcode belongs to the queue pair's transport service. The sender is the queue
// pair's peer, if it has one. The P_Key matches. Each check has a counter for the frames that it
// drops. The queue pair itself checks the Q_Key of datagrams. Frames that are not RoCEv2 are
// ignored and not counted, except queries of IGMP and MLD, which the part groups answers. A frame
// to a multicast group is for the NIC if a queue pair is attached to the group. It must be a
// datagram to verbs.MulticastQPN; state and P_Key are checked for each attached queue pair.
//
// Engine is composed of these parts: tables (the objects of one incarnation), events, port
// (addresses and routes), groups (multicast), receivePath (rx.go), transmitPath (tx.go), schedule
// (deadlines, tick.go) and GSI (the connection manager).
//
// Queue pair 1 belongs to the engine: management datagrams go to the connection manager, see GSI.
//
// Down simulates a crash: all objects end, and their methods return verbs.ErrClosed. Up starts a
// new incarnation with the same addresses.
package engine
