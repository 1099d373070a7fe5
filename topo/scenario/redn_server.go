package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// chainServer is the server of redn. Its process fills its memory, and builds a program for each
// client that connects. After that no request needs the process: the NIC answers by the programs.
type chainServer struct {
	run   *chainRun
	host  *simrack.Host
	keys  []redn.Operand // by bucket; 0 means that the bucket has no key
	lists [][]redn.Operand
	// data is the server's memory: the buckets, the nodes, and the values of both. filled is a copy
	// of data from the beginning. No program may change data.
	data, filled []byte
	mr           verbs.MR
}

const chainService = "redn"

func newChainServer(r *chainRun) *chainServer {
	s := &chainServer{run: r, host: r.rack.Host(server), keys: make([]redn.Operand, r.plan.buckets)}
	d := r.draw
	key := func() redn.Operand { return redn.Operand(1 + d.Uint64N(1<<48-1)) }
	for i := range s.keys {
		if d.chance(0.8) {
			s.keys[i] = key()
		}
	}
	for _, n := range r.plan.nodes {
		list := make([]redn.Operand, n)
		for i := range list {
			list[i] = key()
		}
		s.lists = append(s.lists, list)
	}
	s.data = make([]byte, s.valueOff(s.places()))
	return s
}

// A place is the index of a bucket or node in the memory: first the buckets, then the nodes and the
// end of each list.

func (s *chainServer) places() int {
	n := len(s.keys)
	for _, l := range s.lists {
		n += len(l) + 1
	}
	return n
}

// node returns the place of node i of a list; i may be the list's length, for its end.
func (s *chainServer) node(list, i int) int {
	n := len(s.keys)
	for _, l := range s.lists[:list] {
		n += len(l) + 1
	}
	return n + i
}

func placeOff(place int) int { return place * chainNodeLen }

func (s *chainServer) valueOff(place int) int { return placeOff(s.places()) + place*s.run.plan.value }

// value returns the bytes that the value of a place has.
func (s *chainServer) value(place int) []byte {
	b := make([]byte, s.run.plan.value)
	for i := range b {
		b[i] = byte(place*7 + i*13 + 1)
	}
	return b
}

// fill writes buckets, nodes and values to the memory, whose address is base.
func (s *chainServer) fill(base uint64) {
	at := func(off int) uint64 { return base + uint64(off) }
	for i, key := range s.keys {
		copy(s.data[placeOff(i):], redn.AppendBucket(nil, key, at(s.valueOff(i))))
		value := redn.Mem{Addr: at(s.valueOff(i)), LKey: s.mr.LKey(), Len: s.run.plan.value}
		copy(s.data[placeOff(i)+chainSlotOff:], redn.AppendSlot(nil, key, redn.Hit, value))
	}
	for l, list := range s.lists {
		for i, key := range list {
			place := s.node(l, i)
			copy(s.data[placeOff(place):], redn.AppendNode(nil, key, at(s.valueOff(place)), at(placeOff(place+1))))
		}
		end := s.node(l, len(list))
		copy(s.data[placeOff(end):], redn.AppendEnd(nil, at(s.valueOff(end)), at(placeOff(end))))
	}
	for i := range s.places() {
		copy(s.data[s.valueOff(i):], s.value(i))
	}
	s.filled = bytes.Clone(s.data)
}

// unchanged returns an error if a program has written to the server's data.
func (s *chainServer) unchanged() error {
	if !bytes.Equal(s.data, s.filled) {
		return errors.New("a program has changed the server's data")
	}
	return nil
}

// start starts the server's process.
func (s *chainServer) start() {
	s.host.Go(chainService, true, func(ctx verbs.Context) {
		if err := s.serve(ctx); err != nil && !s.run.crashed() {
			s.run.fail("server: %w", err)
		}
	})
}

func (s *chainServer) serve(ctx verbs.Context) error {
	l, err := s.host.Manager(ctx).Listen(chainService)
	if err != nil {
		return err
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	if s.mr, err = pd.RegMR(s.data, len(s.data), verbs.LocalWrite|verbs.RemoteRead); err != nil {
		return err
	}
	s.fill(s.mr.Addr())
	for range s.run.plan.programs {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return err
		}
		if err := s.accept(ctx, pd, req); err != nil {
			return err
		}
		s.run.served()
	}
	return nil
}

// table returns the description of the memory data for programs.
func (s *chainServer) table() redn.Mem {
	return redn.Mem{Addr: s.mr.Addr(), LKey: s.mr.LKey(), RKey: s.mr.RKey(), Len: s.mr.Len()}
}

