package contention

import (
	"encoding/binary"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxWait and waitDigits are range and precision of the histogram of waits.
const (
	maxWait    = 10 * time.Minute
	waitDigits = 3
)

// Locks counts what clients achieve that take and release locks. The clients of a thread share one.
type Locks struct {
	Window
	// Over, if not nil, ends the run early.
	Over func() bool
	// Bits makes words 0 or 1, and the release a CAS, as the SwordBox paper's clients have it;
	// otherwise a word holds a value of its owner, and a WRITE of 0 releases it, as in Sherman.
	Bits bool
	// TakeOver is how long a word must stay the same until a client takes the lock from its owner,
	// which may have ended without releasing it; 0: never.
	TakeOver time.Duration

	// Attempts are CAS for a lock that were answered in the window, Acquired those that took it,
	// TakenOver locks that were taken from an owner that did not move, at any time.
	Attempts, Acquired, TakenOver uint64
	// Freed are releases by CAS after locks that were counted.
	Freed uint64
	// Waits are the times in nanoseconds from the first CAS for a lock to the answer of the one
	// that took it. A client that does not hold the lock at the end counts with its time so far.
	Waits *hdrhistogram.Histogram
}

// NewLocks returns an empty count for a window.
func NewLocks(w Window) *Locks {
	return &Locks{Window: w, Waits: hdrhistogram.New(1, int64(maxWait), waitDigits)}
}

// record adds a wait.
func (l *Locks) record(d time.Duration) {
	_ = l.Waits.RecordValue(int64(min(max(d, 1), maxWait))) // within the range by construction
}

// Locker is a client that takes a lock by CAS, again and again until it has it, and releases it.
type Locker struct {
	run        *Locks
	qp         verbs.QP
	take, free verbs.SendWR
	prior      []byte        // 8 bytes, where the NIC puts the word's former value
	pick       func() uint64 // chooses the address of the next lock
	tag, n     uint64
	state      lockState
	since      clock.Time // of its first CAS for the lock
	seen       uint64     // in the word
	seenSince  clock.Time
}

// lockState is the present step of a client.
type lockState uint8

const (
	resting   lockState = iota // it has no operation in flight
	wanting                    // its CAS is in flight
	missed                     // its CAS found another owner
	holding                    // its CAS took the lock
	releasing                  // its release is in flight
	leaving                    // the time is over
)

// Client returns a client of the run. take names 8 bytes of local memory, which are prior, and the
// word; free names 8 bytes that hold 0, and the word. pick, if not nil, chooses a word's address
// for each lock. The values that mark the client as owner are tag+1, tag+2 and so on.
func (l *Locks) Client(qp verbs.QP, take, free verbs.SendWR, prior []byte, pick func() uint64, tag uint64) *Locker {
	take.Op, take.Flags = verbs.OpCmpSwap, verbs.Signalled
	free.Op, free.Flags = verbs.OpWrite, verbs.Signalled
	if l.Bits {
		free.Op, free.CompareAdd = verbs.OpCmpSwap, 1
	}
	return &Locker{run: l, qp: qp, take: take, free: free, prior: prior, pick: pick, tag: tag}
}

// QP is the client's queue pair.
func (c *Locker) QP() verbs.QP { return c.qp }

// Next returns the next CAS, or the release of a lock that is held.
func (c *Locker) Next(now clock.Time) *verbs.SendWR {
	switch c.state {
	case holding:
		c.state = releasing
		return &c.free
	case leaving:
		return nil
	case resting:
		if c.n > 0 && c.over(now) {
			return nil
		}
		c.begin(now)
	case wanting, missed, releasing: // missed: it tries again
	}
	c.state = wanting
	c.n++
	if c.take.Swap = c.tag + c.n; c.run.Bits {
		c.take.Swap = 1
	}
	return &c.take
}

// begin makes the client try for a lock from now on: the next one, if there are several.
func (c *Locker) begin(now clock.Time) {
	c.since, c.seen, c.take.CompareAdd = now, 0, 0
	if c.pick != nil {
		at := c.pick()
		c.take.RemoteAddr, c.free.RemoteAddr = at, at
	}
}

// over reports that the run has ended.
func (c *Locker) over(now clock.Time) bool {
	return now >= c.run.Until || c.run.Over != nil && c.run.Over()
}

// Done takes the answer of a CAS or of a release.
func (c *Locker) Done(now clock.Time) {
	if c.state == releasing {
		c.state = resting
		return
	}
	l := c.run
	counts := l.Holds(now)
	if counts {
		l.Attempts++
	}
	found := binary.NativeEndian.Uint64(c.prior)
	switch {
	case found == c.take.CompareAdd:
		c.state = holding
		if counts {
			l.Acquired++
			l.record(now.Sub(c.since))
			if l.Bits {
				l.Freed++
			}
		}
		if found != 0 {
			l.TakenOver++
		}
	case c.over(now):
		c.state = leaving
		l.record(l.Until.Sub(c.since))
	default:
		c.state = missed
		c.look(now, found)
	}
}

// look returns the compare value of the next CAS: 0, or the value of an owner that has stayed in
// the word for TakeOver.
func (c *Locker) look(now clock.Time, found uint64) {
	if found != c.seen {
		c.seen, c.seenSince = found, now
	}
	if c.take.CompareAdd = 0; c.run.TakeOver > 0 && now.Sub(c.seenSince) > c.run.TakeOver {
		c.take.CompareAdd = found
	}
}
