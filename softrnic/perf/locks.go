package perf

import (
	"errors"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/softrnic/contention"
)

// LockResult is the result of a run of locks.
type LockResult struct {
	// Attempts counts the CAS that were answered. Acquired counts those that took the lock. TakenOver
	// counts locks that were taken from an owner whose word did not change for half of the run, for
	// example because it was killed. Freed counts releases by CAS.
	Attempts  uint64 `json:"attempts"`
	Acquired  uint64 `json:"acquired"`
	TakenOver uint64 `json:"takenOver,omitempty"`
	Freed     uint64 `json:"freed,omitempty"`
	// Waits has the times in nanoseconds from the first CAS for the lock to the answer of the CAS that
	// took it: a histogram in the compressed encoding of HdrHistogram. For a client that still waits
	// for the lock at the end, it has the time so far.
	Waits []byte `json:"waits"`
}

func (r *LockResult) Histogram() (*hdrhistogram.Histogram, error) {
	h, err := hdrhistogram.Decode(r.Waits)
	if err != nil {
		return nil, fmt.Errorf("waits for locks: %w", err)
	}
	return h, nil
}

// An owner of the lock counts as dead if its word has not changed for 1/stuckShare of the run.
const stuckShare = 2

// locks runs the test locks. One thread drives cfg.Clients queue pairs, which take one lock by CAS
// and release it, for the time cfg.Span. The lock is the last word of the memory that all clients
// of the host share, or of its lock table in device memory.
func (s *session) locks(res *Result) error {
	run := contention.NewLocks(contention.Window{})
	run.Over, run.Bits, run.TakeOver = s.cfg.Cancelled, s.cfg.Bits, s.cfg.Span/stuckShare
	err := s.onOneWord(res, func(w *sharedWord, i int) contention.Client {
		run.Until = s.rt.Now().Add(s.cfg.Span) // the run begins when the last client is connected
		return run.Client(w.qp, w.wr(s, i), w.wr(s, s.cfg.Clients), s.slot(i), nil, s.pat.base(uint64(i)<<40)|1<<63)
	}, func() { s.Tell("locks", int(s.cfg.Span-run.Until.Sub(s.rt.Now())), int(s.cfg.Span)) })
	res.Elapsed = min(res.Elapsed, s.cfg.Span)
	waits, encErr := run.Waits.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	res.Locks = &LockResult{Attempts: run.Attempts, Acquired: run.Acquired, TakenOver: run.TakenOver, Freed: run.Freed, Waits: waits}
	return errors.Join(err, encErr)
}