// accept builds the program of a client, starts it, and accepts the client's connection.
func (s *chainServer) accept(ctx verbs.Context, pd verbs.PD, req rdmacm.Request) error {
	private := req.Private()
	client := parseRemotes(private[1:])[0]
	b := &chainBuild{server: s, ctx: ctx, pd: pd, recvs: s.run.plan.rounds, client: redn.Mem{Addr: client.addr, RKey: client.rkey, Len: client.n}}
	if err := b.build(s.run.plan.programs[private[0]]); err != nil {
		return err
	}
	if err := b.start(); err != nil {
		return err
	}
	if err := req.Accept(b.answersQP, s.run.plan.params, remoteOf(s.mr).appendTo(nil), ctx.Runtime().Now().Add(dialPatience)); err != nil {
		return err
	}
	return b.answersQP.PostRecv(b.receives...)
}

// chainBuild has what is made for the program of one client: its memory, queues and receives.
type chainBuild struct {
	server    *chainServer
	ctx       verbs.Context
	pd        verbs.PD
	client    redn.Mem
	mr        verbs.MR
	used      int // bytes of mr that take has given out
	queues    []*redn.Queue
	qps       []verbs.RingQP
	answersQP verbs.RingQP
	master    *redn.Queue
	received  *redn.Counter
	receives  []verbs.RecvWR
	recvs     int // MaxRecvWR of the program's queue pairs
	pool      *redn.Pool
	poolOff   int
}

// take gives out n bytes of the program's memory mr: their description, and their offset in mr.
func (b *chainBuild) take(n int) (m redn.Mem, off int) {
	off = b.used
	b.used += (n + sendring.BlockSize - 1) &^ (sendring.BlockSize - 1)
	return redn.Mem{Addr: b.mr.Addr() + uint64(off), LKey: b.mr.LKey(), RKey: b.mr.RKey(), Len: n}, off
}

// queue makes a queue pair whose send ring has the given number of blocks. Its completion queues
// only count.
func (b *chainBuild) queue(name string, blocks int, init verbs.RingInit) (*redn.Queue, error) {
	ring, _ := b.take(blocks * sendring.BlockSize)
	counted := func() (verbs.CQ, uint32, error) {
		c, err := b.ctx.CreateCQ(1)
		if err != nil {
			return nil, 0, err
		}
		n := c.(verbs.CountedCQ)
		return c, n.Number(), n.IgnoreOverrun()
	}
	send, sent, err := counted()
	if err != nil {
		return nil, err
	}
	recv, received, err := counted()
	if err != nil {
		return nil, err
	}
	qp, err := b.pd.CreateQP(verbs.QPInit{SendCQ: send, RecvCQ: recv, MaxSendWR: 16, MaxRecvWR: b.recvs, MaxSGE: sendring.MaxSGE})
	if err != nil {
		return nil, err
	}
	init.Addr, init.LKey, init.Blocks = ring.Addr, ring.LKey, blocks
	rung := qp.(verbs.RingQP)
	if err := rung.UseRing(init); err != nil {
		return nil, err
	}
	q := &redn.Queue{Name: name, QPN: qp.QPN(), Ring: ring, Managed: init.Managed, Counts16: init.Counts16, Done: &redn.Counter{Number: sent}}
	b.queues, b.qps, b.received = append(b.queues, q), append(b.qps, rung), &redn.Counter{Number: received}
	if name == "answers" {
		b.answersQP = rung
		return q, nil
	}
	return q, b.loop(qp)
}

// loop connects a queue pair to itself, because the entries of its ring work on the memory of the
// same NIC.
func (b *chainBuild) loop(qp verbs.QP) error {
	if err := qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}); err != nil {
		return err
	}
	gid := verbs.GIDOf(b.server.host.Addr())
	if err := qp.ToRTR(verbs.ToRTR{DestQPN: qp.QPN(), DestGID: gid, PathMTU: verbs.MTU1024}); err != nil {
		return err
	}
	return qp.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7})
}

const (
	chainPool   = 4096 // bytes of the memory for operands of a program
	chainMemory = 1 << 20
)

// ringFor returns the number of blocks of a ring that has room for blocks: the next power of two.
func ringFor(blocks int) int { return 1 << bits.Len(uint(blocks-1)) }

// build makes the program of a client with this name, and its queues.
func (b *chainBuild) build(program string) error {
	buf := make([]byte, chainMemory)
	var err error
	if b.mr, err = b.pd.RegMR(buf, len(buf), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic); err != nil {
		return err
	}
	if b.master, err = b.queue("master", 4, verbs.RingInit{}); err != nil {
		return err
	}
	m, off := b.take(chainPool)
	b.pool, b.poolOff = redn.NewPool(m), off
	switch program {
	case chainList:
		return b.list()
	case chainRecycled:
		return b.recycled()
	}
	return b.lookup(program == chainParallel)
}

