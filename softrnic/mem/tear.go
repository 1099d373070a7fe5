package mem

import (
	"math/rand/v2"
	"time"
)

// LineSize is the size of a cache line in bytes: copies tear only at multiples of it.
const LineSize = 64

// Tear says where and for how long one copy pauses. The bytes before Cut are copied at once, and
// those from Cut on after Pause. TailFirst exchanges the two parts.
type Tear struct {
	// Cut is an offset in the copy. If it is not inside the copy, the copy is not torn.
	Cut       int
	TailFirst bool
	Pause     time.Duration
}

// TearFunc decides how a copy of n bytes is torn. It is called once for each copy, in order.
type TearFunc func(n int) Tear

// SetTear makes copies pause as f decides: copies of WRITE payloads into regions, and of READ
// responses out of them. SetTear(nil) ends that. Atomics, SENDs and local accesses are never torn.
func (t *Table) SetTear(f TearFunc) { t.tear = f }

// PlanTear calls the TearFunc for a copy of n bytes at va, and rounds the cut down so that its
// address is a multiple of LineSize. ok is false if the cut is then not inside the copy; such a
// copy is not torn.
func (t *Table) PlanTear(va uint64, n int) (tr Tear, ok bool) {
	if t.tear == nil || n <= 0 {
		return Tear{}, false
	}
	tr = t.tear(n)
	if tr.Cut <= 0 || tr.Cut >= n {
		return Tear{}, false
	}
	tr.Cut -= int((va + uint64(tr.Cut)) % LineSize)
	return tr, tr.Cut > 0
}

// SeededTear chooses, with the given probability for each copy, a random cut, the order of the
// parts, and a random pause below maxPause. A copy is not torn if PlanTear rounds the cut down to
// the first byte of the copy. The same seed and the same copies give the same tears.
func SeededTear(seed uint64, probability float64, maxPause time.Duration) TearFunc {
	r := rand.New(rand.NewPCG(seed, 0x7ea2))
	return func(n int) Tear {
		if n <= 1 || r.Float64() >= probability {
			return Tear{}
		}
		return Tear{Cut: 1 + r.IntN(n-1), TailFirst: r.IntN(2) == 1, Pause: time.Duration(r.Int64N(int64(max(maxPause, 1))))}
	}
}
