package chains

import (
	"math/bits"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	poolLen = 1 << 16 // bytes
	// cqLen is the length of completion queues.
	cqLen = 1024
	// lookupBlocks is the number of blocks of a lookup with two probes.
	lookupBlocks = 2 + 2*5
)

// program is a program for a NIC and the queue pairs that execute it. All but the last queue pair
// are connected to themselves.
type program struct {
	m        Machine
	pd       verbs.PD
	mr       verbs.MR
	used     int // bytes of mr
	recvs    int // MaxRecvWR
	queues   []*redn.Queue
	qps      []verbs.RingQP
	sent     []verbs.CQ    // the completion queue of each queue's requests
	received *redn.Counter // of the queue pair made last
	pool     *redn.Pool
	poolAt   int
	receives []verbs.RecvWR
}

// newProgram makes an empty program with a master queue, which has a doorbell.
func newProgram(m Machine, pd verbs.PD, size, recvs int) (p *program, err error) {
	p = &program{m: m, pd: pd, recvs: recvs}
	if p.mr, err = pd.RegMR(nil, size, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic); err != nil {
		return nil, err
	}
	p.poolAt = p.used
	p.pool = redn.NewPool(p.take(poolLen))
	return p, nil
}

// take returns n bytes of the memory of the program.
func (p *program) take(n int) redn.Mem {
	off := p.used
	p.used += (n + sendring.BlockSize - 1) &^ (sendring.BlockSize - 1)
	return redn.Mem{Addr: p.mr.Addr(), LKey: p.mr.LKey(), RKey: p.mr.RKey(), Len: p.mr.Len()}.At(off, n)
}

// counted makes a completion queue that a program counts.
func (p *program) counted() (verbs.CQ, uint32, error) {
	c, err := p.m.Context.CreateCQ(cqLen)
	if err != nil {
		return nil, 0, err
	}
	n, ok := c.(verbs.CountedCQ)
	if !ok {
		return nil, 0, verbs.ErrNotSupported
	}
	return c, n.Number(), n.IgnoreOverrun()
}

// queue makes a queue with a ring for at least so many blocks. loop connects it to itself.
func (p *program) queue(name string, blocks int, init verbs.RingInit, loop bool) (*redn.Queue, error) {
	send, sent, err := p.counted()
	if err != nil {
		return nil, err
	}
	recv, received, err := p.counted()
	if err != nil {
		return nil, err
	}
	qp, err := p.pd.CreateQP(verbs.QPInit{SendCQ: send, RecvCQ: recv, MaxSendWR: 16, MaxRecvWR: p.recvs, MaxSGE: sendring.MaxSGE})
	if err != nil {
		return nil, err
	}
	rung, ok := qp.(verbs.RingQP)
	if !ok {
		return nil, verbs.ErrNotSupported
	}
	init.Blocks = 1 << bits.Len(uint(blocks-1))
	ring := p.take(init.Blocks * sendring.BlockSize)
	init.Addr, init.LKey = ring.Addr, ring.LKey
	if err := rung.UseRing(init); err != nil {
		return nil, err
	}
	q := &redn.Queue{Name: name, QPN: qp.QPN(), Ring: ring, Managed: init.Managed, Counts16: init.Counts16, Done: &redn.Counter{Number: sent}}
	p.queues, p.qps, p.received = append(p.queues, q), append(p.qps, rung), &redn.Counter{Number: received}
	p.sent = append(p.sent, send)
	if !loop {
		return q, nil
	}
	if err := qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}); err != nil {
		return nil, err
	}
	if err := qp.ToRTR(verbs.ToRTR{DestQPN: qp.QPN(), DestGID: verbs.GIDOf(p.m.Addr), PathMTU: verbs.MTU4096}); err != nil {
		return nil, err
	}
	return q, qp.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7})
}

// last returns the queue pair that was made last; a client is connected to it.
func (p *program) last() verbs.RingQP { return p.qps[len(p.qps)-1] }

