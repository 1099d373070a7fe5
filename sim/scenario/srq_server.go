package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// srqServer is the server's side of all connections. It computes how many receives the queue must
// contain: each receive that it has posted is in the queue, in use (at most one by each
// connection), or complete.
type srqServer struct {
	*srqRun
	rt    verbs.Runtime
	ctx   verbs.Context
	cq    verbs.CQ
	mr    verbs.MR
	buf   []byte
	srq   verbs.SRQ
	slot  int
	free  []int // slots whose receives are not posted
	byQPN map[wire.QPN]*srqPair
	draw  *draw

	posted, received int // receives that were posted, and those that are complete
	// armed is the value of received at the first call of mustBeTold after the limit was armed; -1
	// means that there was no such call yet. By that call the server has counted all messages that
	// arrived before it armed the limit.
	armed  int
	events int  // limit events that were handled
	fired  bool // a limit event has come that attend has not handled yet
	known  bool // the completion queue was empty after the event, so all earlier messages are counted
	need   bool // attend must post receives as soon as slots are free
	// low is the time since which the receive queue has certainly been below its limit without a
	// limit event; 0 means that the queue may be above the limit.
	low clock.Time
}

const (
	// eventTime bounds the time in which a limit event must come.
	eventTime = 500 * time.Microsecond
	// tick is the interval at which the server looks for an event.
	tick = 10 * time.Microsecond
)

func (r *srqRun) serve(ctx verbs.Context, l rdmacm.Listener) error {
	s := &srqServer{srqRun: r, rt: ctx.Runtime(), ctx: ctx, slot: max(r.maxLen, 1), draw: newDraw(r.env.draw.Uint64()), byQPN: make(map[wire.QPN]*srqPair)}
	r.srv = s
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	if s.cq, err = ctx.CreateCQ(r.recvs); err != nil {
		return err
	}
	s.buf = make([]byte, r.recvs*s.slot)
	if s.mr, err = pd.RegMR(s.buf, len(s.buf), verbs.LocalWrite); err != nil {
		return err
	}
	target, err := pd.RegMR(nil, s.slot, verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	if s.srq, err = pd.CreateSRQ(verbs.SRQInit{MaxWR: r.recvs}); err != nil {
		return err
	}
	for i := range r.recvs {
		s.free = append(s.free, i)
	}
	if err := s.refill(r.recvs); err != nil {
		return err
	}
	s.rt.Go("events", func() { r.env.fail("server %s: %w", srqService, s.hearEvents()) })
	s.rt.Go("receive", func() { r.env.fail("server %s: %w", srqService, s.receive()) })
	for range r.pairs {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return err
		}
		p := r.pairs[req.Private()[0]]
		if p.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: s.cq, RecvCQ: s.cq, SRQ: s.srq, MaxSendWR: 1}); err != nil {
			return err
		}
		s.byQPN[p.qp.QPN()] = p
		if err := req.Accept(p.qp, r.params, remoteOf(target).appendTo(nil), s.rt.Now().Add(dialPatience)); err != nil {
			return err
		}
	}
	return nil
}

// refill posts receives for up to n free slots and arms the limit. If connections have taken all
// receives meanwhile, no limit event will come, because none is left to be taken. Then s.need asks
// for the next refill.
func (s *srqServer) refill(n int) error {
	for ; n > 0 && len(s.free) > 0; n-- {
		i := s.free[0]
		s.free = s.free[1:]
		s.posted++
		if err := s.srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{s.mr.SGE(i*s.slot, s.slot)}}); err != nil {
			return err
		}
	}
	s.low, s.armed = 0, -1
	if err := s.srq.SetLimit(max(0, s.limit+s.env.opt.skew)); err != nil {
		return err
	}
	attr, err := s.srq.Query()
	s.need = attr.Queued == 0
	return err
}

