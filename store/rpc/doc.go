// Package rpc has both ends of calls over reliable connections, for a store that has a server: a
// Server for many clients, and a Caller on a remotemem.Fabric. It moves bytes. The store decides
// what they mean, and which calls may be made twice.
//
// A request is one SEND. The answer is one WRITE with immediate data into a buffer of the client,
// which the request names: so an answer needs no receive buffer of its length, and an answer that
// comes late changes only this buffer. The immediate data says which request is answered.
//
// # Guarantees
//
// The Server hands over the requests of a connection in the order in which they were sent, each
// once. All requests lie in one shared receive queue. If the queue has no receive left, a client's
// NIC waits and sends the request again (RNR NAK), so no request is dropped. A request stays in
// its receive until the handler says that the request is done.
//
// The end of a failed connection loses no receives of the shared queue. It has two steps. First the
// connection's queue pair goes to ERROR and flushes its work requests. It is destroyed when the
// completion queue has no completion of it any more, and no thread holds one of its requests. If it
// were destroyed at once, the receives of its last requests would be lost. After a few hundred
// broken clients the queue would be empty, and every request would draw RNR NAKs for ever.
//
// An error of Caller.Wait says that there is no answer. The server may have executed the request,
// or may execute it later; only a request that was refused by Post was certainly not sent. The
// caller breaks the connection before it uses the buffer of the answer again: until then the answer
// may be written there.
//
// Lengths are in bytes. A Caller is used by the thread of its Fabric. Any thread may call the
// methods of a Server; one thread at a time polls each Thread.
package rpc
