package sim

// framePool gives out memory for frames in a few sizes and takes it back, so that a run does not
// allocate once the pool has enough.
type framePool struct{ free [len(poolSizes)][][]byte }

// poolSizes are the capacities in bytes. Each has room for: an acknowledgement, a standard Ethernet
// frame, a packet with a path MTU of 4 KiB, a super-frame.
var poolSizes = [...]int{256, 1600, 4352, 66 << 10}

// get returns n bytes with undefined content. put takes them back.
func (p *framePool) get(n int) []byte {
	for i, size := range poolSizes {
		if n > size {
			continue
		}
		if k := len(p.free[i]); k > 0 {
			b := p.free[i][k-1]
			p.free[i] = p.free[i][:k-1]
			return b[:n]
		}
		return make([]byte, n, size)
	}
	return make([]byte, n)
}

// put takes memory that get has returned back into the pool.
func (p *framePool) put(b []byte) {
	for i, size := range poolSizes {
		if cap(b) == size {
			p.free[i] = append(p.free[i], b)
			return
		}
	}
}
