// Package packettrace has the records of a packet trace in the memory of servers, and the analysis of
// such a trace: which flows sent how many packets and bytes, and which of their packets came late or
// again. Package tracestore writes the records; `rdmalab switch traced` reads and analyses them.
//
// Contract. The package does no I/O. Any bytes of a server's memory can be read: Parse refuses what
// is no whole record, because each record ends with a checksum. A Trace takes copies of the memory
// (Add) and puts the records of one epoch into the order of their numbers. Numbers without a record are
// missing. Report analyses the records.
//
// A packet is late if its sequence number is smaller than one that its flow has sent before (RFC 4737,
// section 3: Type-P-Reordered), and the trace has no earlier packet with the same number. If it has one,
// the packet came again: it is a retransmission or a copy.
//
// Limits. Sequence numbers are known of RoCEv2 requests and READ responses (PSN) and of TCP segments
// with data, if these headers are among the first HeadLen bytes of the frame. A super-frame has one
// record: its RoCEv2 packets have consecutive PSNs, and a TCP super-frame counts as one segment. A READ request takes as many PSNs as its
// response has packets; the trace counts one.
//
//	record.go    the bytes of a record
//	trace.go     records of copies of the memory, in order
//	sequence.go  sequence numbers of packets
//	report.go    flows
package packettrace
