// Package slab keeps account of the remote memory that a store gives out in places: pieces of a few
// lengths. It has no memory of its own. A metadata server uses it, or a client that takes much
// memory at a time.
//
//   - Free has the free places of one length, by memory server, in the order in which they became
//     free.
//   - Table says which class each segment of a server has. All places of a class have one length.
//     The classes share the memory: a class takes a segment when it needs places, and gives it back
//     when all places of the segment are free.
//   - Chunks are runs of unused memory that a client takes from the servers, and divides itself.
//
// # Guarantees
//
// A Free gives each place at most as often as it was put in. Of a server's places it first gives
// the one that has been free for longest. So a place rests as long as possible before it is used
// again, and a late reader more often still finds what it looks for.
//
// A segment of a Table that has had a class gets another one only after Rest and a Wake for a later
// epoch. An epoch is a step that every client confirms when it has forgotten all places that it
// knew before. Without that wait, a request for a place of the previous class could find the bytes
// of another place, which may look like the bytes that it expects.
//
// The caller writes a segment's class to the memory servers before it gives out a place of the
// segment, so that the class survives a crash of the caller. The caller also decides when no
// request can reach a place any more. The passing of time alone does not show that: see package
// lease.
//
// Lengths and offsets are in bytes, servers and segments count from 0. Nothing here blocks, and one
// thread at a time uses a value; the zero values of Free, Queue and Chunks are empty.
package slab
