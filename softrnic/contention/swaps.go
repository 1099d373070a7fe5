package contention

import (
	"encoding/binary"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Window is the time in which completions are counted. From belongs to it, Until does not.
type Window struct{ From, Until clock.Time }

// Holds reports whether t is in the window.
func (w Window) Holds(t clock.Time) bool { return t >= w.From && t < w.Until }

// Swaps has the options and the counters of clients that make CAS on one word (Swapper). The
// clients of a thread share one Swaps.
type Swaps struct {
	Window
	// More is called before each CAS, except the first of each client. If it returns false, the
	// client ends.
	More func(now clock.Time) bool

	// Posted counts all posted CAS. Done counts those that completed at a time in Window. Won
	// counts those of Done that changed the word.
	Posted, Done, Won int
	// Waited is the sum of the times from post to completion of the CAS that Done counts.
	Waited time.Duration
}

// Swapper is a client that makes one CAS after the other on a word. Each CAS compares with the
// value that the client's previous CAS has written or, if that one has failed, found. Each CAS
// writes a value that no other client uses.
type Swapper struct {
	run    *Swaps
	qp     verbs.QP
	wr     verbs.SendWR
	prior  []byte     // 8 bytes to which the NIC writes the original value of the word
	tag, n uint64     // n counts the posted CAS; the last one writes tag+n
	posted clock.Time // when the last CAS was posted
}

// Client returns a client that counts in s. wr is the CAS: its remote address is that of the word,
// and its SGL names prior, which has 8 bytes. The client writes the values tag+1, tag+2 and so on.
// No other client may use these values.
func (s *Swaps) Client(qp verbs.QP, wr verbs.SendWR, prior []byte, tag uint64) *Swapper {
	wr.Op, wr.Flags = verbs.OpCmpSwap, verbs.Signalled
	return &Swapper{run: s, qp: qp, wr: wr, prior: prior, tag: tag}
}

func (c *Swapper) QP() verbs.QP { return c.qp }

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
