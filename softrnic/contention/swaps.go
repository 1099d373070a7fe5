package contention

import (
	"encoding/binary"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Window is the time in which completions are counted: from From on and before Until.
type Window struct{ From, Until clock.Time }

// Holds reports whether an instant is in the window.
func (w Window) Holds(t clock.Time) bool { return t >= w.From && t < w.Until }

// Swaps counts what clients achieve that do CAS on one word. The clients of a thread share one.
type Swaps struct {
	Window
	// More is asked before each CAS but a client's first whether there is to be another one.
	More func(now clock.Time) bool

	// Posted counts all posted CAS, Done the CAS that were answered in the window, Won the part of
	// Done that changed the word.
	Posted, Done, Won int
	// Waited is the sum of the times from post to completion, in the window.
	Waited time.Duration
}

// Swapper is a client that does CAS on one word as fast as it is answered. It expects the value
// that it saw last and swaps in one that no other client uses.
type Swapper struct {
	run    *Swaps
	qp     verbs.QP
	wr     verbs.SendWR
	prior  []byte // 8 bytes, where the NIC puts the word's former value
	tag, n uint64
	posted clock.Time
}

// Client returns a client of the run. wr names the word and 8 bytes of local memory, which are
// prior; values that the client swaps in are tag+1, tag+2 and so on, of which no other client may
// use any.
func (s *Swaps) Client(qp verbs.QP, wr verbs.SendWR, prior []byte, tag uint64) *Swapper {
	wr.Op, wr.Flags = verbs.OpCmpSwap, verbs.Signalled
	return &Swapper{run: s, qp: qp, wr: wr, prior: prior, tag: tag}
}

// QP is the client's queue pair.
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
