// Package raw is the baseline of package perf: bandwidth and latency of plain Ethernet frames over
// a port of the same kind, through the same switch and with the same way of waiting as the NIC. The
// difference to the NIC's figures is the cost of RDMA.
//
// The client opens a TCP connection to tcpPort of the peer and sends the number of the session. The
// peer answers with one byte as soon as it listens for frames of that session; it listens until the
// connection ends.
//
//	 0     6     12          14   15        16        24
//	+-----+-----+-----------+----+---------+---------+--------+---------
//	| dst | src | etherType | op | 0       | session | number | filling
//	+-----+-----+-----------+----+---------+---------+--------+---------
package raw
