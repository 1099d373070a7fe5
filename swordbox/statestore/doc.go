// Package statestore counts in the memory of servers. It is the hardened handler of rules of action
// measure, and of action count with the key 'store', which names the memory servers that have the counters: the state store
// of "Generic External Memory for Switch Data Planes" (HotNets 2018). For each request under a rule
// the switch sends a FETCH_ADD to a counter in a memory server, and no processor of a server takes
// part. Package published/statestore does it as the paper describes it.
//
// Contract. A rule has as many counters of 8 bytes as its key slots says, in the order of their
// addresses. If it names n memory servers, counter i is in server i modulo n (Layout). The switch
// never sets a counter; it only adds to it. Amount is the sum of what requests add. At every moment
//
//	Amount = Applied + pending + in flight + Uncertain + Dropped
//
// Applied amounts are in the servers' memory. Pending amounts wait in the switch: a connection has
// at most as many FETCH_ADDs in flight as the key depth says. While all of them are in flight, the
// switch adds up further amounts by counter. It sends a sum when a response arrives, so after the
// last response no amount waits in the switch. With the key combine, amounts wait for the end of a
// window, too. Amounts in flight were sent and are not answered.
// Package requester retransmits their FETCH_ADDs with the same PSN, and the server executes each
// once as long as its NIC remembers the results of as many atomics as may be in flight. Uncertain
// amounts were in flight when a connection failed: they may be in the memory or not. Dropped
// amounts are not in the memory: too many counters waited at a time, the region of a server is too
// small, the address of a server was not known yet, or no rule named the server any more and its
// connection had ended.
//
// With the key rows, the counters are a count-min sketch: a request adds to one counter of each
// row, which hashes choose, and each addition counts in Amount. When all amounts are applied, the
// smallest of the counters of a flow or address is at least the true count. It exceeds this count
// by more than e/slots of the sum of all counts with a probability of at most e to the power of
// -rows (e is Euler's number).
//
// Rules of action measure count packets of any protocol instead of requests: those that come in from
// a host (handler.Taker), all or a sample. What a packet counts for is a telemetry.Key, and the
// counters are always a sketch, from which telemetry.Reading estimates. Rules whose counters are in
// the same place count in one sketch. The switch remembers the keys that it has counted most
// (hotwords.Top), so that an operator knows of which keys to ask.
//
// A crash of the switch loses the pending amounts, and perhaps those in flight or uncertain. The
// journal has their sum (handler.Env.Behind), so the next incarnation knows how much was lost at
// most.
//
// Limits. Rules of action count see RoCEv2 requests alone, and those of action measure neither
// packets to groups nor those to the switch. A hash of a flow's addresses and queue pair chooses the flow's counter, so flows may share one.
// When the last rule that names a memory server is removed, waiting amounts are sent while the
// connection to that server lasts, and then dropped. A rule's new depth takes effect with the next
// connection.
//
//	rule.go     keys of rules, and where their counters are
//	machine.go  the handler: requests, connections
//	channel.go  one connection to a store, and what is in flight on it
//	pending.go  what waits for a connection
//	info.go     what an operator sees; slots.go: which counter counts what
//	measure.go  keys of rules of action measure; frames.go: the packets that they count
//	flows.go    which keys the switch has counted most
package statestore
