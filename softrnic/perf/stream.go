package perf

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// postBatch is the largest number of work requests in one post.
const postBatch = 32

// cancelPoll is how often a wait checks whether the run was cancelled.
const cancelPoll = 100 * time.Millisecond

// stream describes a series of similar work requests, of which a limited number is in flight.
type stream struct {
	op           string // name of the operation, for errors and progress
	total        int
	depth, every int // depth is the largest number of messages in flight; one of `every` messages is signalled
	// wr fills in the operation, memory and peer address of message k. The session sets flags and ID.
	wr func(k int, wr *verbs.SendWR)
	// done is called for each message, in order, when it is complete. It may be nil.
	done func(k int) error
	// seen is called after each batch of completions. complete is the number of messages that are
	// complete. seen may be nil.
	seen func(now clock.Time, complete int)
	// index is the number of the stream's first message. Errors and progress name message k of the
	// stream by index+k.
	index int
	// until, if not 0, is when posting ends: one message more, which is signalled, is then the last.
	until clock.Time
}

// run posts all messages and waits for all completions.
func (s *session) run(j stream) error {
	posted, complete := 0, 0
	for complete < j.total {
		if j.until != 0 && s.rt.Now() >= j.until {
			j.total, j.until = min(j.total, posted+1), 0
		}
		n, err := s.post(&j, posted, complete)
		if err != nil {
			return fmt.Errorf("%s %d: %w", j.op, j.index+posted+n, err)
		}
		posted += n
		before := complete
		if complete, err = s.reap(&j, complete); err != nil {
			return err
		}
		if complete == before {
			if err := s.wait(s.cq, j.op, j.index+complete); err != nil {
				return err
			}
		}
		s.Tell(j.op, j.index+complete, j.index+j.total)
	}
	return nil
}

// post posts further messages, at most one batch, as far as the window has room.
func (s *session) post(j *stream, posted, complete int) (int, error) {
	n := min(j.total-posted, j.depth-(posted-complete), postBatch)
	if n <= 0 {
		return 0, nil
	}
	s.batch = s.batch[:0]
	for k := posted; k < posted+n; k++ {
		s.batch = append(s.batch, verbs.SendWR{ID: uint64(k)})
		wr := &s.batch[len(s.batch)-1]
		j.wr(k, wr)
		if (k+1)%j.every == 0 || k == j.total-1 {
			wr.Flags |= verbs.Signalled
		}
		if size := len(wr.SGL); size == 1 && s.cfg.Inline > 0 && int(wr.SGL[0].Length) <= s.cfg.Inline && inlinable(wr.Op) {
			wr.Flags |= verbs.Inline
			wr.Data = s.local(wr.SGL[0])
			wr.SGL = nil
		}
	}
	err := s.qp.PostSend(s.batch...)
	if err == nil {
		return n, nil
	}
	var op *verbs.OpError
	if errors.As(err, &op) {
		return op.Index, err
	}
	return 0, err
}

func inlinable(op verbs.WROpcode) bool { return op == verbs.OpSend || op == verbs.OpWrite }

// reap polls the completion queue once. complete is the number of messages of the stream that were
// complete before the call. reap returns the number that are complete now.
func (s *session) reap(j *stream, complete int) (int, error) {
	n, err := s.cq.Poll(s.wcs[:])
	if err != nil {
		return complete, err
	}
	for _, wc := range s.wcs[:n] {
		if wc.Status != verbs.Success {
			return complete, &CompletionError{Op: j.op, Msg: uint64(j.index) + wc.ID, Status: wc.Status, Vendor: wc.VendorErr}
		}
		if wc.ID < uint64(complete) || wc.ID >= uint64(j.total) {
			return complete, fmt.Errorf("%s: completion of work request %d arrived after that of %d: order is broken", j.op, wc.ID, complete-1)
		}
		for ; complete <= int(wc.ID); complete++ {
			if j.done == nil {
				continue
			}
			if err := j.done(complete); err != nil {
				return complete, err
			}
		}
	}
	if n > 0 && j.seen != nil {
		j.seen(s.rt.Now(), complete)
	}
	return complete, nil
}

// wait waits for a completion on cq, at most for cfg.Patience.
func (s *session) wait(cq verbs.CQ, op string, k int) error {
	end := s.rt.Now().Add(s.cfg.Patience)
	for {
		deadline := end
		if s.cfg.Cancelled != nil {
			if s.cfg.Cancelled() {
				return ErrCancelled
			}
			deadline = clock.Min(end, s.rt.Now().Add(cancelPoll))
		}
		err := cq.Wait(deadline)
		if err == nil || !errors.Is(err, verbs.ErrTimeout) {
			return err
		}
		if s.rt.Now() >= end {
			return fmt.Errorf("%s %d: no completion within %v, and no error either: the NIC has stopped, or its retry limits are off", op, k, s.cfg.Patience)
		}
	}
}

// once executes one work request of the given operation, between local memory and offset `off` of
// the peer's region r.
func (s *session) once(op string, code verbs.WROpcode, local verbs.SGE, r memservice.Region, off int) error {
	list := []verbs.SGE{local}
	return s.run(stream{op: op, total: 1, depth: 1, every: 1, wr: func(_ int, wr *verbs.SendWR) {
		wr.Op, wr.SGL = code, list
		aim(wr, r, off)
	}})
}

// aim sets the remote address and key of a work request: the peer's memory r from offset `off` on.
func aim(wr *verbs.SendWR, r memservice.Region, off int) {
	wr.RemoteAddr, wr.RKey = r.Addr+uint64(off), r.RKey
}
