package chains

import (
	"math/bits"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	poolLen = 1 << 16 // bytes of a program's constants and variables
	// cqLen is the number of entries of a completion queue.
	cqLen = 1024
	// lookupBlocks is the number of blocks (of 64 bytes) that a lookup with two probes takes in the
	// send ring of the queue "worker".
	lookupBlocks = 2 + 2*5
)

// program is a program of work requests. Each of its queue pairs is connected to itself, except the
// last one, which is connected to the client if there is one.
type program struct {
	redn.Program
	m        Machine
	receives []verbs.RecvWR // those that the server posts to the last queue pair
	err      error          // the first error of the method queue
}

// newProgram makes an empty program, with a region of size bytes for its rings and constants. recvs
// is the number of receives that fit into a queue pair. The caller makes the queues: first the one
// that is not managed, which enables the others.
func newProgram(m Machine, pd verbs.PD, size, recvs int) (p *program, err error) {
	p = &program{m: m, Program: redn.Program{Context: m.Context, PD: pd, CQE: cqLen, Receives: recvs}}
	if p.MR, err = programMemory(m, pd, size); err != nil {
		return nil, err
	}
	p.UsePool(poolLen)
	return p, nil
}

// nicProgramLen is the size of the memory of a program on a NIC, which has 256 KiB.
const nicProgramLen = 192 << 10

// programMemory returns the memory of a program: that of the host, or of the NIC.
func programMemory(m Machine, pd verbs.PD, size int) (verbs.MR, error) {
	const access = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	if !m.onNIC {
		return pd.RegMR(nil, size, access)
	}
	dm, err := m.Context.AllocDM(nicProgramLen)
	if err != nil {
		return nil, err
	}
	return pd.RegDM(dm, 0, nicProgramLen, access)
}

// queue makes a queue pair with a send ring of at least the given number of blocks. If loop is true,
// it connects the queue pair to itself. After an error, which is in p.err, it makes no more.
func (p *program) queue(name string, blocks int, init verbs.RingInit, loop bool) (q *redn.Queue) {
	if p.err != nil {
		return nil
	}
	init.Blocks = 1 << bits.Len(uint(blocks-1))
	if q, p.err = p.Queue(name, init); p.err == nil && loop {
		p.err = p.Loop(verbs.GIDOf(p.m.Addr), verbs.MTU4096)
	}
	return q
}

// receive adds a receive, for one request of the client.
func (p *program) receive(sges []verbs.SGE) {
	p.receives = append(p.receives, verbs.RecvWR{ID: uint64(len(p.receives)), SGL: sges})
}

// The send rings of unrolled and of recycled programs. Recycled programs count in 16 bits, because
// they keep four counts in one word; see verbs.RingInit.
var (
	unrolled = verbs.RingInit{Managed: true}
	recycled = verbs.RingInit{Managed: true, Counts16: true}
)

// lookups builds an unrolled program of n lookups, and of one more that is never requested, because
// each lookup enables the first work requests of the next one. way adds the queues that the kind of
// lookup needs, and returns its number of probes. depth and value are the number and the length of
// the places for values in the client's buffer.
func (p *program) lookups(way func(l *redn.Lookup) (probes int, err error), n, depth int, table, client redn.Mem, value int) error {
	l := &redn.Lookup{Table: table, Worker: p.queue("worker", (n+1)*lookupBlocks, unrolled, true)}
	probes, err := way(l)
	if err != nil {
		return err
	}
	l.Answers = p.queue("answers", (n+1)*(probes+1), unrolled, false)
	if p.err != nil {
		return p.err
	}
	l.Received, l.Scratch = p.Received, p.Take(8)
	l.Start(p.Queues[0])
	for i := range n + 1 {
		l.Client = client.At(sendLen*depth+i%depth*value, value)
		sges, err := l.Request(probes)
		if err != nil {
			return err
		}
		if i < n {
			p.receive(sges)
		}
	}
	return nil
}

// again builds a recycled program, a loop that executes the same requests again: each lap is one
// lookup with the given number of probes.
func (p *program) again(probes int, table, client redn.Mem) error {
	s := &redn.LookupServer{Receives: 1, Table: table, Client: client}
	worker, answers := redn.LookupServerBlocks(probes)
	s.Worker, s.Answers = p.queue("worker", worker, recycled, true), p.queue("answers", answers, recycled, false)
	if p.err != nil {
		return p.err
	}
	s.Received = p.Received
	sges, err := s.Build(p.Pool, probes)
	if err != nil {
		return err
	}
	s.Start(p.Queues[0])
	p.receive(sges)
	return nil
}

// walks builds an unrolled program of n walks of a list with the given number of nodes, and of one
// more that is never requested. If breaks is true, a walk ends at the node with the key,
// and the program ends with the walk, so no further walk is built.
func (p *program) walks(n, nodes int, breaks bool, lists, client redn.Mem) error {
	k := &redn.Walk{Lists: lists, Client: client, Pool: p.Pool}
	k.Worker = p.queue("worker", (n+1)*(6*nodes+8), unrolled, true)
	more := 1
	if breaks {
		k.Copies, more = p.queue("copies", nodes+1, unrolled, true), 0
	}
	k.Answers = p.queue("answers", (n+1)*(nodes+1), unrolled, false)
	if p.err != nil {
		return p.err
	}
	k.Received = p.Received
	k.Start(p.Queues[0])
	for i := range n + more {
		sges, err := k.Request(nodes)
		if err != nil {
			return err
		}
		if i < n {
			p.receive(sges)
		}
	}
	return nil
}

// list builds the recycled program that walks lists, a loop with one node in each lap. The server
// posts n receives, one for each request.
func (p *program) list(n int, lists, client redn.Mem) error {
	s := &redn.ListServer{Lists: lists, Client: client}
	s.Worker, s.Answers = p.queue("worker", redn.ListWorkerBlocks, recycled, true), p.queue("answers", redn.ListAnswerBlocks, recycled, false)
	if p.err != nil {
		return p.err
	}
	s.Received, s.Skipped = p.Received, p.Take(redn.WalkLen)
	sges, err := s.Build(p.Pool)
	if err != nil {
		return err
	}
	s.Start(p.Queues[0])
	for range n {
		p.receive(sges)
	}
	return nil
}
