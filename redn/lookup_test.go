package redn_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	lookupRing = 4096 // blocks
	buckets    = 1 << 12
	valueLen   = 64
	clientKeys = 3000
	// servedReceives is MaxRecvWR of the queue pairs of a server.
	servedReceives = 64
)

// served is a server that answers lookups of a client by programs alone, on one NIC.
type served struct {
	*machine
	Code             redn.Mem // all of Memory
	l                *redn.Lookup
	answers, client  *engine.QP
	received, inbox  *engine.CQ
	workerQP, master *engine.QP
	masterQueue      *redn.Queue
	table            map[redn.Operand]int // bucket
	place            map[string]int       // of each memory in buf
	spare            int                  // receives of the client that no answer has taken
	narrow           bool                 // counts have 16 bits
}

func newServed(t testing.TB, workerBlocks, answerBlocks int, narrow bool) *served {
	m := newMachine(t, true)
	s := &served{machine: m, narrow: narrow, table: map[redn.Operand]int{}, place: map[string]int{}}
	size := 0
	for _, a := range []struct {
		name string
		n    int
	}{{"master", 256}, {"worker", lookupRing * 64}, {"answers", lookupRing * 64}, {"table", buckets * 16}, {"values", buckets * valueLen}, {"client", 1024}, {"scratch", 256}, {"beside", lookupRing * 64}, {"copies", 64 * 64}, {"pool", 16384}, {"list", 65 * 64}} {
		s.place[a.name] = size
		size += (a.n + 63) &^ 63
	}
	s.Memory = make([]byte, size)
	mr, err := m.NIC.RegMR(m.PD, m.Memory, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	if err != nil {
		t.Fatal(err)
	}
	r, err := mr.Region()
	if err != nil {
		t.Fatal(err)
	}
	s.Code = redn.Mem{Addr: r.Base(), LKey: r.LKey(), RKey: r.RKey(), Len: size}
	s.masterQueue, s.master = s.ring("master", 4, false, nil)
	worker, qp := s.ring("worker", workerBlocks, true, nil)
	s.workerQP = qp
	s.inbox = s.cq(1024)
	if s.client, err = m.NIC.CreateQP(m.PD, s.inbox, s.inbox, verbs.QPInit{MaxRecvWR: 128}); err != nil {
		t.Fatal(err)
	}
	answers, qp := s.ring("answers", answerBlocks, true, s.client)
	s.answers = qp
	s.l = &redn.Lookup{
		Worker: worker, Answers: answers, Received: &redn.Counter{Number: s.received.ID()},
		Table: s.Code, Client: s.Code.At(s.place["client"], valueLen), Scratch: s.Code.At(s.place["scratch"], 8),
	}
	return s
}

func (s *served) cq(depth int) *engine.CQ {
	s.t.Helper()
	c, err := s.NIC.CreateCQ(depth)
	if err != nil {
		s.t.Fatal(err)
	}
	q, err := c.Queue()
	if err != nil {
		s.t.Fatal(err)
	}
	q.IgnoreOverrun()
	return c
}

// ring makes a queue with a ring, whose peer is itself or a queue pair without a ring.
func (s *served) ring(name string, blocks int, managed bool, peer *engine.QP) (*redn.Queue, *engine.QP) {
	s.t.Helper()
	return s.ringOf(name, blocks, managed, peer, servedReceives)
}

// ringOf is ring with a number of receives.
func (s *served) ringOf(name string, blocks int, managed bool, peer *engine.QP, receives int) (*redn.Queue, *engine.QP) {
	s.t.Helper()
	send := s.cq(4)
	s.received = s.cq(4)
	q, err := s.NIC.CreateQP(s.PD, send, s.received, verbs.QPInit{MaxSGE: 16, MaxRecvWR: receives})
	if err != nil {
		s.t.Fatal(err)
	}
	ring := s.Code.At(s.place[name], blocks*sendring.BlockSize)
	if err := q.UseRing(sendring.Config{Addr: ring.Addr, LKey: ring.LKey, Blocks: blocks, Managed: managed, Counts16: s.narrow}); err != nil {
		s.t.Fatal(err)
	}
	if peer == nil {
		s.connect(q, q)
	} else {
		s.connect(q, peer)
		s.connect(peer, q)
	}
	return &redn.Queue{Name: name, QPN: q.Num(), Ring: ring, Managed: managed, Counts16: s.narrow, Done: &redn.Counter{Number: send.ID()}}, q
}

func (s *served) connect(q, peer *engine.QP) {
	s.t.Helper()
	for _, err := range []error{
		q.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}),
		q.ToRTR(s.Now, verbs.ToRTR{DestQPN: peer.Num(), DestGID: s.NIC.Config().GIDs[0], PathMTU: verbs.MTU1024}),
		q.ToRTS(s.Now, verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

// put stores a key in a bucket.
func (s *served) put(bucket int, key redn.Operand) {
	value := s.place["values"] + bucket*valueLen
	copy(s.Memory[s.place["table"]+bucket*16:], redn.AppendBucket(nil, key, s.Code.Addr+uint64(value)))
	binary.LittleEndian.PutUint64(s.Memory[value:], uint64(key)*3)
	binary.LittleEndian.PutUint64(s.Memory[value+valueLen-8:], uint64(key)*5)
	s.table[key] = bucket
}

func (s *served) write(q *redn.Queue) uint32 {
	image, limit := q.Take()
	for _, p := range image {
		copy(s.Memory[s.place[q.Name]+p.Off:], p.Bytes)
	}
	return limit
}

// get looks a key up in the given buckets, as a client: the server's side was built before.
func (s *served) get(probes []int, key redn.Operand) (value []byte, hits int) {
	s.t.Helper()
	var ask []byte
	for _, b := range probes {
		ask = redn.AppendProbe(ask, key, s.Code.Addr+uint64(s.place["table"]+b*16))
	}
	return s.ask(ask, len(probes)+1, true)
}

// ask sends a request and returns the value and how many answers are hits, of at most that many. missEnds:
// the last answer is a miss, and no other one.
func (s *served) ask(request []byte, answers int, missEnds bool) (value []byte, hits int) {
	s.t.Helper()
	for range answers - s.spare {
		if err := s.client.PostRecv([]verbs.RecvWR{{}}); err != nil {
			s.t.Fatal(err)
		}
	}
	at := s.place["client"]
	clear(s.Memory[at : at+1024])
	copy(s.Memory[at+512:], request)
	if err := s.client.PostSend(s.Now, []verbs.SendWR{{Op: verbs.OpSend, SGL: []verbs.SGE{{Addr: s.Code.Addr + uint64(at+512), Length: uint32(len(request)), LKey: s.Code.LKey}}}}, &s.Out); err != nil {
		s.t.Fatal(err)
	}
	s.Settle()
	q, err := s.inbox.Queue()
	if err != nil {
		s.t.Fatal(err)
	}
	wcs := make([]verbs.WC, 80)
	n := q.Poll(wcs)
	for i, wc := range wcs[:n] {
		if wc.Status != verbs.Success || wc.Opcode != verbs.WCRecvWriteImm || missEnds && (wc.Imm == redn.Miss) != (i == n-1) {
			s.t.Fatalf("answer %d of %d: %+v", i, n, wc)
		}
		hits += int(wc.Imm)
	}
	if n == 0 {
		state, next, limit, _ := s.workerQP.RingState()
		s.t.Fatalf("no answer; the worker is %v at %d of %d", state, next, limit)
	}
	s.spare = max(answers, s.spare) - n // those of the next request take them
	return s.Memory[at : at+valueLen], hits
}

// A client finds each key in its first or its second bucket, and learns that a key is in neither, while
// no processor of the server does anything: over wraps of the rings and of 16 bits of an index.
func TestLookup(t *testing.T) {
	testLookup(t, newServed(t, lookupRing, lookupRing, false))
}

// So does a client whose two buckets are probed at the same time, by two queues.
func TestParallelLookup(t *testing.T) {
	s := newServed(t, lookupRing, lookupRing, false)
	received := s.received
	beside, _ := s.ring("beside", lookupRing, true, nil)
	s.l.Beside, s.received = []*redn.Queue{beside}, received
	if _, err := s.l.Request(1); err == nil {
		t.Error("two queues with one probe are accepted")
	}
	testLookup(t, s)
}

// The queue that answers waits for the probes of all queues: without one of them the program hangs.
func TestParallelLookupWaits(t *testing.T) {
	s := newServed(t, lookupRing, lookupRing, false)
	beside, _ := s.ring("beside", lookupRing, true, nil)
	s.l.Beside = []*redn.Queue{beside}
	s.l.Start(s.masterQueue)
	if _, err := s.l.Request(2); err != nil {
		t.Fatal(err)
	}
	once := map[*redn.Counter]uint32{s.l.Received: 1}
	if err := redn.Verify(once, s.masterQueue, s.l.Worker, beside, s.l.Answers); err != nil {
		t.Error(err)
	}
	if err := redn.Verify(once, s.masterQueue, s.l.Worker, s.l.Answers); err == nil {
		t.Error("a lookup without its second queue is accepted")
	}
}

func testLookup(t *testing.T, s *served) {
	rnd := rand.New(rand.NewPCG(3, 3))
	var keys []redn.Operand
	for i := range clientKeys {
		key := redn.Operand(1 + rnd.Uint64N(1<<48-1))
		keys = append(keys, key)
		s.put(i, key)
	}
	lookups := 10_000
	post := func() {
		sges, err := s.l.Request(2)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range append(s.l.Beside, s.l.Worker, s.l.Answers) {
			s.write(q)
		}
		if err := s.answers.PostRecv([]verbs.RecvWR{{SGL: sges}}); err != nil {
			t.Fatal(err)
		}
	}
	s.l.Start(s.masterQueue)
	post() // the ring must have the next lookup before the worker ends one
	if err := s.master.Doorbell(s.Now, s.write(s.masterQueue)); err != nil {
		t.Fatal(err)
	}
	s.Settle()
	for i := range lookups {
		post()
		key := keys[rnd.IntN(len(keys))]
		home := s.table[key]
		probes := [][]int{{home, buckets - 1}, {buckets - 2, home}, {buckets - 1, buckets - 2}}[i%3]
		value, hits := s.get(probes, key)
		want := 1
		if i%3 == 2 {
			want = 0
		}
		if hits != want || uint64(want)*uint64(key)*3 != binary.LittleEndian.Uint64(value) || uint64(want)*uint64(key)*5 != binary.LittleEndian.Uint64(value[valueLen-8:]) {
			t.Fatalf("lookup %d of %#x in %v: %d hits, value % x", i, key, probes, hits, value)
		}
	}
	if n := s.NIC.Counters().RingRefused; n != 0 {
		t.Errorf("%d entries were refused", n)
	}
}
