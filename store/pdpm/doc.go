// Package pdpm has pDPM-Direct, a baseline of the paper on Clover (USENIX ATC 2020): a key-value
// store without a metadata server, whose clients do everything by one-sided verbs and locks.
//
// # Memory
//
// Each memory server has the same parts; the hash of a key chooses the server.
//
//	superblock   64 bytes: what the memory is, a random generation, the lease, a count of clients
//	keys         8 bytes each: the key of an entry (plus 1), which never changes once it is there
//	entries      for each key a lock word, the copy in place, and the redo copy
//
// A copy has 16 bytes before the value: the tag of the write that made it, the length with a mark of
// deleted keys, and a checksum of these, the key and the value.
//
// # Operations
//
// A client remembers where an entry is, because that does not change. GET reads the lock word and
// the copy in place: one round trip, and another one while the checksum does not match. PUT takes
// four: CAS on the lock word (and behind it a READ of the head of the copy, which says whether the
// key exists), WRITE of the redo copy, WRITE in place, WRITE of 0 into the lock word. INSERT and
// DELETE are PUTs.
//
// # Why it is linearizable
//
// A change happens when the copy in place is whole with its tag: readers see the former copy, a torn
// one, or this one. The redo copy is whole before the copy in place is touched, so a torn copy in
// place can always be restored.
//
// A lock word is the tag of the holder: the number of the client, and a count of its locks. A client
// that sees the same tag for a lease takes the lock over: the memory server ends the connections of
// the holder (memservice.Fence), so nothing of it arrives any more; a CAS puts the own tag in place
// of the former one; then the redo copy, if it is whole and has another tag than the copy in place,
// is written in place. A holder that is only slow is refused from then on, takes another number, and
// says kv.ErrTimeout for the change that it had begun.
//
// # What differs from the paper
//
// The authors' code has no answer to a client that dies with a lock: the word is 1 for every holder,
// and others wait for ever. Tag, lease, fence and takeover are added; they cost no round trip.
// The authors' clients know all keys and where they are before they begin; here a client finds the
// entry of a key by its hash with the first operation on it, and keys can be inserted and deleted. A
// deleted key keeps its entry. The authors' readers also repeat while the lock is held, although the
// checksum matches; here they do not. There is one server of each key, as in the authors' runs
// without replication.
package pdpm
