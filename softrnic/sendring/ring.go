package sendring

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// MaxRing is the largest number of blocks of a ring: an index of 16 bits tells two positions
	// apart only within half of its range.
	MaxRing = 1 << 15
	// MaxPrefetch is the largest number of blocks that are read at once.
	MaxPrefetch = 64
	// DefaultPrefetch is what a ring reads at once that is not managed.
	DefaultPrefetch = 4

	// The time that the NIC takes for an entry, for a WAIT and for an ENABLE: the marginal costs of
	// a request in WQ order, completion order and doorbell order are 0.17, 0.19 and 0.54 µs (RedN,
	// Figure 8), and a request in doorbell order is preceded by both.
	entryCost  = 170 * time.Nanosecond
	waitCost   = 20 * time.Nanosecond
	enableCost = 350 * time.Nanosecond
)

// Config describes a ring.
type Config = verbs.RingInit

// withDefaults returns c with its zero values replaced by defaults.
func withDefaults(c Config, inFlight int) (Config, error) {
	fail := func(format string, args ...any) (Config, error) {
		return c, &verbs.OpError{Op: "use ring", Err: verbs.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
	}
	if c.Prefetch == 0 {
		c.Prefetch = DefaultPrefetch
		if c.Managed {
			c.Prefetch = 1
		}
	}
	switch {
	case c.Blocks < 1 || c.Blocks > MaxRing || bits.OnesCount(uint(c.Blocks)) != 1:
		return fail("%d blocks; choose a power of two up to %d", c.Blocks, MaxRing)
	case c.Addr%BlockSize != 0:
		return fail("address %#x is not a multiple of %d", c.Addr, BlockSize)
	case c.Prefetch < 0 || c.Prefetch > MaxPrefetch:
		return fail("prefetch %d; choose 1 to %d", c.Prefetch, MaxPrefetch)
	case inFlight < 1:
		return fail("%d entries in flight; at least 1", inFlight)
	}
	return c, nil
}

// Host is what a ring needs of its NIC.
type Host interface {
	// Fetch reads local memory of the queue pair's protection domain. It returns false if the key
	// or the range is wrong.
	Fetch(dst []byte, s verbs.SGE) bool
	// Completions returns how many completions a queue has counted. It returns false if no queue
	// pair of the protection domain uses the queue.
	Completions(cq uint32) (uint32, bool)
	// Enable moves the limit of a managed ring of the protection domain. It returns false if there
	// is none.
	Enable(qp wire.QPN, index uint32) bool
	// EnableReceives lets a queue pair of the protection domain use its receives again, in front of
	// an index, of which with narrow 16 bits count. It returns false if there is none that can.
	EnableReceives(qp wire.QPN, index uint32, narrow bool) bool
	// Post queues a work request. An error fails the entry.
	Post(wr *verbs.SendWR) error
	// Executed is told of each entry that has been executed or was refused. It keeps no reference.
	Executed(ev *Event)
}

// Event describes an entry for a trace.
type Event struct {
	Index  uint32
	Bytes  []byte // of the entry, as they were executed; valid during the call
	Entry  *Entry
	Err    error // why the entry was refused; nil means that it was executed
	Waited bool  // a WAIT or a fence had to wait
}

// Ring is the send queue of one queue pair. New makes one.
type Ring struct {
	cfg         Config
	qpn         wire.QPN
	state       State
	next, limit uint32
	fetched     fetched
	cur         Entry // the entry at next, if held
	held        bool  // cur was parsed; it waits for what state says
	waited      bool
	raw         [MaxBlocks * BlockSize]byte
	inFlight    inFlight
	bad         verbs.Status // of a failing ring
	// What the Host is handed; fields, because local variables would be allocated on the heap.
	wr     verbs.SendWR
	ev     Event
	number [calcLen]byte // of MAX and MIN
}

// New returns a ring for queue pair qpn, of which at most inFlight entries are in flight. Its next
// entry is the one with index 0.
func New(qpn wire.QPN, cfg Config, inFlight int) (*Ring, error) {
	cfg, err := withDefaults(cfg, inFlight)
	if err != nil {
		return nil, err
	}
	return &Ring{cfg: cfg, qpn: qpn, inFlight: newInFlight(inFlight)}, nil
}

// Config returns the configuration with its defaults.
func (r *Ring) Config() Config { return r.cfg }

// State returns what the ring waits for.
func (r *Ring) State() State { return r.state }

// Due reports whether the ring can execute an entry, or complete the one that has failed.
func (r *Ring) Due() bool { return r.state == Ready || r.state == Failing && r.inFlight.n == 0 }

// Position returns the index of the next entry, and the limit: the index of the first entry that
// may not be executed.
func (r *Ring) Position() (next, limit uint32) { return r.next, r.limit }

// WaitsFor returns the completion queue of the WAIT that a waiting ring is at.
func (r *Ring) WaitsFor() uint32 { return r.cur.Object }

// Reset makes the ring start at index 0 and forgets what is in flight.
func (r *Ring) Reset() {
	*r = Ring{cfg: r.cfg, qpn: r.qpn, inFlight: newInFlight(len(r.inFlight.all))}
}

// Stop ends the ring. An entry that has failed and waits for its completion is flushed.
func (r *Ring) Stop() {
	if r.state == Failing {
		r.bad = verbs.WRFlushErr
		return
	}
	r.state.on(stopped)
}

// Enable moves the limit to index, forward only. The index is the one nearest to the next entry
// that has these 32 bits, or with Counts16 these 16 bits.
func (r *Ring) Enable(index uint32) {
	ahead := int32(index - r.next)
	if r.cfg.Counts16 {
		ahead = int32(int16(index - r.next))
	}
	if ahead > int32(r.limit-r.next) {
		r.limit = r.next + uint32(ahead)
		r.state.on(limitMoved)
	}
}

// reached reports whether a counter has reached the count of a WAIT.
func (r *Ring) reached(now, want uint32) bool {
	if r.cfg.Counts16 {
		return int16(now-want) >= 0
	}
	return int32(now-want) >= 0
}

// Counted is called when a completion queue has counted further completions.
func (r *Ring) Counted(h Host) {
	if r.state != Waiting {
		return
	}
	n, ok := h.Completions(r.cur.Object)
	switch {
	case !ok:
		r.refuse(h, errObject, verbs.LocQPOpErr)
	case r.reached(n, r.cur.Count):
		r.state.on(countReached)
	}
}

// Run executes up to budget entries. It returns the time that they take in hardware; the caller
// calls Run again after that time, if the ring is Ready then.
func (r *Ring) Run(h Host, budget int) (ran int, took time.Duration) {
	for ran < budget && r.state == Ready {
		if r.next == r.limit {
			r.state.on(limitReached)
			break
		}
		if !r.held && !r.fetch(h) {
			ran++
			break
		}
		if !r.step(h) {
			continue
		}
		ran++
		took += cost(r.cur.Op)
	}
	if r.state == Ready && r.next == r.limit {
		r.state.on(limitReached)
	}
	return ran, took
}

func cost(op Opcode) time.Duration {
	switch op {
	case Wait:
		return waitCost
	case Enable, RecvEnable:
		return enableCost
	default:
		return entryCost
	}
}

// step executes the entry in cur. It returns false if the entry must wait.
func (r *Ring) step(h Host) bool {
	e := &r.cur
	switch {
	case e.Flags&Fence != 0 && r.inFlight.reads > 0:
		r.state.on(readsInFlight)
	case r.inFlight.full():
		r.state.on(queueFull)
	case e.Op == Wait:
		n, ok := h.Completions(e.Object)
		if !ok {
			r.refuse(h, errObject, verbs.LocQPOpErr)
			return true
		}
		if !r.reached(n, e.Count) {
			r.state.on(countMissing)
		}
	case e.Op == Enable && !h.Enable(wire.QPN(e.Object), e.Count),
		e.Op == RecvEnable && !h.EnableReceives(wire.QPN(e.Object), e.Count, r.cfg.Counts16):
		r.refuse(h, errObject, verbs.LocQPOpErr)
		return true
	}
	if r.state != Ready {
		r.waited = true
		return false
	}
	if !e.Op.Control() {
		r.wr = e.workRequest(uint64(r.next), e.SGL[:e.NSGE])
		if e.Op.of().calc && !r.calculate(h, e) {
			return true
		}
		if err := h.Post(&r.wr); err != nil {
			r.refuse(h, err, verbs.LocQPOpErr)
			return true
		}
	}
	r.inFlight.add(flight{index: r.next, posted: !e.Op.Control(), read: e.Op.Answered(), signalled: e.Flags&Signalled != 0})
	r.ev = Event{Index: r.next, Bytes: r.raw[:e.Len()], Entry: e, Waited: r.waited}
	h.Executed(&r.ev)
	r.next += uint32(e.Len() / BlockSize)
	r.held, r.waited = false, false
	return true
}

// refuse fails the entry at next: it completes with status when all earlier ones are complete.
func (r *Ring) refuse(h Host, err error, status verbs.Status) {
	r.bad = status
	r.state.on(entryBad)
	r.ev = Event{Index: r.next, Bytes: r.raw[:BlockSize], Entry: &r.cur, Err: err}
	h.Executed(&r.ev)
}
