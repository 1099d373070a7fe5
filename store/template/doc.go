// Package template is a small store to copy: a hash table in the memory of passive memory servers,
// which clients read and change by one-sided verbs alone. docs/guide/your-store.md begins with it.
//
// # Memory
//
// Every server has the same parts, and a table of its own; the hash of a key chooses the server.
//
//	superblock   64 bytes: what the memory is, a random generation, two counters
//	slots        16 bytes each: the key (plus 1), and a word with the version, a mark of deleted
//	             keys and the number of an object
//	objects      all of one length: the word of the slot that names it, key, length, checksum, value
//
// # Why it is linearizable
//
// A slot belongs to the first key that claims it, for ever: a client claims the first empty slot
// behind the place of its key by CAS, so all clients find a key in the same slot. An object is
// written before its slot names it, by a client that alone owns it. One CAS on the word changes a
// key; the client that makes it owns the replaced object from then on. A word never comes back,
// because each change increments its version: a CAS whose answer was lost can be repeated, and a
// reader knows an object of its word from one that has been written again. A PUT that loses the CAS
// has happened just before the winner's change, which no client can disprove, so it does not try
// again.
//
// A connection that replaces a failed one ends it first (memservice.Claim), so nothing that a
// client has sent earlier arrives after its next request. Clients that die leave nothing half done,
// and no client waits for them: there is no lock, no lease and no repair.
//
// # Limits
//
// A deleted key keeps its slot and an object: a table is full of all keys that it ever had. A
// client that ends keeps its spare object, and so does a CAS whose outcome stays unknown; a client
// whose first change comes when all objects are in use gets ErrFull, whatever the change. An INSERT
// or a DELETE whose connection fails during the CAS says ErrTimeout if other clients have changed
// the key meanwhile. The key 2^64-1 cannot be inserted. There is one copy of the data: what was on
// a server that crashes is lost (ErrLost) until a new table is made. There is no cache: GET takes
// two round trips, PUT three and DELETE two.
package template
