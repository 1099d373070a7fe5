// Package layout is what Clover keeps in remote memory, byte for byte: pointer words, nodes, slab classes, shortcuts,
// and the arithmetic that leads from a handle to a server and an address. The store and the switch's steering program
// both build on it, so that neither needs to know the other.
//
// A memory server's region has four parts:
//
//	superblock   64 bytes: magic, format, boot generation, sizes
//	shortcuts    8 bytes each: a location near the end of a key's chain
//	directory    16 bytes each: key and location, for a metadata server that lost its memory
//	slabs        per class, one after the other: nodes of 128 to 32768 bytes
//
// The versions of a key are a chain of nodes: each node's first word, its header, names its successor; that of the newest
// names none. A client appends by writing a node and swapping its pointer into the header of the newest (Clover §4.1 of the
// paper "Disaggregating Persistent Memory and Controlling Them Remotely", USENIX ATC 2020).
//
// The package is arithmetic: it does no I/O and moves no remote bytes. Words are numbers here; in memory they stand
// in the byte order of the memory server, little endian.
package layout
