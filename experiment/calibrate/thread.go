package calibrate

import (
	"fmt"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// thread is one client: the queue pair and completion queue of one thread, and the work request
// that it posts.
type thread struct {
	rt verbs.Runtime
	cq verbs.CQ
	qp verbs.QP
	wr verbs.SendWR
	wc [16]verbs.WC
}

// connect connects queue pair i, the one of thread i, and prepares the work request that the thread
// posts again and again.
func (r *run) connect(h *simrack.Host, ctx verbs.Context, i int) (*thread, error) {
	t := &thread{rt: ctx.Runtime()}
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	mr, err := pd.RegMR(nil, max(r.Bytes, stride), verbs.LocalWrite)
	if err != nil {
		return nil, err
	}
	if t.cq, err = ctx.CreateCQ(2 * r.Depth); err != nil {
		return nil, err
	}
	if t.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: t.cq, RecvCQ: t.cq, MaxSendWR: r.Depth}); err != nil {
		return nil, err
	}
	private, err := h.Manager(ctx).Dial(t.qp, r.rack.Host("server").Addr(), service, rdmacm.Params{}, nil, clock.Never)
	if err != nil {
		return nil, err
	}
	addr, rkey, err := simrack.ParseMemory(private)
	if !r.OneWord {
		addr += uint64(i * max(r.Bytes, stride))
	}
	t.wr = verbs.SendWR{
		Op: r.Op, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, r.Bytes)}, RemoteAddr: addr, RKey: rkey,
	}
	return t, err
}

// stream keeps Depth work requests in flight, and counts completions from the end of warmUp to the
// end of runTime.
func (r *run) stream(t *thread) error {
	begin := setUp.Add(warmUp)
	end := begin.Add(runTime)
	for posted := 0; t.rt.Now() < end; {
		for ; posted < r.Depth; posted++ {
			if err := t.qp.PostSend(t.wr); err != nil {
				return err
			}
		}
		n, err := t.poll()
		if err != nil {
			return err
		}
		posted -= n
		if now := t.rt.Now(); now >= begin && now < end {
			r.count += n
		}
	}
	return nil
}

// pingpong posts latencyRounds work requests, one at a time, and sums up their times.
func (r *run) pingpong(t *thread) error {
	for range latencyRounds {
		begin := t.rt.Now()
		if err := t.qp.PostSend(t.wr); err != nil {
			return err
		}
		if _, err := t.poll(); err != nil {
			return err
		}
		r.took += t.rt.Now().Sub(begin)
	}
	return nil
}

// poll waits for completions, takes them, and returns how many there were. A completion with an
// error is an error.
func (t *thread) poll() (int, error) {
	if err := t.cq.Wait(t.rt.Now().Add(patience)); err != nil {
		return 0, err
	}
	n, err := t.cq.Poll(t.wc[:])
	for i := range t.wc[:n] {
		if s := t.wc[i].Status; s != verbs.Success && err == nil {
			err = fmt.Errorf("calibrate: %v failed: %v", t.wr.Op, s)
		}
	}
	return n, err
}
