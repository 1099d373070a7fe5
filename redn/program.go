package redn

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Program is the memory of a program and the queue pairs that execute it, made by verbs. The caller
// makes a queue before the queues that its ENABLEs start.
type Program struct {
	// Context makes the completion queues, and PD the queue pairs. Rings and operands are in MR.
	Context verbs.Context
	PD      verbs.PD
	MR      verbs.MR
	// CQE is the length of each completion queue. Receives is how many receives fit into a queue
	// pair.
	CQE, Receives int

	Queues []*Queue
	QPs    []verbs.RingQP // the queue pairs of Queues
	CQs    []verbs.CQ     // two for each of Queues: for its requests, and for its receives
	// Received counts the completed receives of the queue that was made last.
	Received *Counter
	// Pool has the operands; nil means that there are none.
	Pool *Pool

	poolAt, used int // offset of the pool in MR; bytes of MR that are in use
}

// maxSends is the length of a queue pair's ordinary send queue. No request uses this queue,
// because all requests are in the ring.
const maxSends = 16

// MemOf describes a whole region.
func MemOf(mr verbs.MR) Mem {
	return Mem{Addr: mr.Addr(), LKey: mr.LKey(), RKey: mr.RKey(), Len: mr.Len()}
}

// Take reserves n bytes of the program's region.
func (p *Program) Take(n int) Mem {
	at := p.used
	p.used += (n + sendring.BlockSize - 1) &^ (sendring.BlockSize - 1)
	return MemOf(p.MR).At(at, n)
}

// UsePool reserves n bytes of the program's region for operands.
func (p *Program) UsePool(n int) {
	p.poolAt = p.used
	p.Pool = NewPool(p.Take(n))
}

// Queue makes a queue pair with a send ring of init.Blocks blocks, and the two completion queues
// whose completions WAITs count.
func (p *Program) Queue(name string, init verbs.RingInit) (*Queue, error) {
	var numbers [2]uint32
	for i := range numbers {
		c, err := p.Context.CreateCQ(p.CQE)
		if err != nil {
			return nil, err
		}
		p.CQs = append(p.CQs, c)
		counted, ok := c.(verbs.CountedCQ)
		if !ok {
			return nil, verbs.ErrNotSupported
		}
		if err := counted.IgnoreOverrun(); err != nil {
			return nil, err
		}
		numbers[i] = counted.Number()
	}
	n := len(p.CQs)
	qp, err := p.PD.CreateQP(verbs.QPInit{
		Type: verbs.RC, SendCQ: p.CQs[n-2], RecvCQ: p.CQs[n-1], MaxSendWR: maxSends, MaxRecvWR: p.Receives, MaxSGE: sendring.MaxSGE,
	})
	if err != nil {
		return nil, err
	}
	rung, ok := qp.(verbs.RingQP)
	if !ok {
		return nil, errors.Join(verbs.ErrNotSupported, qp.Destroy())
	}
	ring := p.Take(init.Blocks * sendring.BlockSize)
	init.Addr, init.LKey = ring.Addr, ring.LKey
	q := &Queue{Name: name, QPN: qp.QPN(), Ring: ring, Managed: init.Managed, Counts16: init.Counts16, Done: &Counter{Number: numbers[0]}}
	p.Queues, p.QPs, p.Received = append(p.Queues, q), append(p.QPs, rung), &Counter{Number: numbers[1]}
	return q, rung.UseRing(init)
}

// Last returns the queue pair that was made last.
func (p *Program) Last() verbs.RingQP { return p.QPs[len(p.QPs)-1] }

// Loop connects the queue pair that was made last to itself, because the requests in its ring work on
// the memory of the same NIC. gid is an address of the NIC.
func (p *Program) Loop(gid verbs.GID, mtu verbs.MTU) error {
	const retries = 7
	qp := p.Last()
	if err := qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}); err != nil {
		return err
	}
	if err := qp.ToRTR(verbs.ToRTR{DestQPN: qp.QPN(), DestGID: gid, PathMTU: mtu}); err != nil {
		return err
	}
	return qp.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: retries, RNRRetry: retries})
}

// Start writes the operands into the memory, and what was appended to the queues into their rings.
// Then it rings the doorbells of the queues that have one. It begins with the queue that was made
// last, so all requests are in memory when the first queue starts.
func (p *Program) Start() error {
	if p.Pool != nil {
		if err := p.MR.WriteAt(p.Pool.Image(), p.poolAt); err != nil {
			return err
		}
	}
	for i := len(p.Queues) - 1; i >= 0; i-- {
		q := p.Queues[i]
		image, limit := q.Take()
		for _, piece := range image {
			if err := p.MR.WriteAt(piece.Bytes, int(q.Ring.Addr-p.MR.Addr())+piece.Off); err != nil {
				return err
			}
		}
		if !q.Managed {
			if err := p.QPs[i].Doorbell(limit); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close destroys the queue pairs and completion queues, and deregisters the region.
func (p *Program) Close() error {
	var errs []error
	for _, q := range p.QPs {
		errs = append(errs, q.Destroy())
	}
	for _, c := range p.CQs {
		errs = append(errs, c.Destroy())
	}
	if p.MR != nil {
		errs = append(errs, p.MR.Dereg())
	}
	return errors.Join(errs...)
}
