// Package transport is one queue pair of a reliable connection, an unreliable connection or of
// datagrams: requester, responder and completer as a state machine without clock, goroutine or
// socket.
//
// The caller's duties, in the order of a step:
//
//  1. Call one of PostSend, Handle, Tick, FlushAcks or a transition with the present time and an
//     Actions.
//  2. Put Done into the completion queues, in order, and report Async.
//  3. Send Tx, in order. Payloads point into the Actions and are valid until its Reset.
//  4. Reset the Actions, and ask Deadline when Tick must be called next. A deadline that is not
//     after the present time is due at once, but the caller may serve other queue pairs first:
//     for this purpose, long answers are cut into bursts.
//
// Packets passed to Handle are for this queue pair, are from its peer, and have a valid ICRC; the
// engine has checked this. Handle only reads them and keeps no reference.
//
// A comment cites a rule of the protocol as IBTA 9.7.4.1/length: the section of the specification,
// and a word of this project for one rule in it.
//
// The parts:
//
//	qp.go                   QP: composes the parts and chooses the one for a call
//	core.go                 core: state, attributes, memory and counters that all parts share
//	service.go              what the transport services do differently
//	actions.go              Actions: what a step returns to the caller
//	state.go, modify.go     the state diagrams as data, and the transitions
//	change.go               Modify: attributes that change without a transition
//	ring.go, post.go        work queues, and what a post refuses
//	receives.go             Receives: receives in a ring that a program writes without a doorbell
//	sender.go, local.go     sender: the send queue, data packets, completions
//	requester.go            requester: fences, limits, when the next packet leaves
//	retry.go                ACK timer, retry counters, go-back-N, RNR, implied NAK
//	pace.go                 when a packet may leave by the queue pair's congestion control
//	window.go               flowWindow: how many packets may be in flight
//	completer.go            completer: ACKs, NAKs and responses
//	receiver.go, srq.go     receiver: the receive queue; shared receive queues
//	responder.go, phase.go  responder: classes of PSN, refusals; its phases as a table
//	executor.go             executor: the checks in the order of the specification, and execution
//	duplicate.go            requests that were executed before
//	answers.go              answers: what is owed to the peer, in PSN order
//	torn.go                 memory copies that a fault plan tears
//	unreliable.go           unreliableSender: what UC and UD have in common
//	xrc.go                  extended reliable connections: initiators and targets
//	uc.go, ud.go            unreliable connections and datagrams
//	saw.go, saw_cover.go    reports to make coverage; nothing without the build tag qpcover
//
// Completion statuses that this package never reports: LocEECOpErr, LocRDDViolErr, RemInvRDReqErr,
// InvEECNErr and InvEECStateErr belong to reliable datagrams, RemAbortErr to datagrams and XRC,
// RespTimeoutErr to no transport, and this NIC does not need FatalErr and GeneralErr. MWBindErr, a
// failed memory management operation, is the status of a bind or fast registration that fails, and
// of a local invalidate that fails. LocQPOpErr is the status of a READ or atomic on a queue pair
// with MaxRdAtomic -1. The unreliable services report local errors only: Success, LocProtErr,
// WRFlushErr and, for UC, MWBindErr.
//
// If a datagram or an unreliable message does not fit into the receive, it is dropped, and the
// receive stays posted, as in Linux rxe; some hardware completes the receive with a length error
// instead.
//
// Different from Linux rxe on purpose: a SEND that is longer than the receive draws the
// specification's NAK for an invalid request and LocLenErr, not a NAK for a remote operational
// error. A SEND whose key to invalidate is not valid draws a NAK for a remote access error; rxe
// acknowledges the SEND and then fails its own queue pair. A duplicate SEND or WRITE packet is
// acknowledged only if it has AckReq.
//
// Different from most hardware on purpose: timeouts and sequence NAKs are counted apart, each up to
// RetryCount, and an RNR NAK refills both counters, so that heavy injected loss does not look like
// a dead peer. If the peer does not answer, the requester fails with RetryExcErr after exactly
// RetryCount+1 transmissions. A local invalidate and a bind are full barriers of their send queue.
// A repeated READ whose region was deregistered is dropped, not refused, because it may be an old
// copy from the network.
package transport
