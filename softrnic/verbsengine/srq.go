package verbsengine

import (
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// srq is the application's handle of a shared receive queue.
type srq struct {
	pd  *pd
	srq *engine.SRQ
}

// CreateSRQ makes a shared receive queue.
func (p *pd) CreateSRQ(init verbs.SRQInit) (verbs.SRQ, error) {
	_, e, _ := p.ctx.shell.Enter()
	defer p.ctx.shell.Leave()
	s, err := e.CreateSRQ(p.pd, init)
	if err != nil {
		return nil, err
	}
	handle := &srq{pd: p, srq: s}
	p.srqs[handle] = struct{}{}
	return handle, nil
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

// Query returns attributes and state.
func (s *srq) Query() (verbs.SRQAttr, error) {
	s.pd.ctx.shell.Enter()
	defer s.pd.ctx.shell.Leave()
	return s.srq.Query()
}

// PostRecv queues receives.
func (s *srq) PostRecv(wr ...verbs.RecvWR) error {
	s.pd.ctx.shell.Enter()
	defer s.pd.ctx.shell.Leave()
	s.pd.ctx.posted(len(wr))
	return s.srq.PostRecv(wr)
}

// SetLimit arms the limit event.
func (s *srq) SetLimit(n int) error {
	s.pd.ctx.shell.Enter()
	defer s.pd.ctx.shell.Leave()
	return s.srq.SetLimit(n)
}

// Resize changes the capacity.
func (s *srq) Resize(maxWR int) error {
	s.pd.ctx.shell.Enter()
	defer s.pd.ctx.shell.Leave()
	return s.srq.Resize(maxWR)
}

// Destroy ends the queue.
func (s *srq) Destroy() error {
	s.pd.ctx.shell.Enter()
	defer s.pd.ctx.shell.Leave()
	if err := s.srq.Destroy(); err != nil {
		return err
	}
	delete(s.pd.srqs, s)
	return nil
}
