// Package hopscotch is the hash table whose lookups a NIC executes (RedN, NSDI 2022, section 5.2).
// A key has 48 bits, what one CAS of a program compares, and is not 0. A bucket has the key and the
// address of the value; the values are in an area of their own. A client computes from the key
// alone in which buckets it may be (Shape.Buckets), and sends their addresses (Shape.AppendRequest).
// A redn.Lookup or a redn.LookupServer probes them.
//
// # Hash
//
// mix is the finalizer of SplitMix64: x ^= x>>30, x *= 0xbf58476d1ce4e5b9, x ^= x>>27, x *=
// 0x94d049bb133111eb, x ^= x>>31. Hash i of key x, from 0 on, is the high word of the product of
// mix(x + (i+1)*0x9e3779b97f4a7c15) and the number of home buckets, modulo 2^64 inside mix. Home
// buckets are all but the last Neighbourhood-1, so no neighbourhood wraps around. A key may be in
// the Neighbourhood buckets from each of its home buckets on. Two hashes with a neighbourhood of 1
// are the paper's two buckets, which fill to about a half; a neighbourhood of 2 (4 probes) fills
// to more than 0.9 with Table.Wait, and to some 0.65 without. One hash with a neighbourhood of 6 is the table that FaRM's clients READ.
//
// # Lookups during changes
//
// One goroutine of the server changes the table while the NIC reads it. Each change is one copy
// of a bucket, which lies in one line of 64 bytes: a READ gets its old or its new content. A value is
// written before a bucket has its address. An entry that makes room (hopping) is copied to its
// new bucket before another entry takes the old one. If lookups probe the new bucket earlier, the
// table calls Table.Wait in between. So a lookup that probes in the order of Buckets finds every
// key at any time, once or twice. Probes in parallel have no order: a lookup beside a hop may find nothing.
//
// A lookup may still send a value after its key was deleted or got another value. So the place of
// this value is not used again before Table.Reclaim: its caller knows that all lookups that
// began before have ended. Without this no check on the server's side can keep a lookup from
// answering with the value of another key.
//
// The package is sans-I/O. It has no lock: its caller makes changes one after another.
package hopscotch
