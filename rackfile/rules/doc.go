// Package rules says which traffic the switch program works on, and how. A Rule selects requests to
// a memory server by address range and R_Key (or, with some actions, frames), and names the action.
// A Set is the immutable list of a switch's rules, compiled for lookup.
//
// On a command line, a rule is a list of words key=value. In a rack file, it is a mapping with the
// same keys:
//
//	id=locks server=ms0 action=atomics mode=hardened range=0x1000-0x2000 shards=2 service=memory
//
//	rules:
//	  - {id: locks, server: ms0, action: atomics, range: 0x1000-0x2000, shards: 2}
//
// Fields returns the table of the keys; the program also prints the table's texts as documentation.
// The package knows no rack: Resolve takes a function that knows the names of servers.
package rules
