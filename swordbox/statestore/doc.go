// Package statestore counts in the memory of servers: it is the handler of rules of action count with
// a store, hardened. It is the state store of "Generic External Memory for Switch Data Planes"
// (HotNets 2018): for each request under a rule the switch sends a FETCH_ADD to a counter in a memory
// server, and no processor of a server takes part. Package published/statestore does it as the paper
// describes it.
//
// Contract. A rule has slots counters of 8 bytes, in the order of their addresses; with several
// stores, counter i is in store i modulo their number (Layout). The counters of a rule are never set,
// only added to. Amount counts what requests add, and at every moment
//
//	Amount = Applied + pending + in flight + Uncertain + Dropped
//
// Applied is in the servers' memory. Pending waits in the switch: no more than depth FETCH_ADDs are in
// flight on a connection, and what is counted meanwhile is added up by counter and sent when a
// response arrives, so nothing stays behind when the requests end. In flight is sent and not answered;
// package requester retransmits it with the same PSN, and the server executes it once as long as its
// NIC remembers the results of depth atomics. Uncertain was in flight when a connection failed: it may
// be in the memory or not. Dropped found no room, because too many counters waited at a time or the
// region of a store is too small; it is not in the memory.
//
// A crash of the switch loses what was pending, and possibly what was in flight or uncertain. The
// journal has the amount (handler.Env.Behind), so the next incarnation says how much it is at most.
//
// Limits. Requests are counted, no other packets: programs of the switch see RoCEv2 alone. A counter
// per flow is chosen by a hash of the flow's addresses and queue pair, so flows may share one. What
// has waited when the last rule of a store goes is sent while its connection lasts, and then dropped.
// A rule's new depth takes effect with the next connection.
//
//	rule.go     keys of rules, and where their counters are
//	machine.go  the handler: requests, connections
//	channel.go  one connection to a store, and what is in flight on it
//	pending.go  what waits for a connection
//	info.go     what an operator sees; slots.go: which counter counts what
package statestore
