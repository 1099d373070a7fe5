package perftestpeer

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Places in the exchange of ibv_srq_pingpong: always so many, of which the first -q are used.
const srqPlaces = 256

// maxQueuePairs of ibv_srq_pingpong.
const maxQueuePairs = 127

// ibv_srq_pingpong sends zeros, unlike its variants for rc, uc and ud.
const (
	srqFill  = 0
	srqBlank = 0xee
)

// srqRun is an ibv_srq_pingpong: several RC queue pairs that take their receives from one queue.
type srqRun struct {
	Pingpong
	rt   verbs.Runtime
	pd   verbs.PD
	cq   verbs.CQ
	srq  verbs.SRQ
	mr   verbs.MR
	qps  []*srqQP
	byQP map[wire.QPN]*srqQP
	our  []place

	slots      int
	got, blank []byte
	sent, rcvd int
	wcs        [32]verbs.WC
}

// srqQP is one queue pair of the run. It sends again when its last message has completed and the
// peer's message has arrived.
type srqQP struct {
	verbs.QP
	sending, awaiting bool
}

// runSRQ does what Run does.
func (p Pingpong) runSRQ(ctx verbs.Context, conn io.ReadWriter) (r Result, err error) {
	s := &srqRun{Pingpong: p, rt: ctx.Runtime(), byQP: map[wire.QPN]*srqQP{}, slots: min(p.Depth, max(1, 16<<20/p.Size))}
	if s.Patience == 0 {
		s.Patience = patience
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err = s.open(ctx); err != nil {
		return r, err
	}
	if err = s.exchange(ctx, conn); err != nil {
		return r, err
	}
	r.QPN = uint32(s.our[0].QPN)
	begin := s.rt.Now()
	err = s.play()
	r.Elapsed = s.rt.Now().Sub(begin)
	r.Iters, r.Bytes = min(s.sent, s.rcvd), uint64(s.sent+s.rcvd)*uint64(s.Size)
	r.rates()
	if err == nil {
		s.rt.Sleep(farewell)
	}
	return r, err
}

// open makes all objects and posts the receives. The first slot is what is sent; fresh memory is
// zero.
func (s *srqRun) open(ctx verbs.Context) (err error) {
	if s.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	if s.cq, err = ctx.CreateCQ(s.slots + 2*s.QueuePairs); err != nil {
		return err
	}
	if s.srq, err = s.pd.CreateSRQ(verbs.SRQInit{MaxWR: s.slots}); err != nil {
		return err
	}
	if s.mr, err = s.pd.RegMR(nil, s.Size*(s.slots+1), verbs.LocalWrite); err != nil {
		return err
	}
	s.got, s.blank = make([]byte, s.Size), bytes.Repeat([]byte{srqBlank}, s.Size)
	for i := range s.slots {
		if err := s.receive(i + 1); err != nil {
			return err
		}
	}
	gid, err := announced(ctx, s.Source)
	if err != nil {
		return err
	}
	for range s.QueuePairs {
		qp, err := s.pd.CreateQP(verbs.QPInit{SendCQ: s.cq, RecvCQ: s.cq, SRQ: s.srq, MaxSendWR: 4, SignalAll: true})
		if err != nil {
			return err
		}
		q := &srqQP{QP: qp}
		s.qps, s.byQP[qp.QPN()] = append(s.qps, q), q
		s.our = append(s.our, place{QPN: qp.QPN(), PSN: wire.PSN(s.rt.Rand().Uint32() & 0xffffff), GID: ctx.Device().GIDs[gid]})
		if err := qp.ToInit(verbs.ToInit{}); err != nil {
			return err
		}
	}
	return nil
}

// exchange swaps all places, the unused ones empty. The server is connected before it answers, the
// client after.
func (s *srqRun) exchange(ctx verbs.Context, conn io.ReadWriter) error {
	var text []byte
	for i := range srqPlaces {
		if i < len(s.our) {
			text = s.our[i].AppendTo(text)
		} else {
			text = (&place{}).AppendTo(text)
		}
	}
	say := func() error { _, err := conn.Write(text); return err }
	hear := func() error {
		b := make([]byte, srqPlaces*placeLen)
		if _, err := io.ReadFull(conn, b); err != nil {
			return fmt.Errorf("exchange: %w", err)
		}
		return s.connect(ctx, b)
	}
	done := func() error { _, err := conn.Write([]byte(doneText)); return err }
	steps := []func() error{say, hear, done}
	if s.Server {
		await := func() error { _, err := io.ReadFull(conn, make([]byte, len(doneText))); return err }
		steps = []func() error{hear, say, await}
	}
	for _, f := range steps {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// connect takes all queue pairs to RTS.
func (s *srqRun) connect(ctx verbs.Context, text []byte) error {
	gid, err := announced(ctx, s.Source)
	if err != nil {
		return err
	}
	for i, q := range s.qps {
		var p place
		if err := p.Parse(text[i*placeLen : (i+1)*placeLen]); err != nil {
			return err
		}
		if err := noAddress(p.GID); err != nil {
			return err
		}
		err := q.ToRTR(verbs.ToRTR{
			DestQPN: p.QPN, DestGID: p.GID, SourceGID: gid, RecvPSN: p.PSN, PathMTU: verbs.MTU(s.MTU), MaxDestRdAtomic: 1, MinRNRTimer: rnrTimer,
		})
		if err != nil {
			return err
		}
		if err := q.ToRTS(verbs.ToRTS{SendPSN: s.our[i].PSN, Timeout: timeoutCode, RetryCount: retries, RNRRetry: 7, MaxRdAtomic: 1}); err != nil {
			return err
		}
	}
	return nil
}

// receive posts a slot, in which there is something else than what will come.
func (s *srqRun) receive(slot int) error {
	if err := s.mr.WriteAt(s.blank, slot*s.Size); err != nil {
		return err
	}
	return s.srq.PostRecv(verbs.RecvWR{ID: uint64(slot), SGL: []verbs.SGE{s.mr.SGE(slot*s.Size, s.Size)}})
}

func (s *srqRun) send(q *srqQP) error {
	q.sending, q.awaiting = true, true
	return q.PostSend(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{s.mr.SGE(0, s.Size)}})
}

// play runs until the agreed number of messages has been sent and received, over all queue pairs
// together.
func (s *srqRun) play() error {
	for _, q := range s.qps {
		q.awaiting = true
		if !s.Server {
			if err := s.send(q); err != nil {
				return err
			}
		}
	}
	for s.sent < s.Iters || s.rcvd < s.Iters {
		if err := s.cq.Wait(s.rt.Now().Add(s.Patience)); err != nil {
			return fmt.Errorf("no completion: %w", err)
		}
		n, err := s.cq.Poll(s.wcs[:])
		if err != nil {
			return err
		}
		for i := range s.wcs[:n] {
			if err := s.completed(&s.wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *srqRun) completed(wc *verbs.WC) error {
	if wc.Status != verbs.Success {
		return statusError(wc)
	}
	q := s.byQP[wc.QPN]
	if wc.Opcode == verbs.WCRecv {
		s.rcvd++
		q.awaiting = false
		if int(wc.ByteLen) != s.Size {
			return fmt.Errorf("%w: message %d has %d bytes, not %d; both sides must be given the same size", ErrWrong, s.rcvd, wc.ByteLen, s.Size)
		}
		if err := s.mr.ReadAt(s.got, int(wc.ID)*s.Size); err != nil {
			return err
		}
		if err := filled(s.got, srqFill, s.rcvd); err != nil {
			return err
		}
		if err := s.receive(int(wc.ID)); err != nil {
			return err
		}
	} else {
		s.sent++
		q.sending = false
	}
	if s.sent < s.Iters && !q.sending && !q.awaiting {
		return s.send(q)
	}
	return nil
}

// close destroys everything.
func (s *srqRun) close() error {
	var errs []error
	for _, q := range s.qps {
		errs = append(errs, q.Destroy())
	}
	if s.srq != nil {
		errs = append(errs, s.srq.Destroy())
	}
	if s.mr != nil {
		errs = append(errs, s.mr.Dereg())
	}
	if s.cq != nil {
		errs = append(errs, s.cq.Destroy())
	}
	if s.pd != nil {
		errs = append(errs, s.pd.Dealloc())
	}
	return errors.Join(errs...)
}
