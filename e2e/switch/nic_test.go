package switch_test

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// conn is a connection to the memory service.
type conn struct {
	cq     verbs.CQ
	pd     verbs.PD
	mr     verbs.MR
	qp     verbs.QP
	memory memservice.Region
}

// dialLimit bounds one attempt to connect, opLimit one operation; both are far longer than the
// NIC's retries.
const (
	dialLimit = 2 * time.Second
	opLimit   = 20 * time.Second
)

// newConn makes a queue pair and connects it.
func newConn(ctx *ipc.Context, to netip.Addr) (c *conn, err error) {
	c = new(conn)
	defer func() {
		if err != nil {
			_ = c.close() // the first error counts
		}
	}()
	if c.cq, err = ctx.CreateCQ(16); err != nil {
		return c, err
	}
	if c.pd, err = ctx.AllocPD(); err != nil {
		return c, err
	}
	if c.mr, err = c.pd.RegMR(nil, 8, verbs.LocalWrite); err != nil {
		return c, err
	}
	if c.qp, err = c.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: c.cq, RecvCQ: c.cq, MaxSendWR: 8, MaxRecvWR: 1, SignalAll: true}); err != nil {
		return c, err
	}
	p := rdmacm.Params{Timeout: 13, RdAtomic: 4}
	c.memory, err = memservice.Dial(ctx.Manager(), c.qp, to, p, ctx.Runtime().Now().Add(dialLimit))
	return c, err
}

func (c *conn) close() error {
	var err error
	if c.qp != nil {
		err = c.qp.Destroy()
	}
	if c.mr != nil {
		err = errors.Join(err, c.mr.Dereg())
	}
	if c.pd != nil {
		err = errors.Join(err, c.pd.Dealloc())
	}
	if c.cq != nil {
		err = errors.Join(err, c.cq.Destroy())
	}
	return err
}

// post posts one work request on a word of the memory.
func (c *conn) post(op verbs.WROpcode, off, compareAdd, swap uint64) error {
	return c.qp.PostSend(verbs.SendWR{
		Op: op, SGL: []verbs.SGE{c.mr.SGE(0, 8)}, RemoteAddr: c.memory.Addr + off, RKey: c.memory.RKey,
		CompareAdd: compareAdd, Swap: swap,
	})
}

// wait waits for its completion.
func (c *conn) wait(ctx verbs.Context) error {
	if err := c.cq.Wait(ctx.Runtime().Now().Add(opLimit)); err != nil {
		return err
	}
	var wc [1]verbs.WC
	n, err := c.cq.Poll(wc[:])
	if err == nil && n == 1 && wc[0].Status != verbs.Success {
		err = fmt.Errorf("%w: %v", errLost, wc[0].Status)
	}
	return err
}

// errLost is the error of a queue pair that has failed: it is unknown whether the operation was
// executed.
var errLost = errors.New("completion")
