// Package bytekeys lets a client of any store use byte strings as keys, where the store's own keys
// are numbers.
//
// # Two numbers for a key
//
// The hash of a key chooses a place, and a place is two numbers of the store. The even one has the
// claim: an entry that says to which key the place belongs. It is inserted once and never changed,
// so a place belongs to one key for ever. The odd one has the data: an entry with the key and its
// value, which only clients that have seen the claim of this key change. So INSERT, PUT and DELETE
// of a key are those of the store on a number that no other key uses, and are linearizable as they
// are.
//
// Keys with the same hash try the same places in the same order: a key takes the first one that is
// not claimed. A place that is not claimed therefore proves that no place behind it has the key.
//
// # Costs
//
// GET reads the data first: if that has the key, it takes one operation of the store. PUT and
// DELETE read the claim before: they take one operation more. INSERT of a new key reads claim and
// data and writes the claim before: it takes three operations more. A claim stays when its key is deleted, so the store needs room for all keys that it ever had.
//
// # Limits
//
// An entry has the key, the value and a header of up to 11 bytes; together they are one value of
// the store. Up to 16 keys may have the same hash. If a memory server loses a claim, the operations
// on its key fail with kv.ErrLost; where the store lets lost keys be inserted again, so does this
// package, and only a write that was in progress during the loss may then hit a place that another
// key with the same hash has taken. A program that uses numbers of the same store as keys may meet
// the numbers of a place. A key claims no place with such a value, and GET, INSERT and UPSERT fail
// with ErrForeign. A place that is claimed already is not protected: PUT, UPSERT and DELETE do not
// read the data before, so a store should have keys of one kind.
package bytekeys
