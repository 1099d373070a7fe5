package insim

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The way of a SoftwareRecovery is that of a Recovery; softwareRTO is longer than its round trip, so that nothing is
// sent again that has arrived.
const (
	softwareService  = "software"
	softwareRTO      = 80 * time.Microsecond
	softwarePatience = 10 * time.Millisecond
	// softwareProbes is how many messages of a packet measure the round trip.
	softwareProbes = 16
)

// softwareEnd is an end of the connection: memory for a message, and receives for the immediate data of the peer.
type softwareEnd struct {
	rt verbs.Runtime
	cq verbs.CQ
	qp verbs.QP
	mr verbs.MR
}

// newSoftwareEnd makes an end whose memory has n packets, with as many receives as sends.
func newSoftwareEnd(ctx verbs.Context, n int) (e softwareEnd, err error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return e, err
	}
	e.rt = ctx.Runtime()
	if e.cq, err = ctx.CreateCQ(4 * n); err != nil {
		return e, err
	}
	buf := make([]byte, n*recoveryMTU)
	if e.mr, err = pd.RegMR(buf, len(buf), verbs.LocalWrite|verbs.RemoteWrite); err != nil {
		return e, err
	}
	if e.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.UC, SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: 2 * n, MaxRecvWR: 2 * n}); err != nil {
		return e, err
	}
	return e, nil
}

// receives posts n receives, which take immediate data and no bytes.
func (e *softwareEnd) receives(n int) error {
	for range n {
		if err := e.qp.PostRecv(verbs.RecvWR{}); err != nil {
			return err
		}
	}
	return nil
}

// arrived passes the immediate data that has arrived to f, and posts the receives again.
func (e *softwareEnd) arrived(f func(imm uint32) error) error {
	var wcs [32]verbs.WC
	for {
		n, err := e.cq.Poll(wcs[:])
		if n == 0 || err != nil {
			return err
		}
		for i := range wcs[:n] {
			switch wc := &wcs[i]; {
			case wc.Status != verbs.Success:
				return fmt.Errorf("a completion has status %v", wc.Status)
			case wc.Flags&verbs.WithImm != 0:
				if err := errors.Join(e.receives(1), f(wc.Imm)); err != nil {
					return err
				}
			}
		}
	}
}

// softwareServer acknowledges each packet by its number, until something fails.
func softwareServer(h *simrack.Host, ctx verbs.Context, n int) error {
	l, err := h.Manager(ctx).Listen(softwareService)
	if err != nil {
		return err
	}
	e, err := newSoftwareEnd(ctx, n)
	if err != nil {
		return err
	}
	req, err := l.Accept(clock.Never)
	if err != nil {
		return err
	}
	at := binary.BigEndian.AppendUint64(nil, e.mr.SGE(0, 1).Addr)
	at = binary.BigEndian.AppendUint32(at, e.mr.RKey())
	if err := req.Accept(e.qp, rdmacm.Params{PathMTU: recoveryMTU}, at, clock.Never); err != nil {
		return err
	}
	if err := e.receives(2 * n); err != nil {
		return err
	}
	for {
		err := e.arrived(func(imm uint32) error {
			return e.qp.PostSend(verbs.SendWR{Op: verbs.OpSendImm, Imm: imm, Flags: verbs.Signalled})
		})
		if err == nil {
			err = e.cq.Wait(clock.Never)
		}
		if err != nil {
			return err
		}
	}
}

// softwareSender sends messages one at a time.
type softwareSender struct {
	softwareEnd
	addr  uint64
	rkey  uint32
	sent  int
	acked []bool
	again []softwareDue // in the order in which they were sent
}

// softwareDue is a packet, and when it is sent again.
type softwareDue struct {
	packet int
	at     clock.Time
}

