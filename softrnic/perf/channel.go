package perf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Time limits of connection set-up and of its end.
const (
	dialPatience  = 10 * time.Second
	closePatience = time.Second
)

// channel is one connection to a service with its local memory.
type channel struct {
	ctx    verbs.Context
	rt     verbs.Runtime
	dialer rdmacm.Dialer
	to     netip.Addr
	peer   string // name of the host `to`, for errors

	pd   verbs.PD
	cq   verbs.CQ // completion queue of sends
	rcq  verbs.CQ // completion queue of receives
	qp   verbs.QP
	mr   verbs.MR
	buf  []byte         // the memory of mr
	undo []func() error // destroy the local objects; see release
	far  far
}

// far describes the other end of the connection, from the answers of the service and of the
// connection manager.
type far struct {
	service      string
	conn         uint64 // number by which the service identifies the connection
	memory       memservice.Region
	report       memservice.Region // memory of the server's report; its length is 0 if only the server's NIC takes part
	mtu          int               // path MTU in bytes
	qpn, peerQPN uint32
}

// open makes the local objects and connects to the service, as the plan requires.
func (c *channel) open(cfg *Config, p *plan) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, c.release())
		}
	}()
	if c.pd, err = c.ctx.AllocPD(); err != nil {
		return err
	}
	c.undo = append(c.undo, c.pd.Dealloc)
	if c.cq, err = c.ctx.CreateCQ(cfg.Depth + 1); err != nil {
		return err
	}
	c.undo = append(c.undo, c.cq.Destroy)
	if c.rcq, err = c.ctx.CreateCQ(cfg.Depth + 1); err != nil {
		return err
	}
	c.undo = append(c.undo, c.rcq.Destroy)
	var free func() error
	if c.buf, free, err = verbs.Buffer(c.ctx, max(p.local, atomicSize)); err != nil {
		return err
	}
	c.undo = append(c.undo, free)
	if c.mr, err = c.pd.RegMR(c.buf, len(c.buf), verbs.LocalWrite); err != nil {
		return err
	}
	c.undo = append(c.undo, c.mr.Dereg)
	c.qp, err = c.pd.CreateQP(verbs.QPInit{
		Type: verbs.RC, SendCQ: c.cq, RecvCQ: c.rcq,
		MaxSendWR: cfg.Depth + 1, MaxRecvWR: cfg.Depth + 1, MaxSGE: 1, MaxInline: cfg.Inline,
	})
	if err != nil {
		return err
	}
	c.undo = append(c.undo, c.qp.Destroy)
	if err := c.connect(cfg, p); err != nil {
		return fmt.Errorf("connect to service %q of %s: %w", cfg.Service, c.peer, err)
	}
	attr, err := c.qp.Query()
	c.far.mtu = int(attr.RTR.PathMTU)
	c.far.qpn, c.far.peerQPN = uint32(attr.QPN), uint32(attr.RTR.DestQPN)
	return err
}

func (c *channel) connect(cfg *Config, p *plan) error {
	claim := memservice.Claim{Bytes: p.bytes, Work: p.request.encode()}
	m, err := memservice.DialService(c.dialer, c.qp, c.to, cfg.Service, cfg.params(), claim, c.rt.Now().Add(dialPatience))
	if err != nil {
		return err
	}
	c.far.service, c.far.conn, c.far.memory = cfg.Service, m.Conn, m.Region
	if m.Len < p.bytes {
		return fmt.Errorf("the service gave %d bytes of memory, %d were asked for", m.Len, p.bytes)
	}
	if p.request.mode != 0 {
		return c.far.report.Parse(m.Work)
	}
	return nil
}

// release destroys the local objects, in the reverse order of their creation.
func (c *channel) release() error {
	var err error
	for _, f := range slices.Backward(c.undo) {
		err = errors.Join(err, f())
	}
	c.undo = nil
	return err
}

// close ends the connection on both sides. If the service does not answer, that is no error: the
// service ends such a connection when it needs the room.
func (c *channel) close() error {
	qp, err := c.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: c.cq, RecvCQ: c.rcq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1})
	if err == nil {
		_ = memservice.EndService(c.dialer, qp, c.to, c.far.service, c.far.conn, c.rt.Now().Add(closePatience))
		_ = qp.Destroy() // the queue pair was never connected
	}
	return c.release()
}

// local returns the local memory that e names.
func (c *channel) local(e verbs.SGE) []byte {
	off := int(e.Addr - c.mr.Addr())
	return c.buf[off : off+int(e.Length)]
}

// Teller reports the progress of a test.
type Teller struct {
	Now  func() clock.Time
	Call func(Progress) // nil means no reports
	last clock.Time
}

// Tell reports progress, at most five times a second: each report wakes another process.
func (t *Teller) Tell(phase string, done, total int) {
	const every = 200 * time.Millisecond
	if t.Call == nil {
		return
	}
	if now := t.Now(); now.Sub(t.last) >= every {
		t.last = now
		t.Call(Progress{phase, done, total})
	}
}
