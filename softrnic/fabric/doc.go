// Package fabric is a client's way to the memory of others: one queue pair to each peer, one completion queue, one registered
// buffer, and operations that are posted together and waited for together.
//
// A Fabric is used by one thread at a time. It waits for completions and for nothing else. Queue pairs that failed are
// made anew by the next operation that needs them; an operation that was under way then has an unknown outcome, and is not
// repeated here: only its caller knows whether it may be.
//
// The buffer is registered memory that the NIC owns while an operation uses it: callers copy in before they post and
// copy out when the operation is done. A deadline that passes breaks the queue pairs of what was not finished, so that no
// operation touches the buffer after its caller was told.
package fabric
