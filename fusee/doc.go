// Package fusee is a client of FUSEE, a key-value store whose index, log and memory management are
// in passive memory (FUSEE, FAST 2023). Clients search and change the store by one-sided operations
// alone. The memory servers' processors only give out blocks, the units of memory for objects
// (memservice.Take).
//
// The index is a hash table (package layout) whose slots are replicated by SNAPSHOT (package
// snapshot). A GET takes one round trip if the client remembers where the value is, otherwise two.
// With two replicas of the index, a PUT or DELETE of a key that the client remembers takes four
// round trips:
//
//  1. WRITE of the object with its log entry to all replicas, and READ of the buckets;
//  2. CAS of the backups;
//  3. WRITE of the outcome into the log entry;
//  4. CAS of the primary.
//
// With one replica of the index it takes two. If the client does not remember the key, it takes one
// more, to compare the key.
//
// The store differs from the published system in these points:
//
//   - Slots and objects are layout.Hardened. A slot has the version of its object, so what a client
//     remembers is right as long as the slot is unchanged. Clients do not mark replaced objects as
//     invalid, because every operation reads the slot.
//   - A DELETE leaves a value in the slot that no other DELETE leaves. The published DELETE leaves
//     0, and of two DELETEs both win (see package snapshot). A DELETE that loses is repeated, like
//     an INSERT: the winner may have been another DELETE.
//   - Two clients may insert one key into two slots at the same time. Therefore an INSERT reads the
//     buckets again after its CAS of the primary, in the same round trip. Until then its object is
//     pending, and the key is absent for all other clients. Then the client marks the object as
//     valid, which takes one round trip more than in the paper. Two clients may see each other's
//     pending object. Then the client whose slot is at the higher place in its subtable withdraws
//     its object, and the other client waits for that. A client that sees a valid object of the key
//     withdraws its own object and returns kv.ErrExists. While both objects are pending, at least
//     one of the two clients sees the other's object.
//
// # Blocks and clients that end
//
// Each block has one owner, whose client number is in the block's word in the block table. When a
// client closes, it leaves its blocks: it clears the number, and keeps the length of the objects
// and their greatest version in the word. Before a client asks a memory server for a fresh block,
// it takes over a block that was left, by a CAS. If no object in the block is in use, it may choose
// another length of objects. A client that has got a fresh block requests the next one while it
// still has free objects (Config.Ahead): a request opens a connection, which takes as long as 30
// round trips.
//
// The index says which objects of a taken-over block are in use. The bitmap of the block does not:
// a client may have replaced an object while the block had its former owner, and its FETCH_ADD on
// the bitmap may arrive when the object is in use again. In such a block a bit only shows that a
// sweep may find free objects (see block.hints). A sweep looks up the keys of the block's objects
// in the index. Frees can be lost, because a client has died or does not know whether they were
// executed. Clients count such cases in a word on the server with the primary (layout.DoubtWord),
// and owners sweep their blocks when the word changes.
//
// No slot has the same value twice. So a client that was hung may go on at any later time: its CAS
// succeeds only if the slot is unchanged since the client has read it. Each use of an object has a
// greater version than all earlier uses of that memory. The word of the block has a version before
// an object gets it, so a later owner begins after it even if the object itself is torn. When the
// version of a block has reached layout.MaxVersion, its objects are not reused until the store is
// formatted again.
//
// Client A takes client B for dead if A has waited for B for Config.Lease, and a READ that A has
// begun after this time shows no progress of B. Client.Recover does the same for a client that the
// caller knows to be dead. The memory servers end all connections of B's number. Then A takes over
// B's blocks, and looks up each of their objects in all replicas of the index. The paper's crash
// points show there as follows:
//
//	c0  The object is not complete, or no replica names it: it is free.
//	c1  A backup names it, and the primary has another value: the CASes are repeated by the
//	    rules of SNAPSHOT, and either the dead client's change wins or another one.
//	c2  All backups name it, and the primary does not: the same, but the dead client's change
//	    wins.
//	c3  The primary names it: nothing is done, but a pending INSERT is withdrawn.
//
// A client that was only slow finds that its number has ended. If its operation has not changed
// anything, the client takes a new number and repeats the operation. Otherwise the operation ends
// with kv.ErrTimeout, and the next operation takes a new number.
//
// # Memory servers that crash
//
// A Master changes the members of the store (layout.View) when a memory server has crashed: the
// server has not answered for the master's lease, or its memory is another incarnation. If the
// master itself was hung, it begins all leases again. A new master fences the client number of the
// former one: the servers execute no later request of it. A master replaces a view only by a CAS
// from the view that it has read. So a former master that goes on changes nothing.
//
// First the remaining servers get a view in preparation, and end all connections except those of
// the master. A client reads the view on each new connection before it sends anything else. The
// master waits until no client uses the old view (see viewLease), makes the replicas of the index
// equal (see repair), and settles the view: it writes the view in the state Settled. An operation
// that was in flight finds out what has become of it (see changer.resolve), and goes on or is
// repeated. No client uses the blocks of a lost server; their objects are read from other replicas.
//
// In a store with a master, an INSERT with several replicas of objects takes one round trip more.
// Its object becomes valid in the first replica last, so that no client sees an object that could
// be lost together with that replica.
//
// # Memory servers that come back
//
// When a server answers again, with or without its old memory, the master fills it (copies all data
// to it that it must have) and makes it a member again. Clients are at work until the last step,
// which is a change of the members (see above):
//
//   - The master claims the server. One READ shows the server's view and its master: a server on
//     which another master has made a later view, or a view without any present member, is left as
//     it is. The master sets the server's view to 0, has the server end all connections, and clears
//     its memory in slices (Master.clearSome).
//   - The master prepares a view without the server, and makes the replicas of the index alike. It
//     copies the index to the server, and the blocks of which the server has a replica
//     (Master.fill). Meanwhile it shows its standby that it is alive. If the master dies here, the
//     former members have all data.
//   - The master settles a view with the server: first on the former members, on the server last. A
//     client uses a view when all its members have it. If the server fails before the end, the
//     members are the former ones, and the master waits before it tries again, each time twice as
//     long.
//
// The block table of such a server was lost. The other servers with replicas of a block's objects
// have a copy of the block's word, with the length of the objects and the version. A client changes
// the copies in the same batch as the word, before an object gets a version that they do not have.
// After the fill no block of the server has an owner, and clients take the blocks over like other
// blocks that were left. A word on the server says in which epoch the server has joined. A client
// that has missed views drops its blocks there, and marks no object in them.
//
// A client takes another incarnation of a server for a member only if that incarnation has a later
// view of the same store. If a member is silent, the client also asks the servers that were no
// members, because they may be members now.
//
// A Standby takes the master's place when the master is silent. The comment of Standby explains why
// two masters never change the store at the same time.
//
// A client of a store with a master shows that it is alive (see pulse). The master recovers clients
// that own blocks and have been silent for Config.ClientLease.
//
// # The index grows
//
// The directory has a word for each subtable: its local depth d, and whether the subtable is being
// split. A split moves keys to the subtable's twin: the keys whose prefixes have a 1 in bit d. The
// number of the twin is the number of the subtable, with a 1 in bit d. A key has the same place in
// both. All slots of the twin are 0 before the split; a slot that was ever used is never 0 again.
//
// Any number of clients may work on a split, and none of them owns it. They change each word by a
// CAS. The value that the CAS expects never occurs again after the change, and the new value is the
// same for all clients. So if a client dies or is late, the other clients can go on. An INSERT that
// leaves few empty slots in the buckets of its key begins a split. Each client that inserts a key
// into that subtable joins the split, and then works on it for some round trips in each of its
// operations that change keys. The words change like this:
//
//	directory      depth d               -> d, being split  -> d + 1
//	bucket header  open: d               -> moving: d + 1   -> settled: d + 1
//	slot of a key  names its object      -> leaving         -> empty
//	slot of twin   0                                     -> names the object
//
// The backups change before the primary. A group of buckets goes through these steps:
//
//	flip    The headers become moving; after that the slots are read. An INSERT of a key that
//	        moves reads the headers again after its CAS. If its bucket is not open, it puts its
//	        object, which is pending, into the same place of the twin, and empties the first
//	        slot at the same time. So the keys that were read are all that must be moved.
//	inspect The objects say which keys move. Their versions show that they are those of the slots.
//	        A key that stays is not looked at again: clients change its slot as they like. If an
//	        object is pending, the split waits until its client marks it as valid, and then moves
//	        it, or until its client withdraws it.
//	vacate  A slot becomes leaving, by the rules of SNAPSHOT like any change: an UPDATE or DELETE
//	        wins against it or loses to it. The value still says which object the slot has named.
//	plant   The twin's slot gets the value for the object, by a CAS from 0.
//	clean   The leaving slot becomes empty, because a later split of the subtable has another
//	        twin.
//	settle  The headers become settled. When all groups are settled, the directory says so.
//
// While a subtable is being split, a client reads the buckets of both subtables in one round trip,
// those of the twin after the others. If a slot of the twin is not 0, it counts, and the slot at
// the same place of the subtable does not. If a slot is leaving and the twin's is 0, the key has
// the value of the object that the slot has named. The client reads the keys of such objects. To
// change such a key, it plants the key itself. It also does so if its change has lost to the client
// that moves the key. It does not wait for that client: the backups have the leaving value, so it
// swaps the primary itself. Then it changes the slot of the twin, with the object that it has
// already written. If the slot of the subtable is empty already, the key has moved, or an INSERT
// has put its object elsewhere. Then the client plants nothing, and reads the twin.
//
// A PUT of a key in a moving bucket moves the key: it makes the slot leaving, with its own object
// in place of the old one, and plants that object. So PUTs without pause do not delay a split.
// Until the PUT has won, only its own client can complete it, as with any PUT.
//
// If a client's copy of the directory is old, the client finds unexpected headers. Then it knows
// that a split has begun, or it reads the words of all subtables that may have the key. If the
// split leaves the key where it is, the client need not read the twin.
//
// A PUT that loses takes effect immediately before the winner, but not if the winner only moves the
// key: then the PUT is repeated. To find out, the client reads the header of the bucket after the
// primary. A split marks the header as moving before it moves a key, and moves a key only once. If
// the header has not changed since the PUT read the slot, and the slot is leaving with another
// object than the PUT has read, another PUT has changed the slot. If the header has changed, but no
// split that it shows moves the key, a PUT or DELETE has changed the slot.
//
// Sweeps read as clients do, and count a leaving slot as one that names its object. A recovery
// reads all subtables in which the key has ever been: a client that was hung may insert a key long
// after a split, as pending, and die.
//
// Operations help with a split after their own work, so that a split ends before buckets are full,
// unless keys are chosen that share buckets. An operation spends up to 4 round trips on the split,
// and at most 10 in all, which include getting a block and beginning a split. An INSERT that leaves
// almost no empty slot in its buckets uses all 10. An INSERT whose buckets are full works on the
// split until its own buckets are settled. If they are settled and full again, it completes the
// split of the subtable. Only such an INSERT may take longer. If there is no room for another
// subtable, the INSERT ends with kv.ErrFull.
//
// When a master changes the members in the middle of a split, its repair needs no knowledge of
// splits. Each step of a split begins after the previous step is in the primary, and so in all
// backups. So the value that the rules choose for a word is the value of the primary, or the value
// of a step that was allowed then. A client that works on the split begins its groups again. A
// client whose PUT or DELETE was in flight may find that a split has moved the key since: the value
// of a leaving slot, and of a slot that a key has left, says whether the split has moved the new
// object or the old one. If the slot has another value, the header says whether a split can have
// moved the key; if it can, the outcome is unknown.
//
// An index that grows has at most 3 replicas. All clients that vacate a slot write the same value,
// but SNAPSHOT is meant for writers with different values. With 3 or more backups, a client that
// wins by the majority may still swap a backup after another client has changed the slot again, so
// that the replicas differ. With 1 or 2 backups, a majority is all of them (TestWritersOfOneValue
// tries all orders).
//
// # What it does not survive yet
//
// If two masters, neither of which is the standby of the other, are separated from each other, and
// each from some servers, both may go on. Two masters that begin at the same time may end each
// other. Masters and clients share one sequence of numbers: a master that begins while the primary
// is absent may get the number of a client.
//
// Without a master, a client that dies keeps its blocks until another client waits for it, or a
// program calls Recover or RecoverAll. Without a master, the restart of a memory server ends the
// store (kv.ErrLost). The loss of the last replica of the index or of any object ends the store in
// any case.
package fusee
