// Package sherman is a B+tree in passive memory: clients search it, change it and split its pages
// by one-sided operations alone. Writers lock pages by words in device memory of the memory
// servers' NICs (Sherman, SIGMOD 2022).
//
// With a warm index cache a search is one round trip. A write is three: compare-and-swap of the
// lock word, READ of the leaf, and one doorbell with the WRITE of the record and the WRITE that
// releases the lock. It is two when another client of the same node has handed the lock over. Each
// page names its right neighbour, so a split is complete as soon as the old page names the new one.
// The separator is put into the parent later, by the client that made the split or by a client that
// reached the page through its neighbour.
//
// A Node is the state that the clients of one machine share: the index cache, and the queues for
// locks (package lock). A Client is one thread with a queue pair to each memory server. It waits,
// by its Runtime, only for the network and for its turn at a lock.
//
// The differences from the published system, and the reasons:
//
//   - Pages are layout.Hardened by default: everything that a reader can see changes by WRITEs
//     within one line. layout.Published is the published page.
//   - The steps from FG+, the baseline of the paper, to Sherman are settings of this tree (Steps).
//   - A search that finds a record which is being written reads again (NodeConfig.LostSearch keeps
//     the published answer: not found).
//   - Fresh pages come from a FETCH_ADD on a word of the server, not from a message to a thread
//     there. A client reserves one when a page must be split, the clients of a node share what it has
//     taken, and a node takes little more than it uses: the tree is full when the bytes of its
//     servers are in use, however many clients there are.
//   - Deleted slots are reused. A hardened page without keys leaves the tree in steps that a
//     later writer can finish (layout.Stage), and its memory is reused, by any client. So does a
//     leaf with few keys, if its sibling has room for them: it is closed, its records never change
//     again, the sibling takes over copies of them with its range. The page's next incarnation has
//     another address: a reader that follows a pointer to the former incarnation begins again at
//     the root. Internal pages leave the tree only when they have one child left, the first leaf
//     stays, and the height of the tree never decreases. Pages of published trees are never merged.
//   - Locks survive their owners. A lock word names its owner, a node; the memory service knows the
//     owner of each connection. A client that has seen the same tag for longer than the lease has
//     the service end all connections of the owner (the fence), and only then swaps its own tag in:
//     no request that the owner had in flight can arrive afterwards. Formatting a tree over an
//     older one begins with the fence of all earlier owners, whose numbers are never given out
//     again. A hardened page needs no repair; the next writer that passes a split without separator
//     adds the separator. Clocks of different machines are never compared.
//   - An operation whose connection fails finds out whether it took effect: the new connection ends
//     the old one first, and then the lock word shows the outcome (see resolve). kv.ErrTimeout,
//     outcome unknown, remains for a deadline that passes and for a node that was fenced;
//     operations that had not written yet return kv.ErrNoEffect with it.
//
// Limits: a value fits into one line with its key (54 bytes). A published tree is not safe against
// clients that die, and a checksummed one is so only if a page fits into one packet. When all
// memory is in use, two deaths in the merge of one leaf can leave its keys without a write until
// another page leaves the tree or its sibling loses keys (see changer.slack). A memory server that
// loses its memory loses its pages: operations that need them end with kv.ErrLost, and with
// kv.ErrNoEffect, because the key may be in a page on another server that other clients can still
// reach.
package sherman
