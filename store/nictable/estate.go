package nictable

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Estate is the table and the programs that answer GETs. It outlives the processes that change it.
type Estate struct {
	ctx   verbs.Context
	pd    verbs.PD
	mr    verbs.MR
	shape Shape

	mu       sync.Mutex // guards programs
	programs []*program
}

// NewEstate makes an empty table. The caller closes ctx after Close.
func NewEstate(ctx verbs.Context, s Shape) (_ *Estate, err error) {
	s, err = s.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Estate{ctx: ctx, shape: s}
	if e.pd, err = ctx.AllocPD(); err != nil {
		return nil, err
	}
	if e.mr, err = e.pd.RegMR(nil, s.size(), verbs.LocalWrite|verbs.RemoteRead); err != nil {
		return nil, errors.Join(err, e.pd.Dealloc())
	}
	return e, nil
}

// Shape describes the table.
func (e *Estate) Shape() Shape { return e.shape }

// Close ends all programs and frees the table.
func (e *Estate) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, p := range e.programs {
		errs = append(errs, p.close())
	}
	e.programs = nil
	return errors.Join(append(errs, e.mr.Dereg(), e.pd.Dealloc())...)
}

// table names the memory of the table for programs.
func (e *Estate) table() redn.Mem {
	return redn.Mem{Addr: e.mr.Addr(), LKey: e.mr.LKey(), RKey: e.mr.RKey(), Len: e.mr.Len()}
}

// maxPrograms is how many programs there may be. Each has three queue pairs and six completion
// queues of the NIC, and the programs outlive the process that made them.
const maxPrograms = 1024

// silence is how long a program must have had no request before it may be ended for the sake of
// another client. If the program's client still runs, it makes a new connection at its next GET.
const silence = time.Second

// bury frees the programs of clients that have gone, and notes which programs have had requests.
func (e *Estate) bury() {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.ctx.Runtime().Now()
	kept := e.programs[:0]
	for _, p := range e.programs {
		a, err := p.qps[answersQP].Query()
		if err != nil || a.State == verbs.StateError {
			_ = p.close() // an object that cannot be destroyed stays
			continue
		}
		if a.RecvPSN != p.next {
			p.next, p.heard = a.RecvPSN, now
		}
		kept = append(kept, p)
	}
	clear(e.programs[len(kept):])
	e.programs = kept
}

// makeRoom ends the program that had no request for longest if there are maxPrograms already. The
// NIC does not notice that a client has crashed or hangs, because the program's queue pair sends
// nothing to it. makeRoom returns false if all programs had requests lately (see silence).
func (e *Estate) makeRoom() bool {
	e.mu.Lock()
	full := len(e.programs) >= maxPrograms
	e.mu.Unlock()
	if !full {
		return true
	}
	e.bury()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.programs) < maxPrograms {
		return true
	}
	oldest := 0
	for i, p := range e.programs {
		if p.heard < e.programs[oldest].heard {
			oldest = i
		}
	}
	p := e.programs[oldest]
	if e.ctx.Runtime().Now() < p.heard.Add(silence) {
		return false
	}
	e.programs = slices.Delete(e.programs, oldest, oldest+1)
	_ = p.close() // an object that cannot be destroyed stays
	return true
}

// Lengths of the memory of a program in bytes; its parts begin at multiples of a block.
const (
	poolLen    = 2048
	masterRing = 4 // length of the ring of the master queue pair, in blocks
	inFlight   = 16
	loopback   = 7 // retries of queue pairs that are their own peers
)

// Numbers of the queue pairs of a program.
const (
	masterQP = iota
	workerQP
	answersQP
)

// program answers the GETs of one client.
type program struct {
	estate *Estate
	mr     verbs.MR
	cqs    []verbs.CQ
	qps    []verbs.RingQP
	queues []*redn.Queue
	used   int // how many bytes of mr are in use
	// next is the PSN of the next request, and heard when bury first saw this value.
	next  wire.PSN
	heard clock.Time
	// receive takes a request. It is posted once, and the program uses it again and again.
	receive verbs.RecvWR
}

// close frees what build has made.
func (p *program) close() error {
	var errs []error
	for _, q := range p.qps {
		errs = append(errs, q.Destroy())
	}
	for _, c := range p.cqs {
		errs = append(errs, c.Destroy())
	}
	if p.mr != nil {
		errs = append(errs, p.mr.Dereg())
	}
	return errors.Join(errs...)
}

