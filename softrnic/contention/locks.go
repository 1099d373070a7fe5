package contention

import (
	"encoding/binary"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxWait and waitDigits are the range and the precision of the histogram of waits.
const (
	maxWait    = 10 * time.Minute
	waitDigits = 3
)

// Locks has the options and the counters of clients that take and release locks (Locker). The
// clients of a thread share one Locks.
type Locks struct {
	Window
	// Over, if not nil, is called before each CAS, except the first of each client. If it returns
	// true, the client ends, as it does at the end of the window.
	Over func() bool
	// Bits: a lock word is 0 or 1 and a CAS releases the lock, as in the clients of the SwordBox
	// paper. Otherwise the word holds a value of the lock's owner, and a WRITE of 0 releases the lock,
	// as in Sherman.
	Bits bool
	// TakeOver is the time after which a client takes a lock from its owner if the word has not
	// changed. The owner may have ended without releasing the lock. 0 means never.
	TakeOver time.Duration

	// Attempts counts the CAS for a lock whose answers arrived in the window. Acquired counts those
	// among them that took the lock. TakenOver counts the locks that were taken from another owner
	// after TakeOver, in the window or not.
	Attempts, Acquired, TakenOver uint64
	// Freed counts those of Acquired that the client releases by CAS: all with Bits, otherwise none.
	Freed uint64
	// Waits is a histogram of waiting times in nanoseconds: from the first CAS for a lock to the
	// answer of the CAS that took it. If a client still waits for a lock at the end of the run, its
	// wait until the end of the window is included.
	Waits *hdrhistogram.Histogram
}

// NewLocks returns a Locks with window w. Nothing is counted yet.
func NewLocks(w Window) *Locks {
	return &Locks{Window: w, Waits: hdrhistogram.New(1, int64(maxWait), waitDigits)}
}

func (l *Locks) record(d time.Duration) {
	_ = l.Waits.RecordValue(int64(min(max(d, 1), maxWait))) // cannot fail: the value is in the range
}

// Locker is a client that repeats a CAS until it has taken a lock, and then releases the lock.
type Locker struct {
	run        *Locks
	qp         verbs.QP
	take, free verbs.SendWR
	prior      []byte        // 8 bytes to which the NIC writes the original value of the word
	pick       func() uint64 // returns the address of the next lock; nil if the address stays the same
	tag, n     uint64        // n counts the posted CAS; the last one writes tag+n, or 1 if Locks.Bits is set
	state      lockState
	since      clock.Time // time of the first CAS for the lock
	seen       uint64     // value found in the word
	seenSince  clock.Time // since when the word has had this value
}

// lockState is the current step of a client.
type lockState uint8

const (
	resting   lockState = iota // no operation is in flight
	wanting                    // a CAS is in flight
	missed                     // the CAS found another owner
	holding                    // the CAS took the lock
	releasing                  // the release is in flight
	leaving                    // the run has ended
)

// Client returns a client that counts in l. take is the CAS: its remote address is that of the
// word, and its SGL names prior, which has 8 bytes. free is the release: its remote address is that
// of the word, and its SGL names 8 bytes that hold 0. pick, if not nil, returns the address of the
// word for each lock. The CAS write tag+1, tag+2 and so on, or always 1 if Bits is set.
func (l *Locks) Client(qp verbs.QP, take, free verbs.SendWR, prior []byte, pick func() uint64, tag uint64) *Locker {
	take.Op, take.Flags = verbs.OpCmpSwap, verbs.Signalled
	free.Op, free.Flags = verbs.OpWrite, verbs.Signalled
	if l.Bits {
		free.Op, free.CompareAdd = verbs.OpCmpSwap, 1
	}
	return &Locker{run: l, qp: qp, take: take, free: free, prior: prior, pick: pick, tag: tag}
}

func (c *Locker) QP() verbs.QP { return c.qp }

// Next returns the next CAS, or the release of a lock that the client has. It returns nil when the
// client has ended.
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
	case wanting, missed, releasing: // missed: the client tries again
	}
	c.state = wanting
	c.n++
	if c.take.Swap = c.tag + c.n; c.run.Bits {
		c.take.Swap = 1
	}
	return &c.take
}

// begin makes the client try to take the next lock.
func (c *Locker) begin(now clock.Time) {
	c.since, c.seen, c.take.CompareAdd = now, 0, 0
	if c.pick != nil {
		at := c.pick()
		c.take.RemoteAddr, c.free.RemoteAddr = at, at
	}
}

func (c *Locker) over(now clock.Time) bool {
	return now >= c.run.Until || c.run.Over != nil && c.run.Over()
}

// Done handles the answer to a CAS or a release.
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

// look chooses the compare value of the next CAS: 0, or found, the value that the last CAS has
// found in the word, if the word has had it for longer than TakeOver.
func (c *Locker) look(now clock.Time, found uint64) {
	if found != c.seen {
		c.seen, c.seenSince = found, now
	}
	if c.take.CompareAdd = 0; c.run.TakeOver > 0 && now.Sub(c.seenSince) > c.run.TakeOver {
		c.take.CompareAdd = found
	}
}
