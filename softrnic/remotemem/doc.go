// Package remotemem gives a client access to the memory of peers. It has one queue pair to each
// peer, one completion queue and one registered buffer. Several operations can be posted together
// and waited for together.
//
// A Fabric is used by one thread at a time. If the queue pair to a peer has failed, Start and Chain
// return an error, and Open and Do connect a new one. An operation that was in flight when its
// queue pair failed has an unknown outcome. The Fabric does not repeat it: only the caller knows
// whether that is safe.
//
// While an operation uses a part of the buffer, this part belongs to the NIC. Callers copy data
// into it before they post, and out of it when the operation is done. If the deadline of Wait or Do
// passes, the Fabric breaks the queue pairs of unfinished operations, so that no operation accesses
// the buffer after Wait or Do has returned.
package remotemem
