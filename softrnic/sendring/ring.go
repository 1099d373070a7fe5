package sendring

import (
	"math/bits"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// MaxRing is the largest number of blocks of a ring. With an index of 16 bits, a ring can order
	// two positions only within half of the range.
	MaxRing = 1 << 15
	// MaxPrefetch is the largest number of blocks of a ring that are read in one access to memory.
	MaxPrefetch = 64
	// MaxRate is the largest rate of a ring that has a limit, in entries a second.
	MaxRate = 1_000_000_000
	// DefaultPrefetch is how many blocks a ring that is not managed reads at once by default.
	DefaultPrefetch = 4
)

// Config describes a ring.
type Config = verbs.RingInit

// withDefaults returns c with defaults in place of zeros. inFlight is the number of entries that
// may be in flight.
func withDefaults(c Config, inFlight int) (Config, error) {
	fail := func(format string, args ...any) (Config, error) {
		return c, verbs.Errorf("use ring", verbs.ErrInvalid, format, args...)
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
	case c.Rate < 0 || c.Rate > MaxRate:
		return fail("%d entries a second; choose 1 to %d, or 0 for no limit", c.Rate, MaxRate)
	case inFlight < 1:
		return fail("%d entries in flight; at least 1", inFlight)
	}
	return c, nil
}

// Host has the functions of the NIC that a ring uses.
type Host interface {
	// Fetch reads local memory of the queue pair's protection domain. It returns false if the key
	// or the range is wrong.
	Fetch(dst []byte, s verbs.SGE) bool
	// Completions returns how many completions were added to a completion queue. It returns false if
	// no queue pair of the ring's protection domain uses the queue.
	Completions(cq uint32) (uint32, bool)
	// Enable moves the limit of the managed ring of queue pair qp. It returns false if the protection
	// domain has no such ring.
	Enable(qp wire.QPN, index uint32) bool
	// EnableReceives lets queue pair qp use its receives in front of index again. If narrow is true,
	// only the low 16 bits of index are used (see RingInit.Counts16). It returns false if the
	// protection domain has no such queue pair, or if its receives cannot be used again.
	EnableReceives(qp wire.QPN, index uint32, narrow bool) bool
	// Post queues a work request on the queue pair. If it returns an error, the entry fails.
	Post(wr *verbs.SendWR) error
	// Executed is called for each entry that was executed or refused. It must not keep ev.
	Executed(ev *Event)
}

// Event describes an executed or refused entry for a trace.
type Event struct {
	Index uint32
	Bytes []byte // bytes of the entry as they were executed; valid during the call
	Entry *Entry
	Err   error // why the entry was refused; nil means that it was executed
}

// Ring is the send queue of one queue pair. New makes one.
type Ring struct {
	cfg         Config
	costs       Costs
	qpn         wire.QPN
	state       State
	next, limit uint32 // see Position
	fetched     fetched
	cur         Entry                       // the entry at index next, if held is set
	held        bool                        // cur was parsed, and waits as state says
	raw         [MaxBlocks * BlockSize]byte // bytes of the entry at index next
	inFlight    inFlight
	bad         verbs.Status // status of the entry that has failed, in state Failing
	// wr, ev and number are arguments for calls of the Host. They are fields, because local
	// variables would be allocated on the heap.
	wr     verbs.SendWR
	ev     Event
	number [calcLen]byte // result of a MAX or MIN
}

// New returns a ring for queue pair qpn. At most inFlight entries are in flight. The first entry
// has index 0. costs are the execution times of entries; zeros mean the defaults.
func New(qpn wire.QPN, cfg Config, costs Costs, inFlight int) (*Ring, error) {
	cfg, err := withDefaults(cfg, inFlight)
	if err != nil {
		return nil, err
	}
	return &Ring{cfg: cfg, costs: costs.withDefaults(), qpn: qpn, inFlight: newInFlight(inFlight)}, nil
}

// Config returns the configuration with its defaults.
func (r *Ring) Config() Config { return r.cfg }

// State returns what the ring waits for.
func (r *Ring) State() State { return r.state }

// Due reports whether the ring must act: it can execute an entry, or complete the one that has
// failed.
func (r *Ring) Due() bool { return r.state == Ready || r.state == Failing && r.inFlight.n == 0 }

// Position returns the index of the next entry, and the limit: the index of the first entry that
// may not be executed.
func (r *Ring) Position() (next, limit uint32) { return r.next, r.limit }

// WaitsFor returns the number of the completion queue for which a ring in state Waiting waits.
func (r *Ring) WaitsFor() uint32 { return r.cur.Object }

// Reset makes the ring start at index 0 again. It forgets the entries in flight.
func (r *Ring) Reset() {
	*r = Ring{cfg: r.cfg, costs: r.costs, qpn: r.qpn, inFlight: newInFlight(len(r.inFlight.all))}
}

// Stop ends the ring, because its queue pair no longer sends. An entry that has failed and waits
// for its completion is flushed.
func (r *Ring) Stop() {
	if r.state == Failing {
		r.bad = verbs.WRFlushErr
		return
	}
	r.state.on(stopped)
}

// Enable moves the limit forward to index. Of all indexes that have these 32 bits (with Counts16,
// these 16 bits), it takes the one nearest to the next entry.
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

// reached reports whether `now`, a count of completions, has reached `want`, the count of a WAIT.
func (r *Ring) reached(now, want uint32) bool {
	if r.cfg.Counts16 {
		return int16(now-want) >= 0
	}
	return int32(now-want) >= 0
}

// Counted is called when completions were added to the completion queue for which the ring waits.
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

// Run executes up to budget entries. `ran` is their number, including one that was refused. `took`
// is the time that hardware would need for them. The caller must not call Run again before that
// time has passed.
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
		took += r.cost(r.cur.Op)
	}
	if r.state == Ready && r.next == r.limit {
		r.state.on(limitReached)
	}
	return ran, took
}

// Price returns the time that hardware would need for the next entry. It is 0 if there is none, or
// if the entry was begun and waits. The entry may still change before Run reads it.
func (r *Ring) Price(h Host) time.Duration {
	if r.state != Ready || r.held || r.next == r.limit {
		return 0
	}
	if f := &r.fetched; r.next-f.from < f.n {
		f.copy(r.next, r.raw[:])
	} else {
		place := r.next & uint32(r.cfg.Blocks-1)
		if !h.Fetch(r.raw[:BlockSize], verbs.SGE{Addr: r.cfg.Addr + uint64(place)*BlockSize, Length: BlockSize, LKey: r.cfg.LKey}) {
			return 0 // Run refuses the entry
		}
	}
	return r.cost(Opcode(r.raw[OffOpcode]))
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
	r.ev = Event{Index: r.next, Bytes: r.raw[:e.Len()], Entry: e}
	h.Executed(&r.ev)
	r.next += uint32(e.Len() / BlockSize)
	r.held = false
	return true
}

// refuse makes the entry at index next fail. The entry completes with status when all earlier
// entries have completed.
func (r *Ring) refuse(h Host, err error, status verbs.Status) {
	r.bad = status
	r.state.on(entryBad)
	r.ev = Event{Index: r.next, Bytes: r.raw[:BlockSize], Entry: &r.cur, Err: err}
	h.Executed(&r.ev)
}
