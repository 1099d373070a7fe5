package perf

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// MaxClients is the most clients of one contend run.
const MaxClients = 128

// contender is one of many clients that CAS one word: a queue pair with one CAS under way. It expects what it saw last
// and puts a number that nobody else puts.
type contender struct {
	qp   verbs.QP
	wr   verbs.SendWR
	slot int
	n    uint64
}

// planContend is for contend: cfg.Clients queue pairs of one thread do cfg.Iters CAS together on the last word of the
// memory that all clients of the host share.
func planContend(c *Config) plan {
	return plan{local: atomicSize * c.Clients, slot: atomicSize, hello: hello{Op: opOpen, Bytes: atomicSize}, run: func(s *session, res *Result) error {
		return s.contend(res)
	}}
}

func (s *session) contend(res *Result) (err error) {
	cq, err := s.ctx.CreateCQ(s.cfg.Clients + 1)
	if err != nil {
		return err
	}
	clients := make([]*contender, 0, s.cfg.Clients)
	defer func() {
		for _, c := range clients {
			err = errors.Join(err, c.qp.Destroy())
		}
		err = errors.Join(err, cq.Destroy())
	}()
	byQP := make(map[uint32]*contender)
	for i := range s.cfg.Clients {
		c, err := s.newContender(cq, i)
		if err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		clients = append(clients, c)
		byQP[uint32(c.qp.QPN())] = c
	}
	start := s.rt.Now()
	done, won, err := s.compete(cq, clients, byQP)
	res.Elapsed = s.rt.Now().Sub(start)
	res.Swapped = won
	res.BW = &Bandwidth{Bytes: atomicSize, Iters: done, TxDepth: 1, Signaled: 1, MsgRate: float64(done) / res.Elapsed.Seconds() / 1e6}
	res.BW.Average = res.BW.MsgRate * 1e6 * atomicSize / (1 << 20)
	return err
}

func (s *session) newContender(cq verbs.CQ, i int) (*contender, error) {
	qp, err := s.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: cq, RecvCQ: s.rcq, MaxSendWR: 1, MaxRecvWR: 1, MaxSGE: 1})
	if err != nil {
		return nil, err
	}
	mem, err := DialMemory(s.dialer, qp, s.to, s.cfg.params(), s.rt.Now().Add(dialPatience))
	if err != nil {
		return nil, errors.Join(err, qp.Destroy())
	}
	c := &contender{qp: qp, slot: i}
	c.wr = verbs.SendWR{Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: s.sges[i : i+1]}
	mem.at(&c.wr, (mem.Len-atomicSize)&^(atomicSize-1))
	return c, nil
}

// next posts the next CAS of a client.
func (s *session) next(c *contender) error {
	c.n++
	c.wr.Swap = s.pat.base(uint64(c.slot)<<40 | c.n)
	return c.qp.PostSend(c.wr)
}

// compete lets all clients go on until so many CAS are done; won are those that changed the word.
func (s *session) compete(cq verbs.CQ, clients []*contender, byQP map[uint32]*contender) (done int, won uint64, err error) {
	posted := 0
	for _, c := range clients {
		if err := s.next(c); err != nil {
			return 0, 0, err
		}
		posted++
	}
	idle := s.rt.Now()
	for done < posted {
		n, err := cq.Poll(s.wcs[:])
		if err != nil {
			return done, won, err
		}
		if n == 0 {
			if s.rt.Now().Sub(idle) > s.cfg.Patience {
				return done, won, fmt.Errorf("no CAS was answered for %v: %w", s.cfg.Patience, verbs.ErrTimeout)
			}
			if err := cq.Wait(s.rt.Now().Add(100 * time.Millisecond)); err != nil && !errors.Is(err, verbs.ErrTimeout) {
				return done, won, err
			}
			continue
		}
		idle = s.rt.Now()
		for i := range s.wcs[:n] {
			wc := &s.wcs[i]
			c := byQP[uint32(wc.QPN)]
			if wc.Status != verbs.Success {
				return done, won, &CompletionError{Op: "CMP_SWAP", Msg: c.n, Status: wc.Status, Vendor: wc.VendorErr}
			}
			done++
			found := nativeWord(s.slot(c.slot))
			if found == c.wr.CompareAdd {
				won++
				found = c.wr.Swap
			}
			c.wr.CompareAdd = found
			if posted < s.cfg.Iters && (s.cfg.Cancelled == nil || !s.cfg.Cancelled()) {
				if err := s.next(c); err != nil {
					return done, won, err
				}
				posted++
			}
		}
		s.tell("CMP_SWAP", done, s.cfg.Iters)
	}
	return done, won, nil
}
