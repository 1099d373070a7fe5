package ring

import "math/bits"

// ControlLen is the size of the control page of an application, in bytes.
const ControlLen = 8192

// MaxBells is the largest number of bells of an application; an object with rings has at most one.
// Bell 0 belongs to the page's queue of memory accesses.
const MaxBells = 4096

// Offsets in the control page. The words offAsleep, offIncarnation, offCrowded and offAsks share a cache line; offPolls,
// offSummary and the bells have lines of their own.
const (
	offAsleep      = 0
	offIncarnation = 8
	offCrowded     = 16
	offAsks        = 24
	offPolls       = 64
	offSummary     = 128
	offBells       = 192 // MaxBells/64 words
	offMemory      = offBells + MaxBells/8 + (64-offBells%64)%64
)

// Control is the control page of an application in the address space of one side.
type Control struct {
	// Asleep is set by the daemon while it does not check bells. An application that rings a bell must
	// then wake the daemon.
	Asleep *Shared
	// Crowded is set by the daemon while more threads poll than there are processors. An unmodified
	// program then yields the processor after each empty poll.
	Crowded *Shared
	// Incarnation is incremented by the daemon when the NIC has lost its objects.
	Incarnation *Shared
	// Asks is set by the daemon while an injected fault may refuse posts. An application then waits
	// for the daemon's answer to each post.
	Asks *Shared
	// Polls is incremented from time to time by an application that polls an empty completion queue.
	Polls *Shared
	// summary has a bit for each word of bells in which a bell is set. Both sides write summary and
	// bells.
	summary *Shared
	page    []byte
	next    uint32 // the bell at which the next Take begins; only the daemon uses it
}

// NewControl gives access to a mapped page.
func NewControl(page []byte) *Control {
	return &Control{
		Asleep: WordAt(page, offAsleep), Incarnation: WordAt(page, offIncarnation), Polls: WordAt(page, offPolls), Crowded: WordAt(page, offCrowded), Asks: WordAt(page, offAsks),
		summary: WordAt(page, offSummary), page: page,
	}
}

// Memory returns the part of the page that holds the queue of memory accesses; see Access.
func (c *Control) Memory() []byte { return c.page[offMemory:] }

// Ring sets a bell. The daemon then sees all entries that were published before. Ring reports
// whether the daemon sleeps and must be woken.
func (c *Control) Ring(bell uint32) (asleep bool) {
	w := WordAt(c.page, offBells+int(bell/64)*8)
	if bit := uint64(1) << (bell % 64); w.Load()&bit == 0 {
		w.Or(bit)
	}
	if bit := uint64(1) << (bell / 64); c.summary.Load()&bit == 0 {
		c.summary.Or(bit)
	}
	return c.Asleep.Load() != 0
}

// Rung reports whether a bell is set.
func (c *Control) Rung() bool { return c.summary.Load() != 0 }

// Take clears set bells and calls f for each of them, at most limit times. It begins with the bell
// after the one that it served last, so that all bells get their turn. Bells beyond the limit stay
// set.
func (c *Control) Take(limit int, f func(bell uint32)) {
	if c.summary.Load() == 0 {
		return
	}
	const words = MaxBells / 64
	rung := c.summary.Swap(0)
	start, before := int(c.next/64), uint64(1)<<(c.next%64)-1
	for k := 0; k <= words && rung != 0; k++ {
		i := (start + k) % words
		if rung&(1<<i) == 0 {
			continue
		}
		rung &^= 1 << i
		w := WordAt(c.page, offBells+i*8)
		bells := w.Swap(0)
		if k == 0 && bells&before != 0 { // bells before c.next are served last: the loop comes to this word again when k is words
			w.Or(bells & before)
			rung |= 1 << i
			bells &^= before
		}
		for ; bells != 0; bells &= bells - 1 {
			if limit == 0 {
				w.Or(bells)
				c.summary.Or(rung | 1<<i)
				return
			}
			limit--
			b := uint32(i*64 + bits.TrailingZeros64(bells))
			c.next = (b + 1) % MaxBells
			f(b)
		}
	}
}
