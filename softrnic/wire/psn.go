package wire

// PSN is a 24-bit packet sequence number. Its order is circular: use Diff, never < or >.
type PSN uint32

// psnMask keeps the 24 bits of a PSN.
const psnMask = 1<<24 - 1

// Add returns p + n modulo 2^24; n may be negative.
func (p PSN) Add(n int) PSN { return PSN(uint32(int64(p)+int64(n)) & psnMask) }

// Next returns the PSN after p.
func (p PSN) Next() PSN { return (p + 1) & psnMask }

// Diff returns how far a is ahead of b in the circular order, in [-2^23, 2^23). Comparisons of PSNs
// use it, except where a distance can be 2^23 (requester.offset in package transport).
func Diff(a, b PSN) int32 { return int32((a-b)<<8) >> 8 }

// QPN is a 24-bit queue pair number. 0 is the SMI queue pair and 1 the GSI queue pair.
type QPN uint32
