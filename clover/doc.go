// Package clover is a key-value store on passive memory: clients read and write the values by
// one-sided operations alone, a metadata server gives out space and knows where keys begin, and
// memory servers run nothing but a NIC.
//
// The versions of a key's value are a chain of nodes in the memory of the servers (package layout).
// A client that knows a node of the chain reads on from there; a writer writes a fresh node and
// appends it by a compare-and-swap on the header of the newest. Best case: a GET is one round trip,
// a PUT two (Clover, USENIX ATC 2020).
//
// The differences from the published system, and the reasons:
//
//   - A GET whose node is the newest ends there, whatever the shortcut says: the published client
//     would follow a shortcut that lags.
//   - Nodes carry their key, length and checksum by default (layout.Hardened), so that a reader
//     recognises a node that is reused while it is being read, without relying on time.
//     layout.Published is the published node.
//   - A shortcut says in which epoch its node was linked, and clients in another epoch ignore it. The
//     published shortcut is a bare location and outlives epochs: its node may have been given out
//     again in the same version, and written, but not linked. A writer that was given that node takes
//     it for the end of the chain, and acknowledges a PUT that never happened.
//   - DELETE appends a tombstone as PUT appends a value; no append to a tombstone can succeed. The
//     metadata server then frees the whole chain.
//   - The metadata server follows the chain itself and ignores the predecessors that clients
//     report. It can be restarted: it finds its keys by a directory in remote memory.
//   - Clients hold leases, so that the nodes of a dead client are recovered. A client whose whole
//     machine, NIC included, stops for longer than lease and grace may still have a request ready
//     to be sent: the memory servers end its connections before any of its nodes is given to
//     another client (package memservice). A restarted metadata server has them end the connections
//     of its earlier incarnation and of all clients of that incarnation.
//   - A client confirms an epoch only when no request that names a location of an earlier epoch can
//     be in flight: the servers end its broken connections first. A client that has not confirmed
//     an epoch within lease and grace is fenced.
//
// One thread uses a Client. A client needs the metadata server for keys that it does not know, for
// fresh nodes (16 at a time), and to renew its lease. It repeats an operation over new connections
// until the deadline, where that is safe; kv.ErrTimeout means that the outcome is unknown.
package clover
