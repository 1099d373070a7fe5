// Package pdpm has the two baselines of the paper on Clover (USENIX ATC 2020): pDPM-Direct, a
// key-value store without a metadata server, whose clients do everything by one-sided verbs and
// locks; and pDPM-Central, whose clients send each operation to a coordinator, which alone reads and
// writes the memory. They have the same entries in the memory of the servers.
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
// # pDPM-Direct: operations
//
// A client remembers where an entry is, because that does not change. GET reads the lock word and
// the copy in place: one round trip, and another one while the checksum does not match. PUT takes
// four: CAS on the lock word (and behind it a READ of the head of the copy, which says whether the
// key exists), WRITE of the redo copy, WRITE in place, WRITE of 0 into the lock word. INSERT and
// DELETE are PUTs.
//
// # pDPM-Direct: why it is linearizable
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
// # pDPM-Direct: what differs from the paper
//
// The authors' code has no answer to a client that dies with a lock: the word is 1 for every holder,
// and others wait for ever. Tag, lease, fence and takeover are added; they cost no round trip.
// The authors' clients know all keys and where they are before they begin; here a client finds the
// entry of a key by its hash with the first operation on it, and keys can be inserted and deleted. A
// deleted key keeps its entry. The authors' readers also repeat while the lock is held, although the
// checksum matches; here they do not. There is one server of each key, as in the authors' runs
// without replication.
//
// # pDPM-Central: operations
//
// A client makes one call (message.go), which a thread of the coordinator executes. The coordinator
// has an index of all keys in its own memory: the entry of each, which of its two copies counts, and
// the version of that copy, which stands in place of a tag. GET reads that copy. PUT, INSERT and
// DELETE write the other copy, and then have the index name it. So both take two round trips, one of
// the client and one of the coordinator. The lock words and the redo copies of pDPM-Direct are not
// needed: the coordinator excludes two changes of a key itself.
//
// # pDPM-Central: why it is linearizable
//
// A change happens when the index names its copy. A GET answers only a copy that is whole and has the
// version that the index had when the GET looked; after two further changes it looks again. A WRITE
// that was not acknowledged in time may still arrive: the coordinator ends its connection at the
// memory server before another change of the key writes the same copy (handler.settle).
//
// A new coordinator puts its number into the superblocks and has each memory server end the
// connections of the one before; then it reads all entries, and of the two copies of each the whole
// one with the greater version counts. So a change that the former one has answered is kept, and one
// that it has not may happen then. A former coordinator that goes on after a hang answers nothing of
// its index that it has not confirmed by a READ, which is refused; if a memory server has restarted
// and forgotten the fence, the number in the superblock says the same on the new connection.
//
// A client repeats GETs, and changes that no coordinator has received. If the connection ends before
// the answer to a change came, the outcome is unknown (kv.ErrTimeout).
//
// # pDPM-Central: what differs from the authors' code
//
// Theirs also writes a spare copy, under no lock, so that two PUTs of a key may write it at once;
// the step that has the index name it is commented out, so that no GET ever finds the value of a
// PUT. Their GETs take a lock of the coordinator, ours compare versions. Their index is lost with
// the coordinator. Their workers take requests in batches, from a buffer that clients write; here
// each client has a thread, which receives its SENDs. Keys are inserted and deleted.
package pdpm