// lookup builds all lookups of a client, and one more, because each lookup enables the first
// entries of the next one. parallel: the probes of a lookup run on queues beside each other.
func (b *chainBuild) lookup(parallel bool) error {
	plan := b.server.run.plan
	n := plan.rounds + 1
	size := ringFor(n * (4 + 5*plan.probes))
	l := &redn.Lookup{Table: b.server.table()}
	var err error
	if l.Worker, err = b.queue("worker", size, verbs.RingInit{Managed: true}); err != nil {
		return err
	}
	for i := 1; parallel && i < plan.probes; i++ {
		beside, err := b.queue(fmt.Sprintf("worker%d", i), size, verbs.RingInit{Managed: true})
		if err != nil {
			return err
		}
		l.Beside = append(l.Beside, beside)
	}
	if l.Answers, err = b.queue("answers", ringFor(n*(2*plan.probes+1)), verbs.RingInit{Managed: !plan.published}); err != nil {
		return err
	}
	l.Received = b.received
	l.Scratch, _ = b.take(8)
	l.Start(b.master)
	for i := range n {
		l.Client = b.client.At(i%plan.depth*plan.value, plan.value)
		sges, err := l.Request(plan.probes)
		if err != nil {
			return err
		}
		if i < plan.rounds {
			b.receives = append(b.receives, verbs.RecvWR{ID: uint64(i), SGL: sges})
		}
	}
	return b.verify(l.Received, n)
}

// list builds a loop whose rounds walk lists.
func (b *chainBuild) list() error {
	plan := b.server.run.plan
	s := &redn.ListServer{Lists: b.server.table(), Client: b.client.At(0, plan.value)}
	var err error
	if s.Worker, err = b.queue("worker", redn.ListWorkerBlocks, verbs.RingInit{Managed: true, Counts16: true}); err != nil {
		return err
	}
	if s.Answers, err = b.queue("answers", redn.ListAnswerBlocks, verbs.RingInit{Managed: true, Counts16: true}); err != nil {
		return err
	}
	s.Received = b.received
	s.Skipped, _ = b.take(redn.WalkLen)
	sges, err := s.Build(b.pool)
	if err != nil {
		return err
	}
	s.Start(b.master)
	for i := range plan.rounds {
		b.receives = append(b.receives, verbs.RecvWR{ID: uint64(i), SGL: sges})
	}
	return b.verify(s.Received, plan.rounds)
}

// recycled builds a loop whose rounds look keys up. It has one receive, which each round makes
// usable again.
func (b *chainBuild) recycled() error {
	plan := b.server.run.plan
	b.recvs = 1
	s := &redn.LookupServer{Receives: b.recvs, Table: b.server.table(), Client: b.client.At(0, plan.value)}
	worker, answers := redn.LookupServerBlocks(plan.probes)
	var err error
	if s.Worker, err = b.queue("worker", worker, verbs.RingInit{Managed: true, Counts16: true}); err != nil {
		return err
	}
	if s.Answers, err = b.queue("answers", answers, verbs.RingInit{Managed: true, Counts16: true}); err != nil {
		return err
	}
	s.Received = b.received
	sges, err := s.Build(b.pool, plan.probes)
	if err != nil {
		return err
	}
	s.Start(b.master)
	b.receives = []verbs.RecvWR{{SGL: sges}}
	return b.verify(s.Received, plan.rounds)
}

// verify checks that the program neither hangs nor overruns a ring while it handles n requests; see
// redn.Verify.
func (b *chainBuild) verify(received *redn.Counter, n int) error {
	return redn.Verify(map[*redn.Counter]uint32{received: uint32(n)}, b.queues...)
}

// start writes the program's operands to the memory and rings the doorbells of its queues.
func (b *chainBuild) start() error {
	if err := b.mr.WriteAt(b.pool.Image(), b.poolOff); err != nil {
		return err
	}
	return redn.Start(b.mr, b.queues, b.qps)
}

// ask appends the request of a client to look for key in the given places, for a program.
func (s *chainServer) ask(b []byte, base uint64, program string, key redn.Operand, places []int) []byte {
	if program == chainList {
		return redn.AppendWalk(b, key, base+uint64(placeOff(places[0])))
	}
	for _, place := range places {
		off := placeOff(place)
		if program == chainRecycled {
			off += chainSlotOff
		}
		b = redn.AppendProbe(b, key, base+uint64(off))
	}
	return b
}
