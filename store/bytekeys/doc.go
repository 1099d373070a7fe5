// Package bytekeys lets a client of any store use byte strings as keys, although the store's own
// keys are numbers.
//
// # Two numbers for a key
//
// The hash of a key chooses a place. A place is two numbers of the store, which are keys there. The
// even number has the claim: an entry that says to which key the place belongs. It is inserted once
// and never changes, so a place belongs to one key for ever. The odd number has the data: an entry
// with the key and its value. Only clients that have seen this key's claim change the data. So
// INSERT, PUT and DELETE of a key are the store's operations on a number that no other key uses:
// they are linearizable if those of the store are.
//
// Keys with the same hash try the same places in the same order. A key takes the first place that
// is not claimed. So if a place is not claimed, no later place belongs to the key.
//
// # Costs
//
// A GET reads the data first. If the data has the key, the GET takes one operation of the store.
// PUT and DELETE first read the claim, which is one operation more. INSERT of a new key first reads
// claim and data and writes the claim, which is three operations more. When a key is deleted, its
// claim stays. So the store needs room for all keys that it ever had.
//
// # Limits
//
// An entry has the key, the value and a header of up to 11 bytes; together they are one value of
// the store. Up to 16 keys may have the same hash.
//
// If a memory server loses a claim, operations on its key fail with kv.ErrLost. If the store lets
// clients insert lost keys again, so does this package. Another key with the same hash may then
// take the place whose claim was lost. A write of the first key that was in progress during the
// loss may still change the data of this place afterwards. Later writes of the first key do not.
//
// If a program uses numbers as keys in the same store, a number may belong to a place. A key claims
// no place that has such a value; GET, INSERT and UPSERT fail with ErrForeign, as do PUT and DELETE
// if the value is where the claim belongs. Places that are already claimed are not protected: PUT,
// UPSERT and DELETE do not read the data first. Therefore a store should have keys of one kind
// only.
package bytekeys
