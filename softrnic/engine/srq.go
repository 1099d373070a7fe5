package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

type SRQ struct {
	e    *Engine
	s    *transport.SRQ
	pd   *PD
	xrcd *XRCD // nil means that queue pairs are made with it; else requests of XRC name it
	cq   *CQ   // of an XRC queue
	num  uint32
	refs int // queue pairs that use it
	dead bool

	owner *Owner
}

// CreateSRQ makes a shared receive queue whose receives name memory of pd.
func (e *Engine) CreateSRQ(pd *PD, init verbs.SRQInit) (*SRQ, error) {
	return pd.createSRQ(nil, nil, init)
}

// createSRQ makes a shared receive queue, of XRC if x and c are not nil.
func (p *PD) createSRQ(x *XRCD, c *CQ, init verbs.SRQInit) (*SRQ, error) {
	const op = "create SRQ"
	if err := alive(op, p.dead || x != nil && x.dead || c != nil && c.dead); err != nil {
		return nil, err
	}
	e := p.e
	l := e.cfg.Limits
	switch {
	case init.MaxWR > l.QPWR:
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d work requests; at most %d", init.MaxWR, l.QPWR)
	case init.MaxSGE > l.SGE:
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d scatter/gather elements; at most %d", init.MaxSGE, l.SGE)
	case len(e.Tables.srqs) >= l.SRQs:
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d shared receive queues exist", len(e.Tables.srqs))
	}
	n := (e.Tables.nextSRQ + 1) & wire.MaxSRQN
	for ; e.Tables.srqs[n] != nil || n == 0; n = (n + 1) & wire.MaxSRQN { // ends, because there are fewer queues than numbers
	}
	var s *transport.SRQ
	var err error
	if c != nil {
		s, err = transport.NewXRCSRQ(n, p.num, c.q, init)
	} else {
		s, err = transport.NewSRQ(n, p.num, init)
	}
	if err != nil {
		return nil, err
	}
	srq := &SRQ{e: e, s: s, pd: p, num: n, xrcd: x, cq: c}
	if x != nil {
		x.srqs++
		c.refs++
	}
	e.Tables.nextSRQ = n
	e.Tables.srqs[n] = srq
	p.srqs++
	return srq, nil
}

func (s *SRQ) Query() (verbs.SRQAttr, error) {
	if err := alive("query SRQ", s.dead); err != nil {
		return verbs.SRQAttr{}, err
	}
	return s.s.Query(), nil
}

// PostRecv queues receives in order. If one is refused, OpError.Index is its index.
func (s *SRQ) PostRecv(wrs []verbs.RecvWR) error {
	if err := alive("post SRQ receive", s.dead); err != nil {
		return err
	}
	for i := range wrs {
		if err := s.s.PostRecv(&wrs[i]); err != nil {
			return indexed(err, i)
		}
	}
	return nil
}

// SetLimit arms the limit event; 0 disarms it.
func (s *SRQ) SetLimit(n int) error {
	if err := alive("modify SRQ", s.dead); err != nil {
		return err
	}
	return s.s.SetLimit(n)
}

func (s *SRQ) Resize(maxWR int) error {
	const op = "modify SRQ"
	if err := alive(op, s.dead); err != nil {
		return err
	}
	if most := s.e.cfg.Limits.QPWR; maxWR > most {
		return verbs.Errorf(op, verbs.ErrLimit, "%d work requests; at most %d", maxWR, most)
	}
	return s.s.Resize(maxWR)
}

// Destroy ends the queue. Receives that are still queued get no completion. It fails with ErrBusy
// while queue pairs use it.
func (s *SRQ) Destroy() error {
	const op = "destroy SRQ"
	if err := alive(op, s.dead); err != nil {
		return err
	}
	if s.refs > 0 {
		return verbs.Errorf(op, verbs.ErrBusy, "destroy the %d queue pairs that use it first", s.refs)
	}
	s.dead = true
	s.pd.srqs--
	if s.xrcd != nil {
		s.s.Close()
		s.xrcd.srqs--
		s.cq.refs--
	}
	delete(s.e.Tables.srqs, s.num)
	return nil
}
