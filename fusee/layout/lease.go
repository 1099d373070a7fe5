package layout

// Leases is the number of words by which clients show that they are alive.
const Leases = 1024

// LeaseAt returns the offset of the word for the client with a number. Several clients may share a
// word. Then all of them seem alive as long as one of them is.
func (s *Shape) LeaseAt(number uint32) uint64 { return s.AreaAt(s.Replicas) + uint64(number%Leases)*8 }

// Beat returns what the client with a number writes into its word for the n-th time. It differs
// from all values that this client and the others have written into the word before.
func Beat(number, n uint32) uint64 { return uint64(number)<<32 | uint64(n) }
