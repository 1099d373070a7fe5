package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// chainServer is the server of redn. Its process fills its memory, and builds a program for each
// client that connects. After that no request needs the process: the NIC answers by the programs.
type chainServer struct {
	run   *chainRun
	host  *simrack.Host
	keys  []redn.Operand // by bucket; 0 means that the bucket has no key
	lists [][]redn.Operand
	// data is the server's memory: the buckets, the nodes, and the values of both. filled is a copy
	// of data that was made when the server had filled it. No program may change data.
	data, filled []byte
	mr           verbs.MR
}

const chainService = "redn"

func (r *chainRun) newServer() *chainServer {
	s := &chainServer{run: r, host: r.env.rack.Host(server), keys: make([]redn.Operand, r.plan.buckets)}
	d := r.env.draw
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

func (s *chainServer) start() {
	s.host.Go(chainService, true, func(ctx verbs.Context) {
		if err := s.serve(ctx); err != nil && !s.run.crashed() {
			s.run.env.fail("server: %w", err)
		}
	})
}

func (s *chainServer) serve(ctx verbs.Context) error {
	l, pd, err := listen(s.host, ctx, chainService)
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

// table returns the description of the server's data that programs need.
func (s *chainServer) table() redn.Mem { return redn.MemOf(s.mr) }

// accept builds the program of a client, starts it, and accepts the client's connection.
func (s *chainServer) accept(ctx verbs.Context, pd verbs.PD, req rdmacm.Request) error {
	private := req.Private()
	client := parseRemotes(private[1:])[0]
	b := s.newBuild(ctx, pd, s.run.plan.rounds, client)
	if err := b.build(s.run.plan.programs[private[0]]); err != nil {
		return err
	}
	if err := b.Start(); err != nil {
		return err
	}
	if err := req.Accept(b.Last(), s.run.plan.params, remoteOf(s.mr).appendTo(nil), ctx.Runtime().Now().Add(dialPatience)); err != nil {
		return err
	}
	return b.Last().PostRecv(b.receives...)
}

// chainBuild builds the program of one client, and has the program's memory, queues and receives.
type chainBuild struct {
	redn.Program
	server   *chainServer
	client   redn.Mem
	master   *redn.Queue
	receives []verbs.RecvWR
}

// newBuild begins the program of a client whose memory is client. Its queue pairs have room for
// recvs receives.
func (s *chainServer) newBuild(ctx verbs.Context, pd verbs.PD, recvs int, client remote) *chainBuild {
	return &chainBuild{
		Program: redn.Program{Context: ctx, PD: pd, CQE: 1, Receives: recvs},
		server:  s, client: redn.Mem{Addr: client.addr, RKey: client.rkey, Len: client.n},
	}
}

// queue makes a queue pair whose send ring has the given number of blocks. The queue pair called
// answers will be connected to the client; queue connects every other one to itself.
func (b *chainBuild) queue(name string, blocks int, init verbs.RingInit) (*redn.Queue, error) {
	init.Blocks = blocks
	q, err := b.Queue(name, init)
	if err == nil && name != "answers" {
		err = b.Loop(verbs.GIDOf(b.server.host.Addr()), verbs.MTU1024)
	}
	return q, err
}

// loop makes the queues of a program that is a loop. Each queue has the number of blocks that one
// round of the loop uses.
func (b *chainBuild) loop(workerBlocks, answerBlocks int) (worker, answers *redn.Queue, err error) {
	init := verbs.RingInit{Managed: true, Counts16: true}
	if worker, err = b.queue("worker", workerBlocks, init); err == nil {
		answers, err = b.queue("answers", answerBlocks, init)
	}
	return worker, answers, err
}

// begin makes the pool of operands, and the master queue, which starts the other queues.
func (b *chainBuild) begin() (err error) {
	b.master, err = b.queue("master", 4, verbs.RingInit{})
	b.UsePool(chainPool)
	return err
}

const (
	chainPool   = 4096    // bytes of the memory for operands of a program
	chainMemory = 1 << 20 // bytes of the whole memory of a program of the scenario redn
)

// ringFor returns the length of a ring with room for this number of blocks: the next power of two.
func ringFor(blocks int) int { return 1 << bits.Len(uint(blocks-1)) }

// build makes a client's program and its queues. program is one of those of chainPlan.programs.
func (b *chainBuild) build(program string) error {
	buf := make([]byte, chainMemory)
	var err error
	if b.MR, err = b.PD.RegMR(buf, len(buf), wordAccess); err != nil {
		return err
	}
	if err := b.begin(); err != nil {
		return err
	}
	switch program {
	case chainList:
		return b.list()
	case chainRecycled:
		return b.recycled()
	}
	return b.lookup(program == chainParallel)
}

// lookup builds all lookups of a client, and one more, because each lookup enables the first
// entries of the next one. If parallel is true, each probe of a lookup runs on a queue of its own.
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
	l.Received = b.Received
	l.Scratch = b.Take(8)
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
	worker, answers, err := b.loop(redn.ListWorkerBlocks, redn.ListAnswerBlocks)
	if err != nil {
		return err
	}
	s := &redn.ListServer{
		Worker: worker, Answers: answers, Received: b.Received, Lists: b.server.table(), Client: b.client.At(0, plan.value), Skipped: b.Take(redn.WalkLen),
	}
	sges, err := s.Build(b.Pool)
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
	b.Receives = 1
	worker, answers, err := b.loop(redn.LookupServerBlocks(plan.probes))
	if err != nil {
		return err
	}
	s := &redn.LookupServer{
		Receives: b.Receives, Worker: worker, Answers: answers, Received: b.Received, Table: b.server.table(), Client: b.client.At(0, plan.value),
	}
	sges, err := s.Build(b.Pool, plan.probes)
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
	return redn.Verify(map[*redn.Counter]uint32{received: uint32(n)}, b.Queues...)
}

// ask appends to b the request by which a client makes a program look for key in the given places.
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
