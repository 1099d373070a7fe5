// Package record is what a switch must remember over its own crash: the rows that it has moved, the connections that it
// has made, and its rules. It is a view of bytes that outlive the switch: a file of the rack's state folder that is mapped
// into memory, or in the simulator a slice that survives. Writing costs some stores and no system call.
//
// Contract. Open reads what a former life has left and hands it over once; from then on the record is the new life's. A
// row is recorded before its first request is moved (Move), the PSN of its oldest unanswered request before an answer
// leaves (Answered), a connection before its first packet (Dial). A process may die between any two stores: each slot
// carries a checksum, and one that is half written was not used yet.
//
// Full is refused and counted: a row that cannot be recorded must not be moved.
//
//	+--------+-------------------+-------------------+----------------+----------------+
//	| header | rows, 64 bytes    | conns, 64 bytes   | rules, bank 0  | rules, bank 1  |
//	+--------+-------------------+-------------------+----------------+----------------+
package record
