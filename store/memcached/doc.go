// Package memcached serves memcached's text protocol (package text) over TCP, in front of a table
// whose keys are numbers.
//
// # Items
//
// An item is one value of the table: a kind, the length of the key, the client's flags, the key,
// the data. Its number is the hash of the key. So a client of the table, for example one over RDMA,
// can read an item by the function Get without the server's process. The key in the item shows
// whether it is the right item. Of two keys with the same hash, or with the same fingerprint in the
// table, only one is stored: a command that would store the second one is refused with text.NoRoom.
// A value that is no item is never changed.
//
// # What differs from memcached
//
// Nothing is evicted: a full table refuses new keys with text.NoRoom. Nothing expires, because the
// server could not hide an expired item from clients that read it without the server's process. A
// command that would store an item with a future exptime is refused. A command whose exptime has
// passed is answered STORED and removes the item, as if the item had expired at once. (Clients use
// such an add to find out whether an item exists.) A set that is refused does not change the item
// that is there. The unique number of gets and cas is the version of the item in the table.
//
// # Order
//
// One command reads and changes its item at once: Table.Update excludes all other changes. Commands
// of one connection are executed in the order in which they came.
package memcached