// hearEvents takes the events of the NIC until an error. For each arming of the limit, at most one
// limit event may come.
func (s *srqServer) hearEvents() error {
	attr, err := s.srq.Query()
	if err != nil {
		return err
	}
	for {
		ev, err := s.ctx.NextAsyncEvent(clock.Never)
		if err != nil {
			return err
		}
		switch {
		case ev.Kind == verbs.EventCommEst:
		case ev.Kind != verbs.EventSRQLimit || ev.SRQ != attr.ID:
			return fmt.Errorf("event %v of SRQ %d, want %v of %d", ev.Kind, ev.SRQ, verbs.EventSRQLimit, attr.ID)
		case s.fired:
			return fmt.Errorf("limit event %d came twice", s.events+1)
		default:
			s.fired = true
		}
	}
}

// receive handles the completions of received messages, and posts receives after a limit event,
// until an error.
func (s *srqServer) receive() error {
	var wcs [4]verbs.WC
	for {
		n, err := s.cq.Poll(wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			p := s.byQPN[wcs[i].QPN]
			if p == nil {
				return errForeign
			}
			if err := p.take(&wcs[i], s.buf[int(wcs[i].ID)*s.slot:][:s.slot]); err != nil {
				return fmt.Errorf("connection %d: %w", p.index, err)
			}
			s.received++
			s.free = append(s.free, int(wcs[i].ID))
		}
		if n > 0 || s.fired && !s.known {
			s.known = s.fired && n == 0
			continue // the messages that arrived before the event are counted first
		}
		if err := s.attend(); err != nil {
			return err
		}
		if err := s.cq.Wait(s.rt.Now().Add(tick)); err != nil && !errors.Is(err, verbs.ErrTimeout) {
			return err
		}
	}
}

// attend is called when every message that has arrived is counted. It handles a limit event, if one
// has come, and refills the queue when that is needed. It returns an error if a limit event has
// come too early, or has not come in time.
func (s *srqServer) attend() error {
	if s.fired {
		s.fired, s.known, s.need = false, false, true
		s.events++
		// A receive that is not complete is in the queue, or in use by a connection.
		if least := s.posted - s.received - len(s.pairs); least >= s.limit {
			return fmt.Errorf("limit event %d came when at least %d receives were queued; the limit is %d", s.events, least, s.limit)
		}
	}
	if s.need && len(s.free) > 0 {
		if err := s.disarm(); err != nil {
			return err
		}
		return s.refill(s.draw.between(1, s.recvs))
	}
	return s.mustBeTold()
}

// disarm switches limit events off while receives are posted one by one: meanwhile the queue may be
// below the limit, which must cause no event.
func (s *srqServer) disarm() error {
	if err := s.srq.SetLimit(0); err != nil {
		return err
	}
	s.rt.Sleep(time.Nanosecond) // lets hearEvents take an event that was raised before
	if s.fired {
		s.fired, s.known = false, false
		s.events++
	}
	return nil
}

// mustBeTold returns an error if the queue has fallen below the limit since the limit was armed,
// and no event has come within eventTime. Of the messages that have completed since the limit was
// armed, at most one of each connection had taken its receive before. So when more messages than
// connections have completed, at least one receive was taken since.
func (s *srqServer) mustBeTold() error {
	now := s.rt.Now()
	switch {
	case s.armed < 0:
		s.armed = s.received
	case s.posted-s.received >= s.limit || s.received-s.armed <= len(s.pairs):
	case s.low == 0:
		s.low = now
	case now > s.low.Add(eventTime):
		return fmt.Errorf("limit event %d is missing: the queue has been below %d since %v", s.events+1, s.limit, s.low)
	}
	return nil
}

// take checks the next received message of a connection. It must be the message with the number
// p.received (see message), so each message must arrive once and in order.
func (p *srqPair) take(wc *verbs.WC, buf []byte) error {
	k := p.received
	p.received++
	op, size, imm := p.message(k)
	return arrived(wc, buf, p.msgs, k, op, size, imm)
}
