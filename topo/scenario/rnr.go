package scenario

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// sleepy is a receiver that posts its first receive late or never, so that its NIC answers with RNR
// NAKs.
type sleepy struct {
	service string
	delay   time.Duration // time until the first receive; negative: there is none
	params  rdmacm.Params // parameters of the sender's connection
	timer   uint8         // code of the receiver's RNR timer
	status  verbs.Status
	took    time.Duration
	got     int
}

// runRNR runs two connections at the same time. On the first, the receiver posts its receive late
// and the sender has no retry limit: the message must arrive. On the second, the receiver never
// posts and the sender has few retries: it must give up with the right status.
func runRNR(e *env) error {
	timer, retries := uint8(e.draw.between(1, 14)), uint8(e.draw.between(1, 6))
	late := e.draw.span(time.Millisecond, 20*time.Millisecond)
	e.report.Plan = fmt.Sprintf("RNR timer %d (%v), receive posted after %v; %d retries of a receiver that never posts",
		timer, transport.RNRDelay(timer), late, retries)
	if err := e.build(transportRack, simrack.Options{}); err != nil {
		return err
	}
	patient := &sleepy{service: "late", delay: late, timer: timer}
	hopeless := &sleepy{service: "never", delay: -1, timer: timer, params: rdmacm.Params{RNRRetry: retries}}
	for i, s := range []*sleepy{patient, hopeless} {
		e.serve(s.service, s.serve)
		from := fmt.Sprintf("cn%d", i)
		e.client(from, s.service, func(ctx verbs.Context) error { return s.send(e, from, ctx) })
	}
	if err := e.run(); err != nil {
		return err
	}
	wait := transport.RNRDelay(timer)
	e.note("late receiver: %v after %v", patient.status, patient.took)
	e.note("no receiver: %v after %v, %d waits of %v", hopeless.status, hopeless.took, retries, wait)
	if patient.status != verbs.Success || patient.got != 1 || patient.took < late || patient.took > late+wait+time.Millisecond {
		return fmt.Errorf("late receiver: %v after %v, %d messages; the receive came after %v", patient.status, patient.took, patient.got, late)
	}
	if least := time.Duration(retries) * wait; hopeless.status != verbs.RNRRetryExcErr || hopeless.took < least || hopeless.took > least+time.Millisecond {
		return fmt.Errorf("no receiver: %v after %v, want %v after %v", hopeless.status, hopeless.took, verbs.RNRRetryExcErr, least)
	}
	return nil
}

func (s *sleepy) serve(ctx verbs.Context, l rdmacm.Listener) error {
	end, err := newEnds(ctx, 64, 1, verbs.LocalWrite)
	if err != nil {
		return err
	}
	if err := accept(ctx, l, end.qp, rdmacm.Params{MinRNRTimer: s.timer}); err != nil {
		return err
	}
	if s.delay < 0 {
		return nil
	}
	end.rt.Sleep(s.delay)
	if err := end.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{end.mr.SGE(0, 64)}}); err != nil {
		return err
	}
	wc, err := end.one()
	if err != nil {
		return err
	}
	if wc.Status != verbs.Success {
		return fmt.Errorf("receive: %v", wc.Status)
	}
	s.got++
	return nil
}

func (s *sleepy) send(e *env, from string, ctx verbs.Context) error {
	end, err := newEnds(ctx, 64, 1, verbs.LocalWrite)
	if err != nil {
		return err
	}
	if _, err := dial(e, e.rack.Host(from), ctx, end.qp, s.service, s.params, nil); err != nil {
		return err
	}
	start := end.rt.Now()
	wc, err := end.do(verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{end.mr.SGE(0, 64)}})
	if err != nil {
		return err
	}
	s.status, s.took = wc.Status, end.rt.Now().Sub(start)
	return nil
}
