// Package sendring is a send queue whose entries lie in registered memory, so that work requests
// can modify other work requests before the NIC executes them (RedN, NSDI 2022). It has the codec
// of the entries, whose layout is that of mlx5, and the state machine that executes them.
//
// The ring has a power of two of 64-byte blocks. An entry takes as many blocks as it needs, and the
// index of an entry is that of its first block: it counts from 0 and never restarts, also when the
// ring wraps. An entry is parsed from the bytes that are in memory when it is executed. Only a ring
// with Prefetch above 1 may execute older bytes: it reads Prefetch blocks at once, as hardware
// does, and does not notice when they change later.
//
// A ring executes entries in order up to its limit. An ENABLE, in another ring or in the ring
// itself, moves the limit of a managed ring. The program's doorbell moves the limit of any other
// ring. WAIT stops the ring until a completion queue has counted enough completions. Counts and
// indexes are absolute: before the ring wraps and executes a WAIT or ENABLE again, the count or
// index in it must be raised. RECV_ENABLE lets a queue pair use its receives again, so that such a
// loop needs no process that posts them.
//
// Contract. The package is sans-I/O. The engine owns a Ring and passes it a Host, by which the ring
// accesses the NIC. It calls Run when the ring is Ready, Failure when the ring is Failing, and
// Completed for every send completion of the queue pair. A ring executes only a budget of entries
// in one Run. No bytes make it panic: an entry that cannot be executed fails like a work request,
// with LocQPOpErr or LocProtErr, after all earlier entries have completed.
//
// MAX and MIN write the largest or smallest of their data to the remote address, as a word in the
// byte order of atomics. Each piece of the data is one number of 1 to 8 bytes.
//
// Inline data and signatures are not supported.
package sendring
