// Package statestore counts in the memory of servers. It is the hardened handler of rules of action
// count with a store: the state store of "Generic External Memory for Switch Data Planes" (HotNets
// 2018). For each request under a rule the switch sends a FETCH_ADD to a counter in a memory
// server, and no processor of a server takes part. Package published/statestore does it as the
// paper describes it.
//
// Contract. A rule has slots counters of 8 bytes, in the order of their addresses. With several
// stores, counter i is in store i modulo their number (Layout). The switch never sets a counter; it
// only adds to it. Amount is the sum of what requests add. At every moment
//
//	Amount = Applied + pending + in flight + Uncertain + Dropped
//
// Applied is in the servers' memory. Pending waits in the switch: at most depth FETCH_ADDs are in
// flight on a connection, and amounts that are counted meanwhile are added up by counter, and sent
// when a response arrives. So nothing stays behind when the requests end. In flight was sent and is
// not answered. Package requester retransmits it with the same PSN, and the server executes it once
// as long as its NIC remembers the results of depth atomics. Uncertain was in flight when a
// connection failed: it may be in the memory or not. Dropped found no room, because too many
// counters waited at a time or the region of a store is too small; it is not in the memory.
//
// A crash of the switch loses the pending amounts, and perhaps those in flight or uncertain. The
// journal has their sum (handler.Env.Behind), so the next incarnation knows how much was lost at
// most.
//
// Limits. The switch counts requests and no other packets, because its programs see only RoCEv2. A
// hash of a flow's addresses and queue pair chooses the flow's counter, so flows may share one.
// When the last rule of a store goes, waiting amounts are sent while the store's connection lasts,
// and then dropped. A rule's new depth takes effect with the next connection.
//
//	rule.go     keys of rules, and where their counters are
//	machine.go  the handler: requests, connections
//	channel.go  one connection to a store, and what is in flight on it
//	pending.go  what waits for a connection
//	info.go     what an operator sees; slots.go: which counter counts what
package statestore