func newSoftwareSender(h *simrack.Host, ctx verbs.Context, to *simrack.Host, n int) (*softwareSender, error) {
	e, err := newSoftwareEnd(ctx, n)
	if err != nil {
		return nil, err
	}
	at, err := h.Manager(ctx).Dial(e.qp, to.Addr(), softwareService, rdmacm.Params{PathMTU: recoveryMTU}, nil, e.rt.Now().Add(softwarePatience))
	if err != nil {
		return nil, err
	}
	return &softwareSender{softwareEnd: e, addr: binary.BigEndian.Uint64(at), rkey: binary.BigEndian.Uint32(at[8:])}, e.receives(2 * n)
}

// send sends packet i, and waits as long as it occupies the link.
func (s *softwareSender) send(i int) error {
	s.sent++
	s.again = append(s.again, softwareDue{i, s.rt.Now().Add(softwareRTO)})
	err := s.qp.PostSend(verbs.SendWR{
		Op: verbs.OpWriteImm, Imm: uint32(i), Flags: verbs.Signalled, SGL: []verbs.SGE{s.mr.SGE(i*recoveryMTU, recoveryMTU)},
		RemoteAddr: s.addr + uint64(i*recoveryMTU), RKey: s.rkey,
	})
	s.rt.Sleep(recoveryPacket)
	return err
}

// message sends n packets until each is acknowledged, and returns how long that took.
func (s *softwareSender) message(n int) (time.Duration, error) {
	begin := s.rt.Now()
	giveUp := begin.Add(softwarePatience)
	s.acked, s.again = make([]bool, n), s.again[:0]
	for next, left := 0, n; ; {
		err := s.arrived(func(imm uint32) error {
			if !s.acked[imm] {
				s.acked[imm] = true
				left--
			}
			return nil
		})
		now := s.rt.Now()
		switch {
		case err != nil || left == 0:
			return now.Sub(begin), err
		case now > giveUp:
			return 0, fmt.Errorf("%d of %d packets of a message are not acknowledged after %v", left, n, softwarePatience)
		}
		for len(s.again) > 0 && s.acked[s.again[0].packet] {
			s.again = s.again[1:]
		}
		switch {
		case len(s.again) > 0 && s.again[0].at <= now:
			i := s.again[0].packet
			s.again = s.again[1:]
			err = s.send(i)
		case next < n:
			err = s.send(next)
			next++
		default:
			if err = s.cq.Wait(s.again[0].at); errors.Is(err, verbs.ErrTimeout) {
				err = nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// software measures messages whose lost packets the program repeats.
func (p *Sim) software(ctx context.Context, l experiment.SoftwareRecovery) (out experiment.SoftwareResult, err error) {
	file := "name: software\nhosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory, memory: 1MiB}\n"
	r, err := newRack(ctx, file, simrack.Options{Seed: cmp.Or(l.Seed, 1), Delay: (experiment.BDP - 3) * recoveryPacket / 4, Rate: recoveryRate, Queue: 1 << 15})
	if err != nil {
		return out, err
	}
	defer r.Close()
	ms := r.Host("ms0")
	ms.Go(softwareService, true, func(ctx verbs.Context) {
		r.Stop(fmt.Errorf("receiver: %w", softwareServer(ms, ctx, l.Packets)))
	})
	start(r, "cn0", "sender", func(h *simrack.Host, ctx verbs.Context) error {
		s, err := newSoftwareSender(h, ctx, ms, l.Packets)
		if err != nil {
			return err
		}
		out.Gap, out.RTO, out.Round = recoveryPacket, softwareRTO, softwareRTO
		for range softwareProbes {
			took, err := s.message(1)
			if err != nil {
				return err
			}
			out.Round = min(out.Round, took-recoveryPacket)
		}
		if l.Loss > 0 {
			h.SetFaults([]fault.Rule{{ID: "loss", Link: "cn0", Kind: fault.Loss, Dir: fault.Up, Probability: l.Loss}})
		}
		s.sent = 0
		sum := time.Duration(0)
		for range l.Messages {
			took, err := s.message(l.Packets)
			if err != nil {
				return err
			}
			sum += took
		}
		out.Mean, out.Transmissions = sum/time.Duration(l.Messages), float64(s.sent)/float64(l.Messages*l.Packets)
		return nil
	})
	return out, run(ctx, r)
}
