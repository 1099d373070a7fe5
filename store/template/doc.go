// Package template is a small store to copy. It is a hash table in the memory of passive memory
// servers. Clients read and change it by one-sided verbs alone. docs/guide/your-store.md begins
// with it.
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
// All clients find a key in the same slot (passive.Keys). An object is written before its slot
// names it. Until then only one client owns the object. One CAS on the word changes a key. The
// client that makes the CAS then owns the replaced object.
//
// A word never has the same value again, because each change increments its version. So a CAS whose
// answer was lost can be repeated. A reader also sees by the word in an object whether the object
// was written again for another word.
//
// A PUT that loses the CAS does not try again. It counts as made just before the winner's change,
// and no client can see a difference.
//
// A connection that replaces a failed one ends that one first (memservice.Claim). So nothing that
// the client has sent earlier arrives after its next request. A client that dies leaves nothing
// half done, and no client waits for it: there is no lock, no lease and no repair.
//
// # Limits
//
// A deleted key keeps its slot and an object: a table becomes full of all keys that it ever had.
// The spare object of a client that ends is not used again, nor are the two objects of a CAS with
// an unknown outcome. A client whose first change comes when all objects are in use gets ErrFull,
// for any kind of change.
// An INSERT or a DELETE whose connection fails during the CAS returns ErrTimeout if other clients
// have changed the key meanwhile. The key 2^64-1 cannot be inserted. There is one copy of the data:
// when a server crashes, its data are lost (ErrLost) until a new table is made. There is no cache:
// GET takes two round trips, PUT three and DELETE two.
package template
