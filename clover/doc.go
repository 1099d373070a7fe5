// Package clover is a key-value store on passive memory: clients read and write the values by one-sided verbs alone, a metadata
// server gives out space and knows where keys begin, and memory servers do nothing but own a NIC.
//
// The versions of a key's value are a chain of nodes in the memory of the servers (package layout). A client that knows a node of
// the chain reads on from there; a writer writes a fresh node and appends it by a compare-and-swap on the header of the newest.
// Best case: a GET is one round trip, a PUT two (Clover, USENIX ATC 2020).
//
// What is different from the published system, and why:
//
//   - A GET whose node is the newest ends there, whatever the shortcut says: the published one would follow a shortcut that lags.
//   - Nodes carry their key, length and checksum by default (layout.Sound), so that a reader recognises a node that is written again
//     under its hands without relying on time. layout.Vanilla is the published node.
//   - DELETE: a tombstone is appended as a value would be; no append to it can succeed. The metadata server then takes the whole
//     chain back.
//   - The metadata server follows the chain itself instead of believing the predecessors that clients report. It can be
//     restarted: it finds its keys by a directory in remote memory.
//   - Clients hold leases, so that what a dead one had is recovered. Nobody ends a client's connections to memory for that: one whose whole
//     machine, NIC and all, stands still for longer than lease and grace with a request ready to be sent can still send that request, and
//     hit a node that is another's by then.
//
// A Client is used by one thread. It needs the metadata server for keys that it does not know, for fresh nodes (16 at a time), and
// to keep its lease. An operation is repeated over new connections until its deadline, where that is safe; kv.ErrTimeout means
// that its outcome is unknown.
package clover
