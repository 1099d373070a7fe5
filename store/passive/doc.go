// Package passive is the access of a store's client to the memory of passive memory servers: one
// operation at a time, repeated on a new connection when a connection fails.
//
// # What is safe to repeat
//
// An operation whose connection failed may have been executed or not. Before it is sent again, the
// memory service ends the old connection (memservice.Claim.Replaces), so nothing that was sent on
// it is executed any more. Then an operation happens once or twice, and the caller
// chooses operations for which that makes no difference: a READ; a WRITE to memory that no other
// client writes, and none reads yet; a CAS to a value that no other operation ever writes to this
// word, for which Swap says how often it was sent; an addition to a counter that may leave numbers
// out.
//
// # Owners and other memory
//
// Connections after Become have an owner, by whose number others can end them (memservice.Fence,
// Retire). After each new connection the first bytes of the memory are compared as Expect says: the
// server may have lost its memory meanwhile, or another store may have been made there.
//
// A Conn is used by one thread at a time.
package passive
