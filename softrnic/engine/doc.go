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
// A frame passes these checks, in this order; each has a counter for the frames that it drops: the
// frame is addressed to this NIC, is well-formed, its ICRC is right, its opcode is known or a
// reliable connection's, its queue pair exists and receives, the opcode is of that queue pair's
// transport service, the sender is the peer if the queue pair has one, the P_Key matches. The queue
// pair itself checks the Q_Key of datagrams. Frames that are not RoCEv2 are ignored and not
// counted, except queries of IGMP and MLD, which groups answers. A frame to a multicast group is
// for the NIC if a queue pair is attached to the group; the last three checks are made for each
// such queue pair.
//
// Engine is composed of these parts: tables (the objects of one incarnation), events, port
// (addresses and routes), groups (multicast), receivePath (rx.go), transmitPath (tx.go), schedule
// (deadlines, tick.go) and GSI (the connection manager).
//
// Queue pair 1 belongs to the engine: management datagrams go to the connection manager, see GSI.
//
// Down is a crash: every object is forgotten, and its methods return verbs.ErrClosed. Up is a new
// incarnation with the same addresses.
package engine
