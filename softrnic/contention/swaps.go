package contention

import (
	"encoding/binary"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Window is the time in which completions are counted: from From until before Until.
type Window struct{ From, Until clock.Time }

// Holds reports whether t is in the window.
func (w Window) Holds(t clock.Time) bool { return t >= w.From && t < w.Until }

// Swaps counts what clients achieve that do CAS on one word. The clients of a thread share one
// Swaps.
type Swaps struct {
	Window
	// More is called before each CAS except a client's first; false ends the client.
	More func(now clock.Time) bool

	// Posted counts all posted CAS. Done counts those that were answered in the window. Won counts
	// those of Done that changed the word.
	Posted, Done, Won int
	// Waited is the sum of the times from post to completion, in the window.
	Waited time.Duration
}

// Swapper is a client that does one CAS after the other on a word. Each compares with the value
// found last, and swaps in a value that no other client uses.
type Swapper struct {
	run    *Swaps
	qp     verbs.QP
	wr     verbs.SendWR
	prior  []byte // 8 bytes to which the NIC writes the original value of the word
	tag, n uint64
	posted clock.Time
}

// Client returns a client of the run. wr names the word and 8 bytes of local memory, which are
// prior. The client swaps in the values tag+1, tag+2 and so on, which no other client may use.
func (s *Swaps) Client(qp verbs.QP, wr verbs.SendWR, prior []byte, tag uint64) *Swapper {
	wr.Op, wr.Flags = verbs.OpCmpSwap, verbs.Signalled
	return &Swapper{run: s, qp: qp, wr: wr, prior: prior, tag: tag}
}

// QP returns the client's queue pair.
func (c *Swapper) QP() verbs.QP { return c.qp }

// Next returns the next CAS.
func (c *Swapper) Next(now clock.Time) *verbs.SendWR {
	if c.n > 0 && !c.run.More(now) {
		return nil
	}
	c.n++
	c.run.Posted++
	c.wr.Swap = c.tag + c.n
	c.posted = now
	return &c.wr
}

// Done counts an answer.
func (c *Swapper) Done(now clock.Time) {
	s := c.run
	counts := s.Holds(now)
	if counts {
		s.Done++
		s.Waited += now.Sub(c.posted)
	}
	prior := binary.NativeEndian.Uint64(c.prior)
	if prior == c.wr.CompareAdd {
		prior = c.wr.Swap
		if counts {
			s.Won++
		}
	}
	c.wr.CompareAdd = prior
}
