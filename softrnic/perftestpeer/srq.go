package perftestpeer

import (
	"bytes"
	"errors"
	"io"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// srqPlaces is the number of places (see place) that ibv_srq_pingpong exchanges. Each place in use
// describes a queue pair; the other places are empty.
const srqPlaces = 256

// maxQueuePairs is the largest number of queue pairs of ibv_srq_pingpong.
const maxQueuePairs = 127

// srqFill is the byte that ibv_srq_pingpong sends; the other pingpong programs send fillByte.
// srqBlank is the byte that fills a receive before it is posted.
const (
	srqFill  = 0
	srqBlank = 0xee
)

// srqRun is a run of ibv_srq_pingpong: several RC queue pairs share one receive queue.
type srqRun struct {
	rally rally
	objects
	srq  verbs.SRQ
	qps  []*srqQP
	byQP map[wire.QPN]*srqQP
	our  []place // this side's places: they describe the queue pairs in qps, in the same order

	slots      int    // number of slots for receives
	got, blank []byte // the message that is being checked; the bytes that fill a slot before a receive
}

// srqQP is one queue pair of the run. It sends again when its last message has completed (sending
// is false) and the peer's message has arrived (awaiting is false).
type srqQP struct {
	verbs.QP
	sending, awaiting bool
}

func (p Pingpong) runSRQ(ctx verbs.Context, conn io.ReadWriter) (r Result, err error) {
	s := &srqRun{rally: rally{Pingpong: p}, byQP: map[wire.QPN]*srqQP{}, slots: min(p.Depth, max(1, 16<<20/p.Size))}
	defer func() { err = errors.Join(err, s.close()) }()
	source, err := announced(ctx, s.rally.Source)
	if err != nil {
		return r, err
	}
	if err = s.prepare(ctx, source); err != nil {
		return r, err
	}
	if err = s.rally.meet(conn, s.our, srqPlaces, source, func(i int, l link) error { return l.up(s.qps[i]) }); err != nil {
		return r, err
	}
	r.QPN = uint32(s.our[0].QPN)
	err = s.rally.measure(s.rt, &r, s.play)
	return r, err
}

// prepare makes all objects and posts the receives. source is the index of the address that this
// side announces. The first slot has the message that this side sends, which is zero like all new
// memory.
func (s *srqRun) prepare(ctx verbs.Context, source int) (err error) {
	if err = s.open(ctx, s.slots+2*s.rally.QueuePairs, s.rally.Size*(s.slots+1), verbs.LocalWrite, s.rally.Patience); err != nil {
		return err
	}
	if s.srq, err = s.pd.CreateSRQ(verbs.SRQInit{MaxWR: s.slots}); err != nil {
		return err
	}
	s.undo = append(s.undo, s.srq.Destroy)
	s.got, s.blank = make([]byte, s.rally.Size), bytes.Repeat([]byte{srqBlank}, s.rally.Size)
	for i := range s.slots {
		if err := s.receive(i + 1); err != nil {
			return err
		}
	}
	for range s.rally.QueuePairs {
		qp, err := s.createQP(verbs.QPInit{SRQ: s.srq, MaxSendWR: 4})
		if err != nil {
			return err
		}
		q := &srqQP{QP: qp}
		s.qps, s.byQP[qp.QPN()] = append(s.qps, q), q
		s.our = append(s.our, place{QPN: qp.QPN(), PSN: wire.PSN(s.rt.Rand().Uint32() & 0xffffff), GID: ctx.Device().GIDs[source]})
		if err := qp.ToInit(verbs.ToInit{}); err != nil {
			return err
		}
	}
	return nil
}

// receive posts a receive into a slot. Before that it fills the slot with bytes that differ from
// the expected message.
func (s *srqRun) receive(slot int) error {
	if err := s.mr.WriteAt(s.blank, slot*s.rally.Size); err != nil {
		return err
	}
	return s.srq.PostRecv(verbs.RecvWR{ID: uint64(slot), SGL: []verbs.SGE{s.mr.SGE(slot*s.rally.Size, s.rally.Size)}})
}

func (s *srqRun) send(q *srqQP) error {
	q.sending, q.awaiting = true, true
	return q.PostSend(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{s.mr.SGE(0, s.rally.Size)}})
}

// play runs until the agreed number of messages has been sent and received, over all queue pairs
// together.
func (s *srqRun) play() error {
	for _, q := range s.qps {
		q.awaiting = true
		if !s.rally.Server {
			if err := s.send(q); err != nil {
				return err
			}
		}
	}
	for s.rally.sent < s.rally.Iters || s.rally.rcvd < s.rally.Iters {
		wcs, err := s.take()
		if err != nil {
			return err
		}
		for i := range wcs {
			if err := s.completed(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *srqRun) completed(wc *verbs.WC) error {
	q := s.byQP[wc.QPN]
	if wc.Opcode == verbs.WCRecv {
		s.rally.rcvd++
		q.awaiting = false
		if n := int(wc.ByteLen); n != s.rally.Size {
			return s.rally.wrongSize(n)
		}
		if err := s.mr.ReadAt(s.got, int(wc.ID)*s.rally.Size); err != nil {
			return err
		}
		if err := filled(s.got, srqFill, s.rally.rcvd); err != nil {
			return err
		}
		if err := s.receive(int(wc.ID)); err != nil {
			return err
		}
	} else {
		s.rally.sent++
		q.sending = false
	}
	if s.rally.sent < s.rally.Iters && !q.sending && !q.awaiting {
		return s.send(q)
	}
	return nil
}
