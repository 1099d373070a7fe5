// Package serialize is the hardened handler that serialises requests to a memory server in the
// switch: requests of many clients move to shared connections, and atomics become WRITEs there.
// When packets are lost, duplicated or reordered, or a client or a server dies, no acknowledged
// operation is lost and no lock is granted twice. Package published/serialize implements the design
// as the paper describes it.
//
// Order. The requests of a flow are in one place at a time: on the client's connection, or on one
// shared connection. If the next request belongs to another place, the switch holds it until all
// requests before it have been answered. So the server executes the requests of a flow in the order
// of the client's posts, as on any reliable connection, and answers return in that order.
//
// PSNs. Towards the client the switch is the responder: it takes requests in the order of their
// PSNs, answers a gap with one sequence NAK, and answers duplicates from its window, which holds
// records of the newest requests. Moved requests take no PSN on the client's connection to the
// server, so client and server count differently there; a psnMap translates the PSNs of both. A
// retransmission on that connection has the same PSN there as the first transmission.
//
// The path of a packet:
//
//	a request         Machine.Request finds the flow's sequencer; the PSN is in order, duplicate
//	                  or ahead
//	  in order        placing: the client's connection, a shared one, the pool of held requests, or
//	                  an answer of the switch
//	  duplicate       duplicate: forwarded, executed again on a shared connection, answered from
//	                  the window, or ignored because the switch still has the request
//	  ahead           a sequence NAK
//	a response on     Machine.Response: clientConn records what the server has executed; the PSN
//	the client's      and MSN become those that the client expects
//	connection
//	a response on a   Machine.Owned: requester.Conn finds the request, link.Done reports its end to
//	shared one        word and window, and replies answers the client
//
// The types:
//
//	Machine      all servers, flows, words and held requests; implements handler.Machine
//	server       a memory server: its rules, shared connections, and proven keys
//	link         a shared connection and the user of its requester.Conn
//	sequencer    takes the requests of one flow in order and sends each to its place; made of
//	  clientConn   the client's connection: psnMap, the acknowledged PSN, clientOps, proof
//	  replies      the responder towards the client: window of remembered requests, MSN, NAKs
//	  waitingRoom  the held requests of the flow, and the value that the first one waits for
//	  formers      earlier requests that a new connection must not overtake
//	state.go     the states of a sequencer, with their tables of transitions (testdata/states.dot),
//	             and the states that tests count
//
// The files:
//
//	machine.go, server.go, link.go      the types of these names; server.go has shards, link.go the
//	                                    end of a request on a shared connection
//	sequencer.go                        the timers and the end of a flow; moved requests that the
//	                                    server will not execute, and that the client sends again
//	request.go                          the arrival of a request, and the release of held requests
//	placing.go, miss.go                 the place of a request; a CAS that is known to fail
//	duplicate.go, window.go, replies.go duplicates, remembered requests, answers of the switch
//	response.go, clientconn.go          responses on the client's connection; what the server has
//	                                    executed there
//	clientops.go, extent.go             operations in flight on the client's connection; the bytes
//	                                    that a message of several packets writes
//	psnmap.go, reach.go                 translation of PSNs; how old the PSN of a duplicate may be
//	held.go, shares.go, stale.go        held requests: pool, share of a host, age
//	keys.go                             what must be proven before requests move: the right of the
//	                                    key, the incarnation of the server
//	former.go                           the requests that a new connection must not overtake
//	clean.go                            when all requests that were sent before a word entered the
//	                                    table have ended
//	admit.go                            limits of connections that the server has never answered
//	slow.go                             which clients slow down when a server is congested
//	bypass.go                           packets of flows that no sequencer handles
//	flows.go, config.go                 tables of flows; Config
//	info.go, listing.go                 what captures and `rdmalab switch` show
//
// Failing CAS. If the switch knows that a CAS will fail, it sends a WRITE of no bytes instead. A
// rule may make it answer the CAS, or hold the CAS until it would succeed (miss.go).
//
// Limits. The switch identifies a word by the address in requests: memory that a server has
// registered under two addresses must not be used as a word under both. The server itself may
// change its words only by RDMA requests through the switch.
//
// Each port of the switch (each host) has a share of the places for held requests. So requests of
// one host that wait do not delay another host (shares.go).
//
// The package is sans-I/O. Every queue has a bound, every wait a deadline: a held request is
// dropped when its client may have given it up (stale.go). An answer that waits for a repeated READ
// is sent after Config.RedoTime at the latest. A request on a shared connection ends at the latest
// when the switch's requester gives up the connection. A word stops waiting for operations on
// clients' connections after atomiccache.Config.Patience.
package serialize
