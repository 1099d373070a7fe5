package perf

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Time limits of connection set-up and of saying good-bye.
const (
	dialPatience  = 10 * time.Second
	closePatience = time.Second
)

// session is one connection to a service with its local memory. It is used by one thread.
type session struct {
	cfg    Config
	ctx    verbs.Context
	rt     verbs.Runtime
	dialer rdmacm.Dialer
	to     netip.Addr

	pd           verbs.PD
	cq           verbs.CQ // of sends
	rcq          verbs.CQ
	qp           verbs.QP
	mr           verbs.MR
	buf          []byte // the memory of mr
	sges         []verbs.SGE
	id           uint64
	memory       Region
	report       Region
	mtu          int
	qpn, peerQPN uint32
	pat          Pattern

	wcs      [64]verbs.WC
	batch    []verbs.SendWR
	progress func(Progress)
	told     clock.Time
	undo     []func() error
}

// open connects to the service and asks for h. Local memory is of local bytes.
func open(ctx verbs.Context, d rdmacm.Dialer, to netip.Addr, cfg Config, local int, h hello) (_ *session, err error) {
	s := &session{cfg: cfg, ctx: ctx, rt: ctx.Runtime(), dialer: d, to: to, pat: Pattern{cfg.Seed}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.release())
		}
	}()
	if s.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.pd.Dealloc)
	if s.cq, err = ctx.CreateCQ(cfg.Depth + 1); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.cq.Destroy)
	if s.rcq, err = ctx.CreateCQ(cfg.Depth + 1); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.rcq.Destroy)
	var free func() error
	if s.buf, free, err = verbs.Buffer(ctx, max(local, atomicSize)); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, free)
	if s.mr, err = s.pd.RegMR(s.buf, len(s.buf), verbs.LocalWrite); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.mr.Dereg)
	s.qp, err = s.pd.CreateQP(verbs.QPInit{
		Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.rcq,
		MaxSendWR: cfg.Depth + 1, MaxRecvWR: cfg.Depth + 1, MaxSGE: 1, MaxInline: cfg.Inline,
	})
	if err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.qp.Destroy)
	return s, s.connect(h)
}

func (s *session) connect(h hello) error {
	private, err := s.dialer.Dial(s.qp, s.to, s.cfg.Service, s.cfg.params(), h.encode(), s.rt.Now().Add(dialPatience))
	if err != nil {
		return fmt.Errorf("connect to service %q of %s: %w", s.cfg.Service, s.peer(), err)
	}
	w, err := parseWelcome(private)
	if err != nil {
		return fmt.Errorf("connect to service %q of %s: %w", s.cfg.Service, s.peer(), err)
	}
	s.id, s.memory, s.report = w.ID, w.Memory, w.Report
	if s.memory.Len < h.Bytes {
		return fmt.Errorf("service %q of %s gave %d bytes of memory, %d were asked for", s.cfg.Service, s.peer(), s.memory.Len, h.Bytes)
	}
	attr, err := s.qp.Query()
	s.mtu = int(attr.RTR.PathMTU)
	s.qpn, s.peerQPN = uint32(attr.QPN), uint32(attr.RTR.DestQPN)
	return err
}

func (s *session) peer() string {
	if s.cfg.To != "" {
		return s.cfg.To
	}
	return s.to.String()
}

// release destroys the local objects, last made first.
func (s *session) release() error {
	var err error
	for i := len(s.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, s.undo[i]())
	}
	s.undo = nil
	return err
}

// close ends the connection on both sides. That the server cannot be told is no error: it forgets the connection
// when it needs the room.
func (s *session) close() error {
	s.goodbye()
	return s.release()
}

func (s *session) goodbye() {
	qp, err := s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: s.cq, RecvCQ: s.rcq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1})
	if err != nil {
		return
	}
	h := hello{Op: opClose, ID: s.id}
	_, _ = s.dialer.Dial(qp, s.to, s.cfg.Service, rdmacm.Params{}, h.encode(), s.rt.Now().Add(closePatience)) // always refused
	_ = qp.Destroy()                                                                                          // nothing was ever posted to it
}

// slots cuts the local memory into pieces of size bytes, one SGE each.
func (s *session) slots(size int) {
	s.sges = s.sges[:0]
	for off := 0; off+size <= len(s.buf); off += size {
		s.sges = append(s.sges, s.mr.SGE(off, size))
	}
}

// slot is the memory of SGE i.
func (s *session) slot(i int) []byte {
	n := int(s.sges[i].Length)
	return s.buf[i*n : (i+1)*n]
}

// tell reports progress, a few times a second.
func (s *session) tell(phase string, done, total int) {
	const every = 200 * time.Millisecond
	if s.progress == nil {
		return
	}
	if now := s.rt.Now(); now.Sub(s.told) >= every {
		s.told = now
		s.progress(Progress{phase, done, total})
	}
}

// check compares slot i with message msg.
func (s *session) check(op string, slot []byte, msg uint64) error {
	off := s.pat.Check(slot, msg)
	if off < 0 {
		return nil
	}
	want := make([]byte, len(slot))
	s.pat.Fill(want, msg)
	return &DataError{Op: op, Msg: msg, Offset: off, Got: uint64(slot[off]), Want: uint64(want[off])}
}
