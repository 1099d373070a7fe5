package fault

// CacheLine is the size in bytes at whose multiples a real NIC's memory accesses tear.
const CacheLine = 64

// Tearer decides about the memory copies of one host: which are torn, and in which order their cache lines
// move. A decision is a function of (seed, host, number of the copy). It is used by one goroutine at a time.
type Tearer struct {
	stream      uint64
	probability float64
	copies      uint64
	torn        uint64
	order       []int
}

// NewTearer makes the plan of a host. The probability of a copy being torn is in [0,1].
func NewTearer(seed uint64, host string, probability float64) *Tearer {
	return &Tearer{stream: hashString(mix(seed+golden), "tear "+host), probability: probability}
}

// Torn counts the copies torn so far.
func (t *Tearer) Torn() uint64 { return t.torn }

// Plan returns nil for a copy that moves as a whole, else the order in which its cache lines (numbered from
// the start of the copy) move. A copy of one line is never torn. The slice is valid until the next call.
func (t *Tearer) Plan(lines int) []int {
	n := t.copies
	t.copies++
	if lines < 2 || unit(draw(t.stream, 2*n)) >= t.probability {
		return nil
	}
	t.torn++
	t.order = t.order[:0]
	for i := range lines {
		t.order = append(t.order, i)
	}
	x := draw(t.stream, 2*n+1)
	for i := lines - 1; i > 0; i-- { // Fisher–Yates
		x = mix(x + golden)
		j := int(x % uint64(i+1))
		t.order[i], t.order[j] = t.order[j], t.order[i]
	}
	return t.order
}
