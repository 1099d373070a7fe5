package nictable

import (
	"cmp"
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

	// most, if not 0, replaces maxPrograms in tests.
	most     int
	mu       sync.Mutex // guards the fields below
	programs []*program
	rate     int // see Limit
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

// Close ends all programs and frees the table.
func (e *Estate) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, p := range e.programs {
		errs = append(errs, p.Close())
	}
	e.programs = nil
	return errors.Join(append(errs, e.mr.Dereg(), e.pd.Dealloc())...)
}

// Limit makes the NIC answer each client that connects from now on at most `rate` GETs a second, over times longer than a
// few GETs; 0 means as many as it can. Clients that are connected keep their limit.
func (e *Estate) Limit(rate int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rate = rate
}

// limit returns the limit of the next program's ring of answers in entries a second, of which a GET takes a whole lap.
func (e *Estate) limit(answers int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rate * answers
}

// table returns the table's memory with the keys by which requests of programs name it.
func (e *Estate) table() redn.Mem { return redn.MemOf(e.mr) }

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
	e.programs = slices.DeleteFunc(e.programs, func(p *program) bool {
		a, err := p.QPs[answersQP].Query()
		if err != nil || a.State == verbs.StateError {
			_ = p.Close() // an object that cannot be destroyed stays
			return true
		}
		if a.RecvPSN != p.next {
			p.next, p.heard = a.RecvPSN, now
		}
		return false
	})
}

// makeRoom ends the program that had no request for longest if there are maxPrograms already. It
// returns false if all programs had requests lately (see silence). The NIC does not notice that a
// client has crashed or hangs, because a program sends nothing to a client that asks nothing.
func (e *Estate) makeRoom() bool {
	most := cmp.Or(e.most, maxPrograms)
	e.mu.Lock()
	full := len(e.programs) >= most
	e.mu.Unlock()
	if !full {
		return true
	}
	e.bury()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.programs) < most {
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
	_ = p.Close() // an object that cannot be destroyed stays
	return true
}

// Lengths of two parts of a program's memory: of the pool in bytes, and of a ring in blocks.
const (
	poolLen    = 2048
	masterRing = 4 // length of the ring of the master queue pair, in blocks
)

// Numbers of the queue pairs of a program.
const (
	masterQP = iota
	workerQP
	answersQP
)

// program answers the GETs of one client.
type program struct {
	redn.Program
	estate *Estate
	// next is the PSN of the next request. heard is when bury first saw this PSN: about the time of
	// the last request.
	next  wire.PSN
	heard clock.Time
	// receive takes a request. It is posted once, and the program uses it again and again.
	receive verbs.RecvWR
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
	p := &program{Program: redn.Program{Context: e.ctx, PD: e.pd, CQE: 1, Receives: 1}, estate: e, heard: e.ctx.Runtime().Now()}
	err := p.build(client)
	if err == nil {
		var moves [wordLen]byte
		if err = e.mr.ReadAt(moves[:], 0); err == nil {
			private := binary.BigEndian.AppendUint64(nil, e.mr.Addr())
			private = e.shape.append(binary.BigEndian.AppendUint32(append(private, moves[:]...), e.mr.RKey()))
			err = req.Accept(p.QPs[answersQP], params, private, deadline)
		}
		if err == nil {
			err = p.QPs[answersQP].PostRecv(p.receive)
		}
	} else {
		err = errors.Join(err, req.Reject(err.Error()))
	}
	if err != nil {
		return errors.Join(err, p.Close())
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
	if p.MR, err = p.PD.RegMR(nil, size, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic); err != nil {
		return err
	}
	for i, q := range []struct {
		name string
		init verbs.RingInit
	}{
		masterQP:  {"master", verbs.RingInit{Blocks: masterRing}},
		workerQP:  {"worker", verbs.RingInit{Blocks: worker, Managed: true, Counts16: true}},
		answersQP: {"answers", verbs.RingInit{Blocks: answers, Managed: true, Counts16: true, Rate: p.estate.limit(answers)}},
	} {
		if _, err := p.Queue(q.name, q.init); err != nil {
			return err
		}
		if i != answersQP {
			if err := p.Loop(p.Context.Device().GIDs[0], verbs.MTU4096); err != nil {
				return err
			}
		}
	}
	table := p.estate.table()
	s := &redn.LookupServer{
		Worker: p.Queues[workerQP], Answers: p.Queues[answersQP], Received: p.Received, Receives: 1, Table: table, Client: client,
		Note: table.At(0, wordLen), Noted: client.At(noteAt(p.estate.shape), wordLen),
	}
	p.UsePool(poolLen)
	receive, err := s.Build(p.Pool, probes)
	if err != nil {
		return err
	}
	s.Start(p.Queues[masterQP])
	if err := redn.Verify(map[*redn.Counter]uint32{p.Received: 3}, p.Queues...); err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	p.receive = verbs.RecvWR{SGL: receive}
	return nil
}

// buryPause is the interval at which a server looks for clients that have gone.
const buryPause = 100 * time.Millisecond
