package redn

// Pool is the constants and variables of a program, in registered memory. The caller writes Image to
// the memory before the program runs.
type Pool struct {
	mem  Mem
	used []byte
}

// poolAlign is the alignment of all constants and variables of a pool in bytes: atomics need it for
// their words.
const poolAlign = 8

// NewPool returns an empty pool in m, whose address is a multiple of 8.
func NewPool(m Mem) *Pool { return &Pool{mem: m, used: make([]byte, 0, m.Len)} }

// Put adds the constant b to the pool, and returns its memory.
func (p *Pool) Put(b []byte) Mem {
	m, place := p.Reserve(len(b))
	copy(place, b)
	return m
}

// Reserve adds n bytes to the pool, zero at first, and returns their memory m. b is their place in
// the image; the caller may set it until Image is written. Reserve panics if the memory of the pool
// is used up.
func (p *Pool) Reserve(n int) (m Mem, b []byte) {
	at := len(p.used)
	m = p.mem.At(at, n)
	p.used = p.used[:min(at+(n+poolAlign-1)&^(poolAlign-1), p.mem.Len)]
	return m, p.used[at : at+n]
}

// Image returns the bytes that must be in the pool's memory when the program starts. The slice
// belongs to the pool.
func (p *Pool) Image() []byte { return p.used }
