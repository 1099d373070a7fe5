package perf

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// LockResult is what a run of locks found.
type LockResult struct {
	// Attempts are CAS that were answered, Acquired those that took the lock, TakenOver of these from somebody who did not move for
	// half of the run, as after one that was killed.
	Attempts  uint64 `json:"attempts"`
	Acquired  uint64 `json:"acquired"`
	TakenOver uint64 `json:"takenOver,omitempty"`
	// Waits are the times from the first CAS for the lock to the answer of the one that took it, in nanoseconds: a histogram in the
	// compressed encoding of HdrHistogram. Who waits in vain at the end counts with the time so far.
	Waits []byte `json:"waits"`
}

// Histogram is Waits.
func (r *LockResult) Histogram() (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode(r.Waits)
	if err != nil {
		return nil, fmt.Errorf("waits for locks: %w", err)
	}
	return h, nil
}

const (
	// stuckShare is for which share of the run a word must stay the same for its owner to be taken for dead.
	stuckShare = 2
	// defaultSpan is the default of Config.Span.
	defaultSpan = time.Second
)

// locker is one of many clients that take a lock and release it: a queue pair with one operation under way. Numbers that it puts into
// the word are its own.
type locker struct {
	qp         verbs.QP
	take, free verbs.SendWR
	slot       int
	tag        uint64
	since      clock.Time // of its first CAS for the lock
	holds      bool       // the WRITE that releases is under way
	seen       uint64     // in the word
	seenSince  clock.Time
}

// planLocks is for locks: cfg.Clients queue pairs of one thread take one lock by CAS and release it by a WRITE of zero for
// cfg.Span. The lock is the last word of the memory that all clients of the host share, or of its lock table on the NIC.
func planLocks(c *Config) plan {
	return plan{local: atomicSize * (c.Clients + 1), slot: atomicSize, hello: hello{Op: opOpen, Bytes: atomicSize}, run: func(s *session, res *Result) error {
		return s.locks(res)
	}}
}

func (s *session) locks(res *Result) (err error) {
	cq, err := s.ctx.CreateCQ(s.cfg.Clients + 1)
	if err != nil {
		return err
	}
	all := make([]*locker, 0, s.cfg.Clients)
	defer func() {
		for _, l := range all {
			err = errors.Join(err, l.qp.Destroy())
		}
		err = errors.Join(err, cq.Destroy())
	}()
	byQP := make(map[uint32]*locker)
	for i := range s.cfg.Clients {
		l, err := s.newLocker(cq, i)
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		all = append(all, l)
		byQP[uint32(l.qp.QPN())] = l
	}
	run := lockRun{session: s, cq: cq, byQP: byQP, waits: hdrhistogram.New(1, int64(maxLatency), latencyDigits)}
	start := s.rt.Now()
	run.until = start.Add(s.cfg.Span)
	err = run.run(all)
	res.Elapsed = min(s.rt.Now().Sub(start), s.cfg.Span)
	waits, encErr := run.waits.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	run.Waits, res.Locks = waits, &run.LockResult
	return errors.Join(err, encErr)
}

func (s *session) newLocker(cq verbs.CQ, i int) (*locker, error) {
	qp, err := s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: s.rcq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1})
	if err != nil {
		return nil, err
	}
	mem, err := DialOwned(s.dialer, qp, s.to, s.cfg.params(), MemoryHello{}, s.rt.Now().Add(dialPatience))
	if err == nil && s.cfg.Device && mem.Locks.Len < atomicSize {
		err = fmt.Errorf("%s has no lock table on its NIC", s.peer())
	}
	if err != nil {
		return nil, errors.Join(err, qp.Destroy())
	}
	at := mem.Region
	if s.cfg.Device {
		at = mem.Locks
	}
	off := (at.Len - atomicSize) &^ (atomicSize - 1)
	zero := s.cfg.Clients
	l := &locker{qp: qp, slot: i, tag: s.pat.base(uint64(i)<<40) | 1}
	l.take = verbs.SendWR{Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: s.sges[i : i+1]}
	l.free = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: s.sges[zero : zero+1]}
	at.at(&l.take, off)
	at.at(&l.free, off)
	return l, nil
}

// lockRun is a run of locks in progress.
type lockRun struct {
	*session
	LockResult
	cq    verbs.CQ
	byQP  map[uint32]*locker
	waits *hdrhistogram.Histogram
	until clock.Time
	busy  int
}

func (r *lockRun) run(all []*locker) error {
	for _, l := range all {
		if err := r.begin(l); err != nil {
			return err
		}
	}
	idle := r.rt.Now()
	for r.busy > 0 {
		n, err := r.cq.Poll(r.wcs[:])
		if err != nil {
			return err
		}
		if n == 0 {
			if r.rt.Now().Sub(idle) > r.cfg.Patience {
				return fmt.Errorf("nothing was answered for %v: %w", r.cfg.Patience, verbs.ErrTimeout)
			}
			if err := r.cq.Wait(r.rt.Now().Add(100 * time.Millisecond)); err != nil && !errors.Is(err, verbs.ErrTimeout) {
				return err
			}
			continue
		}
		idle = r.rt.Now()
		for i := range r.wcs[:n] {
			wc := &r.wcs[i]
			l := r.byQP[uint32(wc.QPN)]
			if wc.Status != verbs.Success {
				op := "CMP_SWAP"
				if l.holds {
					op = "WRITE"
				}
				return &CompletionError{Op: op, Msg: l.tag, Status: wc.Status, Vendor: wc.VendorErr}
			}
			r.busy--
			if err := r.answered(l); err != nil {
				return err
			}
		}
		r.tell("locks", int(r.cfg.Span-r.until.Sub(r.rt.Now())), int(r.cfg.Span))
	}
	return nil
}

// begin has a client want the lock.
func (r *lockRun) begin(l *locker) error {
	l.since, l.seen = r.rt.Now(), 0
	l.take.CompareAdd = 0
	return r.try(l)
}

func (r *lockRun) try(l *locker) error {
	l.tag += 2
	l.take.Swap = l.tag
	r.busy++
	return l.qp.PostSend(l.take)
}

// answered takes the answer of a client's operation, and goes on with it while there is time. What is held is released in any case.
func (r *lockRun) answered(l *locker) error {
	now := r.rt.Now()
	over := now >= r.until || r.cfg.Cancelled != nil && r.cfg.Cancelled()
	if l.holds {
		if l.holds = false; over {
			return nil
		}
		return r.begin(l)
	}
	if now < r.until {
		r.Attempts++
	}
	found := nativeWord(r.slot(l.slot))
	if found == l.take.CompareAdd {
		if now < r.until {
			r.Acquired++
			record(r.waits, now.Sub(l.since))
		}
		if found != 0 {
			r.TakenOver++
		}
		l.holds = true
		r.busy++
		return l.qp.PostSend(l.free)
	}
	if over {
		record(r.waits, cmp.Or(max(0, r.until.Sub(l.since)), 1))
		return nil
	}
	if found != l.seen {
		l.seen, l.seenSince = found, now
	}
	if l.take.CompareAdd = 0; found != 0 && now.Sub(l.seenSince) > r.cfg.Span/stuckShare {
		l.take.CompareAdd = found
	}
	return r.try(l)
}
