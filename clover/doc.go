// Package clover is a key-value store on passive memory. Clients read and write the values by
// one-sided operations alone. A metadata server gives out space and knows a node of each key's
// chain. Memory servers register memory, and make and end the connections to it (package
// memservice).
//
// The versions of a key's value are a chain of nodes in the memory of the servers (package layout).
// A client that knows a node of the chain reads from there on. A writer writes a new node and
// appends it by a compare-and-swap on the header of the newest one. In the best case a GET takes
// one round trip and a PUT two (Clover, USENIX ATC 2020).
//
// The store differs from the published system in these points:
//
//   - A GET whose first node is the newest ends there, whatever the shortcut says. The published
//     client follows the shortcut, even to an older node.
//   - Nodes have their key, length and a checksum by default (layout.Hardened). So a reader
//     recognises a node that is reused while it is being read, without relying on time.
//     layout.Published is the published node.
//   - A shortcut says in which epoch its node was linked, and clients in another epoch ignore it.
//     The published shortcut is a bare location and outlives epochs. Its node may have been given
//     out again with the same version and written, but not linked. A writer that follows the
//     shortcut to that node takes it for the end of the chain, and acknowledges a PUT that never
//     happened.
//   - DELETE appends a tombstone as PUT appends a value. No append to a tombstone can succeed. The
//     metadata server then frees the whole chain.
//   - The metadata server ignores the predecessors that clients report, because a switch may have
//     steered the append to another node. It frees nodes by the order of reports (package meta), and
//     follows a chain itself only for the last appends to a key and after lost reports. It can be
//     restarted: it finds its keys in a directory in remote memory.
//   - Clients hold leases, so that the nodes of a dead client are recovered. If a client's whole
//     machine stops for longer than lease and grace, its NIC may still have a request ready to be
//     sent. Therefore the memory servers end the client's connections before any of its nodes is
//     given to another client (package memservice). When the metadata server restarts, they end
//     the connections of its earlier incarnation and of that incarnation's clients.
//   - With several copies of each node (copies.go), the copies are linked in one order by
//     compare-and-swap, and the metadata server says which servers' copies count. The published
//     system locks the first copy and writes the pointers unconditionally. A client that dies in
//     between blocks the key, and nothing says what counts after a crash.
//   - A client confirms an epoch only when none of its requests that name a location of an earlier
//     epoch can be in flight: the memory servers first end its broken connections. A client that
//     has not confirmed an epoch within lease and grace is fenced.
//
// One thread uses a Client. A client needs the metadata server for keys that it does not know, to
// report its appends (by default 48 at a time, with new nodes in the answer), for nodes if it has
// none left, and to renew its lease. It repeats an operation over new connections until the
// deadline, where that is safe. kv.ErrTimeout means that the outcome of a write is unknown.
package clover
