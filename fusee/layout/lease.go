package layout

// Leases is the number of words in which clients show that they are alive.
const Leases = 1024

// LeaseAt is the offset of the Beat of a client with a number. Clients may share a word: then all of them
// look alive as long as one is.
func (s *Shape) LeaseAt(number uint32) uint64 { return s.AreaAt(s.Replicas) + uint64(number%Leases)*8 }

// Beat is the word that a client with a number writes for the n-th time. It differs from the words that it
// and the other clients of the word have written before.
func Beat(number, n uint32) uint64 { return uint64(number)<<32 | uint64(n) }
