// Package sherman is a B+tree in passive memory. Clients search it, change it and split its pages
// by one-sided operations alone. Writers lock pages through words in device memory of the memory
// servers' NICs (Sherman, SIGMOD 2022).
//
// With a warm index cache a search takes one round trip. A write takes three: the compare-and-swap
// of the lock word, the READ of the leaf, and one doorbell with the WRITE of the record and the
// WRITE that releases the lock. It takes two if another client of the same node has handed the lock
// over. Each page names its right neighbour, so a split is complete as soon as the old page names
// the new one. The separator is added to the parent later, by the client that made the split or by
// a client that reached the new page through its neighbour.
//
// A Node is the state that the clients of one machine share: the index cache and the queues for
// locks (package lock). A Client is one thread with a queue pair to each memory server. A client
// waits only for the network and for its turn at a lock, through its Runtime.
//
// The tree differs from the published system in these points:
//
//   - Pages are layout.Hardened by default: everything that a reader can see changes by WRITEs
//     within one line. layout.Published is the published page.
//   - The steps from FG+, the baseline of the paper, to Sherman are settings of this tree (Steps).
//   - A search that finds a record which is being written reads the page again. With
//     NodeConfig.LostSearch it returns the published answer: not found.
//   - Fresh pages come from a FETCH_ADD on a word of the server, not from a message to a thread
//     there. A client reserves a page when it must split one. The clients of a node share the
//     memory that the node has taken, and a node takes little more than it uses. So the tree is
//     full only when nearly all bytes of its servers are in use, however many clients there are.
//   - A split halves a page, but at the ends of the range of all keys it moves only the records
//     near the new one (layout.Edit.SplitFor; Hardened only). So keys that come in order fill the pages
//     that they leave behind.
//   - Before a hardened tree is full, a full leaf gives records to a neighbour that has room, up to
//     64 leaves away. To the right, the leaf is closed with a cut, its sibling takes over the range
//     from there on, and the leaf is opened again and ends there (layout.Edit.Cede): steps that a later
//     writer can finish, as those of a merge. To the left, where the ends of ranges must not move,
//     the leaf is split and its lower part merged with the left neighbour; each server keeps one
//     unused page for that. So a client that inserts keys in random order fills about 95 % of the
//     slots of all leaves. If several clients make room at the same time, one of them may get
//     ErrFull at 90 %, because other clients use the room or the unused page first; a later insert
//     may succeed. In a full tree ErrFull takes some hundred round trips, and a shorter deadline
//     ends as a timeout.
//   - Deleted slots are reused. A hardened page without keys leaves the tree in steps that a later
//     writer can finish (layout.Stage), and any client can reuse its memory. A leaf with few keys
//     leaves the tree, too, if its sibling has room for them: the leaf is closed, its records do
//     not change, and the sibling takes over its range with copies of the records. If other clients
//     have filled the sibling meanwhile, the leaf is opened again, which needs no memory. The
//     page's next incarnation has another address, so a reader that follows a pointer to the former
//     incarnation notices it and begins again at the root. Internal pages leave the tree only when
//     they have one child left, the first leaf stays, and the height of the tree never decreases.
//     Pages of published trees are never merged.
//   - Locks survive their owners. A lock word names its owner, a node, and the memory service knows
//     the owner of each connection. A client that has seen the same tag for longer than the lease
//     makes the service end all connections of the owner (the fence), and only then swaps its own
//     tag in. So no request that the owner had in flight can arrive afterwards. Formatting a tree
//     over an older one fences all earlier owners first, and their numbers are never given out
//     again. A hardened page needs no repair. If a split has no separator yet, the next writer that
//     passes it adds the separator. Clocks of different machines are never compared.
//   - An operation whose connection fails finds out whether it took effect: the new connection
//     first ends the old one, then the lock word shows the outcome (see resolve). kv.ErrTimeout,
//     outcome unknown, remains for operations whose deadline passes and for nodes that were fenced.
//     An operation that had not written yet adds kv.ErrNoEffect.
//
// Limits: a value must fit into one line with its key (54 bytes). A published tree is not safe
// against clients that die. A checksummed tree is safe only if a page fits into one packet. A
// memory server that loses its memory loses its pages. Operations that need these pages end with
// kv.ErrLost and kv.ErrNoEffect, because the key may be in a page on another server that other
// clients can still reach.
package sherman