// welcome makes a program for the client that asks for a connection, and accepts the connection.
// The private data of the request say where the client's buffer is.
func (e *Estate) welcome(req rdmacm.Request, params rdmacm.Params, deadline clock.Time) error {
	b := req.Private()
	if len(b) < bufferLen {
		return req.Reject("no buffer")
	}
	if !e.makeRoom() {
		return req.Reject("too many clients read at the same time")
	}
	client := redn.Mem{Addr: binary.BigEndian.Uint64(b), RKey: binary.BigEndian.Uint32(b[8:]), Len: noteAt(e.shape) + wordLen}
	p := &program{estate: e, heard: e.ctx.Runtime().Now()}
	err := p.build(client)
	if err == nil {
		var moves [wordLen]byte
		if err = e.mr.ReadAt(moves[:], 0); err == nil {
			private := binary.BigEndian.AppendUint64(nil, e.mr.Addr())
			private = e.shape.append(binary.BigEndian.AppendUint32(append(private, moves[:]...), e.mr.RKey()))
			err = req.Accept(p.qps[answersQP], params, private, deadline)
		}
		if err == nil {
			err = p.qps[answersQP].PostRecv(p.receive)
		}
	} else {
		err = errors.Join(err, req.Reject(err.Error()))
	}
	if err != nil {
		return errors.Join(err, p.close())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.programs = append(e.programs, p)
	return nil
}

// build makes the queues and starts the program, which waits for the first request.
func (p *program) build(client redn.Mem) (err error) {
	worker, answers := redn.LookupServerBlocks(probes)
	size := (masterRing+worker+answers)*sendring.BlockSize + poolLen
	if p.mr, err = p.estate.pd.RegMR(nil, size, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic); err != nil {
		return err
	}
	var received *redn.Counter
	for i, q := range []struct {
		name string
		init verbs.RingInit
	}{
		masterQP:  {"master", verbs.RingInit{Blocks: masterRing}},
		workerQP:  {"worker", verbs.RingInit{Blocks: worker, Managed: true, Counts16: true}},
		answersQP: {"answers", verbs.RingInit{Blocks: answers, Managed: true, Counts16: true}},
	} {
		if received, err = p.queue(q.name, q.init); err != nil {
			return err
		}
		if i != answersQP {
			if err := p.loop(p.qps[i]); err != nil {
				return err
			}
		}
	}
	table := p.estate.table()
	s := &redn.LookupServer{
		Worker: p.queues[workerQP], Answers: p.queues[answersQP], Received: received, Receives: 1, Table: table, Client: client,
		Note: table.At(0, wordLen), Noted: client.At(noteAt(p.estate.shape), wordLen),
	}
	at := p.used
	pool := redn.NewPool(p.take(poolLen))
	receive, err := s.Build(pool, probes)
	if err != nil {
		return err
	}
	s.Start(p.queues[masterQP])
	if err := redn.Verify(map[*redn.Counter]uint32{received: 3}, p.queues...); err != nil {
		return err
	}
	if err := p.mr.WriteAt(pool.Image(), at); err != nil {
		return err
	}
	if err := redn.Start(p.mr, p.queues, p.qps); err != nil {
		return err
	}
	p.receive = verbs.RecvWR{SGL: receive}
	return nil
}

// take returns the next n bytes of the program's memory.
func (p *program) take(n int) redn.Mem {
	m := redn.Mem{Addr: p.mr.Addr(), LKey: p.mr.LKey(), RKey: p.mr.RKey(), Len: p.mr.Len()}.At(p.used, n)
	p.used += n
	return m
}

// queue makes a queue pair with a ring, and queues that count its completions.
func (p *program) queue(name string, init verbs.RingInit) (received *redn.Counter, err error) {
	var numbers [2]uint32
	for i := range numbers {
		c, err := p.estate.ctx.CreateCQ(1)
		if err != nil {
			return nil, err
		}
		p.cqs = append(p.cqs, c)
		counted, ok := c.(verbs.CountedCQ)
		if !ok {
			return nil, verbs.ErrNotSupported
		}
		if err := counted.IgnoreOverrun(); err != nil {
			return nil, err
		}
		numbers[i] = counted.Number()
	}
	n := len(p.cqs)
	qp, err := p.estate.pd.CreateQP(verbs.QPInit{
		Type: verbs.RC, SendCQ: p.cqs[n-2], RecvCQ: p.cqs[n-1], MaxSendWR: inFlight, MaxRecvWR: 1, MaxSGE: sendring.MaxSGE,
	})
	if err != nil {
		return nil, err
	}
	rung, ok := qp.(verbs.RingQP)
	if !ok {
		return nil, errors.Join(verbs.ErrNotSupported, qp.Destroy())
	}
	p.qps = append(p.qps, rung)
	ring := p.take(init.Blocks * sendring.BlockSize)
	init.Addr, init.LKey = ring.Addr, ring.LKey
	p.queues = append(p.queues, &redn.Queue{
		Name: name, QPN: qp.QPN(), Ring: ring, Managed: init.Managed, Counts16: init.Counts16, Done: &redn.Counter{Number: numbers[0]},
	})
	return &redn.Counter{Number: numbers[1]}, rung.UseRing(init)
}

// loop connects a queue pair to itself.
func (p *program) loop(q verbs.QP) error {
	if err := q.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}); err != nil {
		return err
	}
	if err := q.ToRTR(verbs.ToRTR{DestQPN: q.QPN(), DestGID: p.estate.ctx.Device().GIDs[0], PathMTU: verbs.MTU4096}); err != nil {
		return err
	}
	return q.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: loopback, RNRRetry: loopback})
}

// buryPause is the interval at which a server looks for clients that have gone.
const buryPause = 100 * time.Millisecond
