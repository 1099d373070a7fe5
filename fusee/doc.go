// Package fusee is a client of FUSEE, a key-value store whose index, log and memory management are
// in passive memory: clients search it and change it by one-sided operations alone (FUSEE, FAST
// 2023). The memory servers' processors only give out blocks (memservice.Take).
//
// The index is a hash table (package layout) whose slots are replicated by SNAPSHOT (package
// snapshot). A GET is one round trip if the client remembers where the value is, otherwise two. A PUT
// or DELETE of a key that the client remembers is four, with two replicas of the index: WRITE of the
// object with its log entry to all replicas, beside the READ of the buckets; CAS of the backups;
// WRITE of the outcome into the log entry; CAS of the primary. With one replica of the index it is
// two. A key that the client does not remember costs one more, to compare the key.
//
// The differences from the published system, and the reasons:
//
//   - Slots and objects are layout.Hardened: a slot has the version of its object, so that what a
//     client remembers is right if the slot is unchanged. Objects are not marked as invalid when they
//     are replaced: every operation reads the slot.
//   - A DELETE leaves a value that no other DELETE leaves. The published one leaves 0, and two of
//     them both win (see package snapshot). A DELETE that loses is repeated, as an INSERT is: the
//     winner may have been another DELETE.
//   - Two clients may insert one key into two slots at a time. An INSERT therefore reads the buckets
//     again, behind its CAS of the primary and in the same round trip. Until then its object is
//     pending, and the key is absent for all others; then the client marks it as valid, which is one
//     round trip more than in the paper. Of two clients that see each other the one with the slot at
//     the higher offset gives up, and the other one waits until it has done so; one that sees a valid
//     object of the key gives up with kv.ErrExists. Clients that do not see each other are not both
//     pending.
//
// # Blocks and clients that end
//
// Each block has one owner, whose number is in the block table. A client that closes leaves its blocks:
// it clears the number, and keeps in the word the length of the objects and their last version. A later
// client takes such a block over by a CAS before it asks a memory server for a fresh one; one without
// an object in use also for another length. The index says which objects are in use. The bitmap of such
// a block does not: a client may have replaced an object while the block had its former owner, and its
// FETCH_ADD may arrive when the object is in use again. There a bit only says that a sweep finds
// something (see block.hints). Frees that are lost, because their client has died or does not know
// whether they were executed, are counted in a word of server 0; owners sweep their blocks when it
// changes.
//
// No slot has the same value twice, so that a client which was hung may go on after any time: its CAS
// finds what it has read, or fails. Each use of an object has a greater version than all uses of that
// memory before. Before an object gets a version the word of its block has it, so a later owner begins
// behind it even if the object itself is torn. A block whose version is layout.MaxVersion is spent: its
// objects are not reused until the store is formatted.
//
// A client that waits for another one for Config.Lease takes it for dead, if a READ that it has begun
// after the lease shows that the other one has not gone on; Client.Recover is told of a dead one. The
// memory servers end all connections of its number, then its blocks are taken over and each object is
// looked up in all replicas of the index. The paper's points of a death show there:
//
//	c0  the object is not whole, or no replica names it: it is free
//	c1  a backup names it, the primary has another value: the CASes are made once more, by the rules of
//	    SNAPSHOT; either the dead client's change wins now, or another one does
//	c2  all backups name it, the primary does not: the same, and it wins
//	c3  the primary names it: nothing, but an INSERT that is pending is withdrawn
//
// A client that was only slow finds that its number has ended. If its operation has changed nothing, that
// begins again with another number; otherwise it ends with kv.ErrTimeout, and the next one takes a number.
//
// # Memory servers that crash
//
// A Master changes the members of the store (layout.View) when a memory server has crashed: one that has
// not answered for its lease, or whose memory is another incarnation. A master that was hung begins the
// leases again. A new master fences the number of the former one, and each view replaces the one that was
// read by CAS: so a former master that goes on changes nothing. The servers that remain get a view
// that is being prepared, and end all connections but those of the master; a client reads the view on each
// new connection before it sends anything else. The master waits until no client uses the old view (see
// viewLease), makes the replicas of the index alike (see repair), and settles the view. An operation that
// was in flight finds out what has become of it (see changer.resolve), and goes on or is repeated. The
// blocks of a server that was lost are not used any more; their objects are read in other replicas.
//
// Once a store has a master, an INSERT with several replicas of objects takes one round trip more: its
// object becomes valid in the first replica last, so that no client sees what could be lost with it.
//
// A client of a store with a master shows that it is alive (see pulse). The master recovers those that own
// blocks and are silent for Config.ClientLease.
//
// # The index grows
//
// The directory has a word for each subtable: its local depth d, and whether it is being split. A split
// moves the keys whose prefixes have bit d to the twin, the subtable whose number has this bit as well,
// at the same places. All slots of the twin are 0 before, which no slot is again once it was used. Any
// number of clients may work on a split, and none of them is its owner: each word that they change goes
// by CAS from a value that never comes back to one that is the same for all of them, so a client that
// dies or is late leaves nothing behind that others could not go on with. An INSERT that leaves few
// empty slots in the buckets of its key begins a split; all clients that insert keys into that subtable
// work on it, some round trips in each of their operations that change keys.
//
//	directory      depth d               -> d, being split  -> d + 1
//	bucket header  open: d               -> moving: d + 1   -> settled: d + 1
//	slot of a key  names its object      -> leaving         -> empty
//	slot of twin   0                                     -> names the object
//
// The backups change before the primary. The steps for a group of buckets:
//
//	flip    the headers become moving, and behind that the slots are read. An INSERT of a key that moves
//	        reads the headers again behind its CAS, and withdraws its object if its bucket is not open.
//	        So the keys that were read are all that have to be moved.
//	inspect the objects say which keys move, and by their versions that they are those of the slots. A
//	        key that remains is not looked at again: its clients change the slot as they like. A pending
//	        object is waited for: its client shows it, and then it is moved, or withdraws it.
//	vacate  a slot becomes leaving, by the rules of SNAPSHOT like any change: an UPDATE or DELETE wins
//	        against it or loses to it. The value still says which object it has named.
//	plant   the twin's slot becomes that of the object, by CAS from 0.
//	clean   the leaving slot becomes empty: a later split of the subtable has another twin.
//	settle  the headers become settled. When all groups are, the directory says so.
//
// While a subtable is being split a client reads the buckets of both subtables in one round trip, those
// of the twin behind the others. A slot of the twin that is not 0 counts, and the same place of the
// subtable does not; a leaving slot whose twin is 0 is read again, and after three tries the client plants
// it itself. A PUT of a key whose bucket is moving moves the key: it makes the slot leaving, with its own
// object in place of the old one, and plants that. So PUTs without pause do not hold a split up. Until it
// has won, only its own client carries such a change on, as that of any other PUT. A client whose copy of
// the directory is old finds other headers than it expects. It knows then that a split has begun, or reads
// the words of the subtables in which the key can be. A PUT that loses takes effect immediately before
// the winner, but not if the winner is a mover: then it is repeated. The client reads the header of the
// bucket once more, which shows moving before a move begins; while it shows moving, a slot that leaves
// with another object than the PUT has read was changed by a PUT. Sweeps read as clients do, and
// count a leaving slot as one that names its object. A recovery reads all subtables in which the key has
// ever been: a client that was hung may insert a key long after a split, pending, and die.
//
// Operations help with a split behind their own work, with at most 10 round trips in all; an INSERT that
// leaves almost no empty slot in its buckets spends these, others 4 on the split. So a split ends
// before buckets are full, unless keys are chosen that share buckets. An INSERT whose buckets are full works on
// the split until its own buckets are settled. If they are, and full again, it completes the split of the
// subtable: only then it may pause for longer. If there is no room for a further
// subtable the INSERT ends with kv.ErrFull. A store that can grow has no master.
//
// An index that grows has at most 3 replicas. All clients that vacate a slot write the same value, and
// SNAPSHOT is meant for writers with different values: with 3 or more backups, one that wins by the
// majority may still swap a backup when another client has changed the slot again, and the replicas
// differ. With 1 or 2 backups a majority is all of them (TestWritersOfOneValue tries all orders).
//
// # What it does not survive yet
//
// A server that was lost does not become a member again. Two masters that are separated from each other, and
// each from other servers, are not kept from going on both. Two masters that begin at a time may end each
// other. Numbers of masters are those of clients: a master that begins while the primary is absent may have
// the number of a client. A client that dies
// while no other waits for it, and without a master, keeps its blocks until a program calls Recover or
// RecoverAll. Without a master, a memory server that restarts ends the store (kv.ErrLost), and so does the loss of the last
// replica of the index, or of any object.
package fusee
