package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// srq is the application's handle of a shared receive queue.
type srq struct {
	pd   *pd
	srq  *engine.SRQ
	xrcd *xrcd // nil: not of XRC
}

func (p *pd) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	if init.XRCD != nil || init.CQ != nil {
		return p.createXRCSRQ(init)
	}
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	s, err := e.CreateSRQ(p.pd, init)
	if err != nil {
		return nil, err
	}
	s.SetOwner(p.ctx.owner)
	return listed(p.srqs, &srq{pd: p, srq: s}), nil
}

// srq checks that a shared receive queue belongs to the same context; nil means none.
func (p *pd) srq(op string, s verbs.SRQ) (*engine.SRQ, error) {
	if s == nil {
		return nil, nil
	}
	handle, ok := s.(*srq)
	if !ok || handle == nil || handle.pd.ctx != p.ctx {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "the SRQ was not made by this context"}
	}
	return handle.srq, nil
}

func (s *srq) Query() (verbs.SRQAttr, error) { return ask(s.pd.ctx, s.srq.Query) }

func (s *srq) PostRecv(wr ...verbs.RecvWR) error {
	s.pd.ctx.shell.Enter()
	defer s.pd.ctx.shell.Leave()
	s.pd.ctx.posted(len(wr))
	return s.srq.PostRecv(wr)
}

func (s *srq) SetLimit(n int) error {
	return s.pd.ctx.step(func(step) error { return s.srq.SetLimit(n) })
}

func (s *srq) Resize(maxWR int) error {
	return s.pd.ctx.step(func(step) error { return s.srq.Resize(maxWR) })
}

func (s *srq) Destroy() error { return end(s.pd.ctx, s.pd.srqs, s, s.srq.Destroy) }
