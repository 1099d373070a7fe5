// Package redn builds programs out of work requests that modify each other: RedN (NSDI 2022), which
// shows that a NIC executes any program that way. A program is a set of queues, each in a send ring
// (package sendring), and a NIC executes it without a processor.
//
// A Queue appends requests to the image of a ring; the caller writes the image to the ring's memory
// and rings the doorbell. A Request has handles to its fields, which are memory like any other. If,
// IfElse, IfBytes, IfAtMost, IfAtLeast, Load, LoadIndexed, Unrolled and Loop are constructs: they
// append the requests with all counts and indexes, which are absolute, filled in. A Pool has constants and variables. Verify
// refuses a program that would hang or does not fit into its rings.
//
// A program is only addresses, keys and numbers. Machine is a NIC in virtual time that executes one on
// its own memory, and prints each request if it is asked to.
//
// The package is sans-I/O.
package redn
