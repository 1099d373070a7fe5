// Package tracestore writes the headers of packets to the memory of servers: it is the handler of rules
// of action trace, the state store by WRITE of "Generic External Memory for Switch Data Planes"
// (HotNets 2018). No processor of a server takes part. Package packettrace has the form of a record, and
// the analysis of a trace that was read from the memory.
//
// Contract. For each packet that a host sends (handler.Taker), or each of a sample, the switch makes a
// record and puts it into the next cell of the rule's ring, over the oldest record. If a rule names n
// servers, cell i is in server i modulo n. Records of neighbouring cells go in one WRITE: it leaves when
// it has as many records as the key batch says, or when its first record has waited as long as the key
// combine says. Rules whose rings are in the same place write to one ring, in the order in which the
// packets came in. At every moment
//
//	Records = Stored + waiting + in flight + Uncertain + Dropped
//
// Stored records are in the servers' memory: a response says so. Waiting ones are in a batch of the
// switch. Those in flight were sent and are not answered; package requester keeps copies and
// retransmits them. Uncertain ones were in flight when a connection failed. Dropped ones are not in the
// memory: their server could take no WRITE, or its memory or the rule was removed. A record that is
// dropped has taken its number, so a reader sees that one is missing.
//
// Limits. Packets to groups and to the switch are not recorded. A super-frame has one record. A crash of
// the switch loses the records that wait and perhaps those in flight; the next incarnation begins a ring
// with another epoch, over the former one. When the rules of a ring are removed, its waiting records
// are dropped.
//
//	rule.go     keys of rules, and where rings are
//	machine.go  the handler: rules, connections
//	frames.go   packets that come in
//	ring.go     rings and their batches
//	channel.go  one connection to a server
//	info.go     what an operator sees
package tracestore
