// Package raw measures the baseline of package perf: bandwidth and latency of plain Ethernet
// frames. Its tests use a port of the same kind, the same switch and the same way of waiting as the
// NIC. So the difference to the NIC's figures is the cost of RDMA.
//
// The client opens a TCP connection to tcpPort of the peer and sends the number of the session. The
// peer answers with one byte when it listens for frames of that session. It listens until the
// connection ends.
//
//	 0     6     12          14   15        16        24
//	+-----+-----+-----------+----+---------+---------+--------+---------
//	| dst | src | etherType | op | 0       | session | number | filling
//	+-----+-----+-----------+----+---------+---------+--------+---------
package raw
