// Package journal keeps what a switch needs after its own crash: the flows whose requests it has
// moved, the connections that it has made, its rules, and how many requests it has counted that no
// server has confirmed (under a rule that counts bytes, the number of these bytes). The journal is
// memory that survives the switch: a file of the rack's state folder, mapped into the process, or a
// slice in the simulator. Writing to it takes some stores to memory and no system call.
//
// Contract. Open reads the entries of the former incarnation of the switch (Former). After that the
// new incarnation writes its own entries: a flow before its first request is moved (Move), the PSN
// of its oldest unanswered request before a response is sent (Answered), a connection before its
// first packet (Dial). The process may die between any two stores. So each slot has a checksum, and
// no slot counts before it is written completely.
//
// When the journal is full, Move and Dial return ErrFull and count that. The caller must not move a
// flow that cannot be recorded.
//
//	+--------+-------------------+-------------------+----------------+----------------+
//	| header | flows, 64 bytes   | conns, 64 bytes   | rules, bank 0  | rules, bank 1  |
//	+--------+-------------------+-------------------+----------------+----------------+
package journal
