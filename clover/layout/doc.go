// Package layout describes Clover's remote memory byte for byte: pointer words, nodes, slab
// classes, shortcuts, and how to compute a server and an address from a handle. The store and the
// switch's steering program both import it, so that neither depends on the other.
//
// A memory server's region has five parts:
//
//	superblock   64 bytes: magic, format, generation of the memory, sizes
//	shortcuts    8 bytes each: a location near the end of a key's chain
//	directory    16 bytes each: key and location, for a metadata server that has restarted
//	table        if the classes share the memory: one byte for each segment, its class
//	slabs        nodes of 128 to 32768 bytes. Either each class has a fixed part, as in the
//	             published system, or the memory is divided into segments of usually 32768 bytes.
//	             A segment has nodes of one class, and can get another class later
//
// If the nodes of a store have several copies, each key has as many records in the directory, on
// different servers. If the store has a further server, that server has a mirror of the record,
// which shows which key is lost if all copies of the record are lost. Behind its own table and
// slabs, each server has the copies of the tables and slabs of the servers before it.
//
// The versions of a key's value are a chain of nodes. The first word of each node, its header,
// names its successor; the header of the newest node names none. A client appends a node by writing
// it and then swapping its location into the header of the newest node (§4.1 of "Disaggregating
// Persistent Memory and Controlling Them Remotely", USENIX ATC 2020).
//
// The package does no I/O and reaches no remote memory. A Word is a number here; remote memory
// holds it in little-endian byte order.
package layout
