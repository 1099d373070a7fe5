// Package kvcs is a key-value caching service on NICs without connections (KVCS of the paper 1RMA,
// SIGCOMM 2020), replicated for READ. A client reads a key by two READs of a replica's memory: its
// bucket, and then its cell. PUT, INSERT and DELETE are requests to a process. If a READ fails, the
// client turns to another replica at once.
//
// # Parts
//
//	Client       GETs by READs; changes by datagrams to the coordinator
//	Coordinator  has a copy of the table, decides each change, and sends it to all replicas
//	Server       a replica: executes changes in the memory that its NIC lends to clients
//
// Coordinator and Server are sans-I/O machines; Client blocks, and does all I/O by a Port.
// Datagrams may be lost, duplicated, delayed and damaged.
//
// # Consistency
//
// Histories are linearizable, also while replicas fail. Three rules make them so:
//
//  1. A change has two steps. First each replica of the view writes the new value into a free cell
//     and marks the key's slot as pending. When all have done so, the change has taken effect: the
//     coordinator answers the client, and tells the replicas to complete the slot. A client that
//     reads a pending slot reads again. So no client can read the new value while another replica
//     still shows the old one.
//  2. A replica that does not follow is fenced before the change takes effect. The coordinator
//     replaces the key of the replica's region by REKEY. That also works if the replica's process
//     hangs while its NIC goes on serving READs. If the REKEY is not confirmed, because the NIC
//     does not answer either, the coordinator waits until the leases of all clients that know the
//     replica are over. A client returns what it has read only while its lease lasts.
//  3. A replica starts with a copy of the table under a region key of its own. A view names the
//     replica when it has all changes that have taken effect.
//
// A slot has a checksum, and a cell has a checksum, its key and its version. So a client notices
// memory that changes during a READ, and a cell that belongs to another key by then, and reads
// again.
//
// # Limits
//
// The coordinator is one process with its data in memory. While it does not answer, changes end as
// kv.ErrTimeout. GETs go on until the leases end. If it ends, the store ends: another coordinator
// begins another store, whose number is in all messages, and clients of the ended store get
// kv.ErrLost with ErrEnded. A cell has a fixed size. A key whose window of 16 slots is full is
// refused by kv.ErrFull; nothing is evicted. Region keys travel in clear text, as those of
// onerma/host do.
package kvcs
