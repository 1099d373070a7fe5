package layout

// Leases is the number of words by which clients show that they are alive.
const Leases = 1024

// LeaseAt returns the offset of the lease word of the client with the given number. Several clients
// may share a word. Then all of them seem alive as long as one of them is alive.
func (s *Shape) LeaseAt(number uint32) uint64 { return s.AreaAt(s.Replicas) + uint64(number%Leases)*8 }

// Beat returns the value that the client with the given number writes into its lease word at its
// n-th renewal. The value differs from every value that any client has written into that word
// before. Master and standby write such values, too: see ReignWord and StandbyWord.
func Beat(number, n uint32) uint64 { return uint64(number)<<32 | uint64(n) }
