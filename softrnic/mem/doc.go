// Package mem is the memory side of a NIC: protection domains, registered regions and their keys,
// access checks, and the code by which the NIC reads and writes the bytes of regions.
//
// A region is memory of the caller, or of another process (Far), with a virtual address range that
// the Table chooses, except in RegZero and RegFar. Peers and work requests name memory by (key,
// virtual address, length); Local and Remote return the memory, or a Fault with the reason. A
// lookup costs a few comparisons and allocates nothing.
//
// A Table belongs to one engine and is single-threaded like it: only the engine, or a caller with
// exclusive use of the engine, may call it. Applications that share memory with peers use
// Region.ReadAt, WriteAt, Load64 and Store64 under the same condition.
//
// Real NICs write memory in cache lines while others read it; a single-threaded engine would never
// show a torn copy. SetTear lets a fault plan pause copies at 64-byte boundaries, so that programs
// meet torn copies, too.
//
// A region has two keys: the L_Key for work requests of its own host and the R_Key for peers. They
// are the same number, a permutation of the region's index, as with NICs of vendors. NewDistinct
// makes each kind by its own permutation, so that neither can be used in place of the other. A work request or a peer can invalidate only what a work request has made: a
// fast registration or the bind of a window. A region made by Reg lasts until Dereg.
//
// This package does not implement paging.
package mem
