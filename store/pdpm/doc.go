// Package pdpm has the two stores with which the paper on Clover (USENIX ATC 2020) compares Clover.
// pDPM-Direct is a key-value store without a metadata server. Its clients use one-sided verbs and
// locks only. In pDPM-Central, clients send each operation to a coordinator, which alone reads and
// writes the memory. Both stores have the same entries in the memory of the servers.
//
// # Memory
//
// Each memory server has the same parts; the hash of a key chooses the server.
//
//	superblock   64 bytes: what the memory is, a random generation, the lease, a count of clients
//	keys         8 bytes each: the key of an entry (plus 1), which never changes once it is there
//	entries      for each key a lock word, the copy in place, and the redo copy
//
// A copy has 16 bytes before the value: the tag of the write that made it, the length with a mark
// of deleted keys, and a checksum of these, the key and the value. A copy is whole if its checksum
// matches, and torn if not.
//
// # pDPM-Direct: operations
//
// A client remembers where an entry is, because that does not change. GET reads the lock word and
// the copy in place in one round trip. It reads again while the checksum does not match. PUT takes
// four round trips:
//
//   - a CAS on the lock word, and behind it a READ of the head of the copy, which says whether the
//     key exists
//   - a WRITE of the redo copy
//   - a WRITE of the copy in place
//   - a WRITE of 0 into the lock word
//
// INSERT and DELETE take the same steps.
//
// # pDPM-Direct: why it is linearizable
//
// A change happens when the copy in place is whole and has the tag of the change. Before that,
// readers see the previous copy or a torn one. The redo copy is whole before the copy in place is
// touched, so a torn copy in place can always be restored.
//
// A lock word is the tag of its holder: the client's number and the count of its locks. If a client
// sees the same tag for the time of a lease, it takes the lock over:
//
//   - The memory server ends the connections of the holder (memservice.Fence), so none of its
//     requests arrives later.
//   - A CAS replaces the holder's tag by the client's own.
//   - If the redo copy is whole and has another tag than the copy in place, the client writes it in
//     place.
//
// A holder that was only slow is refused from then on. It takes another number, and returns
// kv.ErrTimeout for the change that it had begun.
//
// # pDPM-Direct: what differs from the paper
//
// In the authors' code a client that dies with a lock blocks all others for ever, because the lock
// word is 1 for every holder. Tag, lease, fence and takeover are added here. They cost no round
// trip.
//
// The authors' clients know all keys and their places before they begin. Here a client finds the
// entry of a key by the key's hash at the first operation, and keys can be inserted and deleted. A
// deleted key keeps its entry.
//
// The authors' readers also read again while the lock is held, although the checksum matches. Here
// they do not.
//
// Each key is on one server, as in the authors' runs without replication.
//
// # pDPM-Central: operations
//
// A client makes one call (message.go), and a thread of the coordinator executes it. The
// coordinator has an index of all keys in its own memory: the entry of each key, which of its two
// copies counts, and the version of that copy. The version is stored where pDPM-Direct stores the
// tag. GET reads the copy that counts. PUT, INSERT and DELETE write the copy that does not count,
// and then make the index name it. So each operation takes two round trips: one of the client and
// one of the coordinator. Lock words and redo copies are not needed, because the coordinator itself
// never executes two changes of a key at once.
//
// # pDPM-Central: why it is linearizable
//
// A change happens when the index names its copy. A GET returns a copy only if it is whole and has
// the version that the index had when the GET looked there. Otherwise two further changes came
// meanwhile, and the GET looks again. A WRITE that was not acknowledged in time may still arrive.
// So the coordinator makes the memory server end the connection of that WRITE before another change
// of the key writes the same copy (handler.settle).
//
// A new coordinator puts its number into the superblocks. Each memory server ends the connections
// of the earlier coordinator. Then the new coordinator reads all entries. Of the two copies of an
// entry, the whole one with the greater version counts. So a change that the earlier coordinator
// has answered is kept. A change that it has not answered may take effect now.
//
// The earlier coordinator may continue after a pause. Before it answers from its index, it confirms
// the answer by a READ, which the memory server refuses. If a memory server has restarted and
// forgotten whom it fenced, the coordinator sees the other number in the superblock on the new
// connection.
//
// A client repeats GETs, and changes that no coordinator has received. If the connection ends
// before the answer to a change has come, the outcome is unknown (kv.ErrTimeout).
//
// # pDPM-Central: what differs from the authors' code
//
// The authors' coordinator also writes a spare copy without a lock, so two PUTs of a key may write
// it at once. In their code the step that makes the index name the new copy is commented out, so no
// GET ever finds the value of a PUT. Their GETs take a lock of the coordinator; ours compare
// versions. Their index is lost with the coordinator. Their workers take requests in batches from a
// buffer that clients write; here each client has a thread, which receives its SENDs. Here keys can
// be inserted and deleted.
package pdpm
