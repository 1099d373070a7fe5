// Package mem is the memory side of a NIC: protection domains, registered regions and their keys, access checks,
// and the only place where bytes of a region move.
//
// A region is memory of the caller plus a virtual address range that the Table chose. Peers and work requests
// name memory by (key, virtual address, length); Local and Remote turn that into a slice, or say in a Fault why
// not. Lookups cost a few comparisons and allocate nothing.
//
// A Table belongs to one engine and is as single-threaded as that: whoever calls it must be the engine or hold
// the engine's lock. Applications that share memory with peers go through Region.ReadAt, WriteAt, Load64 and
// Store64 under the same lock.
//
// Real NICs write memory in cache lines while other readers look; a single-threaded engine would never show a
// half-done copy. SetTear lets a fault plan pause copies at 64-byte boundaries, so that readers must cope.
//
// What this package does not do: paging, fast registration, memory windows of type 1.
package mem
