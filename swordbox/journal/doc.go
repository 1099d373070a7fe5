// Package journal keeps what a switch needs after its own crash: the flows whose requests it has
// moved, the connections that it has made, its rules, and how much it has counted that no server has
// confirmed. The journal is memory that survives the
// switch: a file of the rack's state folder, mapped into the process, or a slice in the simulator.
// Writing takes some stores and no system call.
//
// Contract. Open reads the entries of the former incarnation of the switch (Former); after that the
// new incarnation writes its own. A flow is recorded before its first request is moved (Move), the
// PSN of its oldest unanswered request before a response is sent (Answered), a connection before
// its first packet (Dial). The process may die between any two stores: each slot has a checksum,
// and nothing depends on a slot before it is written completely.
//
// When the journal is full, Move and Dial return ErrFull and count it: a flow that cannot be
// recorded must not be moved.
//
//	+--------+-------------------+-------------------+----------------+----------------+
//	| header | flows, 64 bytes   | conns, 64 bytes   | rules, bank 0  | rules, bank 1  |
//	+--------+-------------------+-------------------+----------------+----------------+
package journal