// start writes the program into memory and rings the doorbells.
func (p *program) start() error {
	if err := p.mr.WriteAt(p.pool.Image(), p.poolAt); err != nil {
		return err
	}
	return redn.Start(p.mr, p.queues, p.qps)
}

var (
	unrolled = verbs.RingInit{Managed: true}
	recycled = verbs.RingInit{Managed: true, Counts16: true}
)

// lookups builds n lookups and one more: a lookup enables the first requests of the next one.
func (p *program) lookups(way func(l *redn.Lookup) (probes int, err error), n, depth int, table, client redn.Mem, value int) error {
	l := &redn.Lookup{Table: table}
	var err error
	if l.Worker, err = p.queue("worker", (n+1)*lookupBlocks, unrolled, true); err != nil {
		return err
	}
	probes, err := way(l)
	if err != nil {
		return err
	}
	if l.Answers, err = p.queue("answers", (n+1)*(probes+1), unrolled, false); err != nil {
		return err
	}
	l.Received, l.Scratch = p.received, p.take(8)
	l.Start(p.queues[0])
	for i := range n + 1 {
		l.Client = client.At(sendLen*depth+i%depth*value, value)
		sges, err := l.Request(probes)
		if err != nil {
			return err
		}
		if i < n {
			p.receives = append(p.receives, verbs.RecvWR{ID: uint64(i), SGL: sges})
		}
	}
	return nil
}

// again builds a recycled program for lookups with the given number of probes.
func (p *program) again(probes int, table, client redn.Mem) (err error) {
	s := &redn.LookupServer{Receives: 1, Table: table, Client: client}
	worker, answers := redn.LookupServerBlocks(probes)
	if s.Worker, err = p.queue("worker", worker, recycled, true); err != nil {
		return err
	}
	if s.Answers, err = p.queue("answers", answers, recycled, false); err != nil {
		return err
	}
	s.Received = p.received
	sges, err := s.Build(p.pool, probes)
	if err != nil {
		return err
	}
	s.Start(p.queues[0])
	p.receives = []verbs.RecvWR{{SGL: sges}}
	return nil
}

// walks builds n walks of lists of some nodes and one more; with a break, one walk.
func (p *program) walks(n, nodes int, breaks bool, lists, client redn.Mem) (err error) {
	k := &redn.Walk{Lists: lists, Client: client, Pool: p.pool}
	if k.Worker, err = p.queue("worker", (n+1)*(6*nodes+8), unrolled, true); err != nil {
		return err
	}
	if breaks {
		if k.Copies, err = p.queue("copies", nodes+1, unrolled, true); err != nil {
			return err
		}
	}
	if k.Answers, err = p.queue("answers", (n+1)*(nodes+1), unrolled, false); err != nil {
		return err
	}
	k.Received = p.received
	k.Start(p.queues[0])
	more := 1
	if breaks {
		more = 0
	}
	for i := range n + more {
		sges, err := k.Request(nodes)
		if err != nil {
			return err
		}
		if i < n {
			p.receives = append(p.receives, verbs.RecvWR{ID: uint64(i), SGL: sges})
		}
	}
	return nil
}

// list builds the recycled program that walks lists.
func (p *program) list(n int, lists, client redn.Mem) (err error) {
	s := &redn.ListServer{Lists: lists, Client: client}
	if s.Worker, err = p.queue("worker", redn.ListWorkerBlocks, recycled, true); err != nil {
		return err
	}
	if s.Answers, err = p.queue("answers", redn.ListAnswerBlocks, recycled, false); err != nil {
		return err
	}
	s.Received, s.Skipped = p.received, p.take(redn.WalkLen)
	sges, err := s.Build(p.pool)
	if err != nil {
		return err
	}
	s.Start(p.queues[0])
	for i := range n {
		p.receives = append(p.receives, verbs.RecvWR{ID: uint64(i), SGL: sges})
	}
	return nil
}
