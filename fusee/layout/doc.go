// Package layout describes FUSEE's remote memory byte for byte: slots and buckets of the hash
// index, its directory, objects with their log entries, blocks with their bitmaps, and the offsets
// of all these parts in a memory server (FUSEE, FAST 2023; the index is that of RACE hashing,
// USENIX ATC 2021). It does no I/O: callers read and write remote memory and pass the bytes.
//
// The region of each memory server has these parts:
//
//	superblock   64 bytes: magic, format, arrangement, generation
//	words        64 bytes: counters, the view of the members, signs of life of master and standby
//	directory    a word for each subtable: its local depth, and whether it is being split
//	subtables    groups of three buckets of 64 bytes: main, overflow, main
//	block tables one for each area: a word for each block, with owner, size of objects and version
//	areas        blocks of objects; one area for each replica
//	leases       words by which clients show that they are alive
//
// Replica i of the index is on server i; all replicas have the same bytes at the same offsets. The
// first replica of an object is in area 0 of its server. Replica j is at the same offset in area j
// of the server whose number is greater by j, modulo the number of servers. So a slot that names
// the first replica names all of them.
//
// A key's hash chooses a subtable, through the directory, and two combined buckets in it. A
// combined bucket is a main bucket and the overflow bucket next to it: 128 bytes, which one READ
// fetches. Each bucket has the local depth and the prefix of its subtable. So a client whose copy
// of the directory is older than a split sees that the bucket does not belong to its key. All
// subtables have the same arrangement, so a split moves a key to the same place in another
// subtable.
//
// There are two formats:
//
//   - Hardened, the default. A slot has the version of its object: 20 bits that grow with each use
//     of the object's memory and never return (see BlockUse). So a slot never has the same value
//     twice, and neither a CAS nor a reader mistakes a later use for an earlier one. A slot is empty
//     if its length is 0, whatever else is in it: a DELETE leaves a value that no other DELETE
//     leaves, which SNAPSHOT replication needs. The checksum of an object covers its key, its value
//     and its version. The outcome in a log entry has a checksum, too, so it differs from no
//     outcome even if the old value was 0. Subtables do not overlap.
//   - Published, the bytes of the public code. A slot has the address in units of 256 bytes, and is
//     0 if it is empty. The checksum in a log entry is a constant. The mask that frees an object is
//     shifted as a number of 32 bits. The distance of subtables is the length of their main buckets
//     alone, so that each subtable overlaps the next one.
package layout
