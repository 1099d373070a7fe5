package insim

import (
	"fmt"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// line is a connection of a host to the memory that another one lends.
type line struct {
	rt verbs.Runtime
	qp verbs.QP
	cq verbs.CQ
	mr verbs.MR
	// wr is a work request for the begin of the lent memory, without data: a WRITE, unless the caller changes it.
	wr   verbs.SendWR
	done []verbs.WC // room for the completions of all work requests that may be in flight
}

// lineTo is what a line is for: the service of the lent memory, the longest message in bytes, and how many work
// requests are in flight.
type lineTo struct {
	service      string
	bytes, depth int
	params       rdmacm.Params
}

// dial makes a line to a host. It gives up at the time until.
func (l lineTo) dial(h *simrack.Host, ctx verbs.Context, to *simrack.Host, until clock.Time) (*line, error) {
	pd, err := ctx.AllocPD()
	if err != nil {
		return nil, err
	}
	cq, err := ctx.CreateCQ(2 * l.depth)
	if err != nil {
		return nil, err
	}
	mr, err := pd.RegMR(nil, l.bytes, verbs.LocalWrite)
	if err != nil {
		return nil, err
	}
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 2 * l.depth})
	if err != nil {
		return nil, err
	}
	private, err := h.Manager(ctx).Dial(qp, to.Addr(), l.service, l.params, nil, until)
	if err != nil {
		return nil, err
	}
	addr, rkey, err := simrack.ParseMemory(private)
	if err != nil {
		return nil, err
	}
	return &line{
		rt: ctx.Runtime(), qp: qp, cq: cq, mr: mr, done: make([]verbs.WC, l.depth),
		wr: verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, RemoteAddr: addr, RKey: rkey},
	}, nil
}

// repeat posts the work request with n bytes again and again until a time, with as many in flight as the line is for.
// ended is called with the number of those that have ended. who names the host in an error.
func (l *line) repeat(who string, n int, until clock.Time, ended func(n int)) error {
	wr := l.wr
	wr.SGL = []verbs.SGE{l.mr.SGE(0, n)}
	for flight := 0; l.rt.Now() < until; {
		for ; flight < len(l.done); flight++ {
			if err := l.qp.PostSend(wr); err != nil {
				return err
			}
		}
		if l.cq.Wait(until) != nil {
			return nil // the end
		}
		n, err := l.cq.Poll(l.done)
		if err != nil {
			return err
		}
		for _, wc := range l.done[:n] {
			if wc.Status != verbs.Success {
				return fmt.Errorf("%s: a WRITE ended with %v", who, wc.Status)
			}
		}
		flight -= n
		ended(n)
	}
	return nil
}
