// Package redn builds programs out of work requests that modify each other, as the paper RedN (NSDI
// 2022) does: it shows that a NIC can execute any program in this form. A program is a set of
// queues, each in a send ring (package sendring). A NIC executes it without a processor.
//
// A Queue appends requests to the image of a ring. The caller writes the image to the ring's memory
// and rings the doorbell. A Request has methods that return its fields as memory, so that other
// requests can read and write them. If, IfElse, IfBytes, IfAtMost, IfAtLeast, Load, LoadIndexed,
// Unrolled and Loop are constructs: they append several requests and fill in all counts and
// indexes, which are absolute. A Pool has constants and variables. Verify refuses a program that
// would hang or that does not fit into its rings. Program makes the queues of a program by verbs, and
// starts it.
//
// Lookup, LookupServer, Walk, ListServer, LockServer and Turing are whole programs.
//
// A program consists only of addresses, keys and numbers. Machine is a NIC in virtual time that
// executes a program on its own memory; its method RunTraced prints each request.
//
// The package is sans-I/O.
package redn
