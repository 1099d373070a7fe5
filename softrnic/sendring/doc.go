// Package sendring is a send queue whose entries lie in registered memory, so that work requests can
// modify other work requests before the NIC executes them (RedN, NSDI 2022). It has the codec of the
// entries, whose layout is that of mlx5, and the state machine that executes them.
//
// The ring is a power of two of 64-byte blocks. An entry takes as many blocks as it needs, and the
// index of an entry is that of its first block: it counts from 0 and never restarts, also when the
// ring wraps. An entry is parsed from the bytes that are in memory when it is executed. Only a ring
// with Prefetch above 1 may execute older bytes: it reads that many blocks at once, as hardware does,
// and does not notice a change behind that.
//
// A ring executes entries in order up to its limit. The limit of a managed ring moves by an ENABLE
// of another ring (or of itself), that of another ring by the doorbell of the program. WAIT stops
// the ring until a completion queue has counted enough completions. Counts and indexes are absolute:
// a program that executes an entry again must have raised its count. RECV_ENABLE lets a queue pair use
// its receives again, so that such a program needs no process that posts them.
//
// Contract. The package is sans-I/O. The engine owns a Ring, gives it a Host for what lies outside,
// calls Run when the ring is Ready, and tells it of every completion of its queue pair by
// Completed. A ring executes only a budget of entries in one Run. No bytes make it panic: an entry
// that cannot be executed fails like a work request, with LocQPOpErr or LocProtErr, after all
// earlier entries have completed.
//
// MAX and MIN write the largest or smallest of their data to the remote address, as a word in the byte
// order of atomics. Each piece of the data is one number of 1 to 8 bytes.
//
// Not here: inline data, signatures.
package sendring
