// Package rules says which traffic the switch program works on, and how: a Rule selects requests to
// a memory server by address range and key and gives the action; a Set is the compiled, immutable
// list of a switch.
//
// A rule is written as words key=value on a command line, and as a mapping with the same keys in a
// rack file:
//
//	id=locks server=ms0 action=atomics mode=hardened range=0x1000-0x2000 shards=2 service=memory
//
//	rules:
//	  - {id: locks, server: ms0, action: atomics, range: 0x1000-0x2000, shards: 2}
//
// The keys are in the table that Fields returns; the program prints its texts as documentation,
// too. Nothing here knows a rack: Resolve takes the function that knows the names of servers.
package rules
