// Package passive lets a store's client use the memory of passive memory servers. It makes one
// operation at a time. When a connection fails, it repeats the operation on a new connection.
//
// # What is safe to repeat
//
// When a connection fails, its last operation may have been executed or not. Before the client
// sends the operation again, the memory service ends the old connection
// (memservice.Claim.Replaces), so nothing that was sent on it is executed any more. The operation
// may therefore be executed more than once. The caller must choose operations for which that makes
// no difference:
//
//   - A READ.
//   - A WRITE to memory that no other client writes, and that no client reads yet.
//   - A CAS to a value that no other operation ever writes to this word. Change says whether it was
//     made, or that this is unknown.
//   - A FETCH_ADD on a counter that may skip numbers.
//
// # Owners and other memory
//
// Connections after Become have an owner. Other clients can end them by the owner's number
// (memservice.Fence, Retire). After each new connection the client checks the first bytes of the
// memory, as Expect says. The server may have lost its memory meanwhile, or another store may have
// been made there.
//
// Form makes this check for stores whose memory begins with a superblock. It also makes such a
// store on the servers, and connects clients to it.
//
// A Conn is used by one thread at a time. A store's client embeds a Client.
package passive
