// Package sherman is a B+tree in the memory of servers that do nothing but own a NIC: clients search it, change it and split its
// pages by one-sided verbs alone. Writers lock pages by words in the memory of the NICs (Sherman, SIGMOD 2022).
//
// With a warm index cache a search is one round trip. A write is three: compare-and-swap of the lock word, READ of the leaf, and one
// doorbell with the WRITE of the record and the WRITE that gives the lock back. It is two when another client of the same node has
// handed the lock over. Pages are linked to their right neighbours, so a split is done as soon as the old page leads to the new one; the
// parent learns of it later, from whoever made the split or from whoever finds a page by way of its neighbour.
//
// A Node is what the clients of one machine share: the index cache, and the queues for locks (package lock). A Client is one thread with
// a queue pair to each memory server. It waits for the network and for its turn by its Runtime, and for nothing else.
//
// What is different from the published system, and why:
//
//   - Pages are layout.Sound by default: all that a reader can see changes by WRITEs of one line. layout.Faithful is the published page.
//   - A search that meets a record under its writer's hands reads again (NodeConfig.LostSearch keeps the published answer: not found).
//   - Fresh pages come from a FETCH_ADD on a word of the server, not by message to a thread there.
//   - Deleted slots are used again. Pages are never merged nor freed, also when they are empty: a pointer that was right once
//     stays so, and the index cache needs no invalidation.
//   - Locks survive their owners. A word names its owner, a node, which the memory service knows for each connection. Who has seen the
//     same tag for longer than the lease has the service end all connections of the owner (the fence), and only then swaps its own tag in:
//     whatever the owner had under way cannot come late. A tree that is made where one was begins with the fence of all owners there
//     were, and never gives their names away again. There is nothing to repair in a sound page; the missing
//     separator of a split is put in by the next writer who comes that way. Clocks are compared with themselves alone.
//   - An operation whose connection fails finds out what it did: the new connection ends the old one first, and then the lock word tells
//     (see resolve). kv.ErrTimeout, outcome unknown, is left for a deadline that passes and for a node that was fenced; and of these,
//     the ones that had not written yet say kv.ErrNoEffect.
//
// Limits: a value fits into one line with its key (54 bytes). A faithful tree is not safe against clients that die. A memory server that
// loses its memory takes its pages with it: operations that need them end with kv.ErrLost, and with kv.ErrNoEffect, as the
// key may be in a page elsewhere to which others still find the way.
package sherman
