// Package remotemem is a client's access to the memory of peers: one queue pair to each peer, one
// completion queue, one registered buffer, and operations that are posted together and waited for
// together.
//
// A Fabric is used by one thread at a time and waits for completions only. The next operation that
// needs a failed queue pair replaces it. An operation that was in flight when it failed has an
// unknown outcome and is not repeated here: only its caller knows whether that is safe.
//
// The buffer is registered memory that the NIC owns while an operation uses it: callers copy in
// before they post and copy out when the operation is done. A deadline that passes breaks the queue
// pairs of unfinished operations, so that no operation accesses the buffer after Wait has returned.
package remotemem
