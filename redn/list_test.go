package redn_test

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const maxList = 64

// pool makes the pool of a server's programs.
func (s *served) pool() *redn.Pool { return redn.NewPool(s.Code.At(s.place["pool"], 16384)) }

// load writes the image of the pool into memory.
func (s *served) load(p *redn.Pool) { copy(s.Memory[s.place["pool"]:], p.Image()) }

func (s *served) node(i int) uint64  { return s.Code.Addr + uint64(s.place["list"]+i*64) }
func (s *served) value(i int) uint64 { return s.Code.Addr + uint64(s.place["values"]+i*valueLen) }

// listKey is the key of node i.
func listKey(i int) redn.Operand { return redn.Operand(0x010203040506 * uint64(i+1) % (1 << 48)) }

// list writes a list of n nodes; the value of node i has the byte i+1. Behind them is the end of a
// recycled walk, or a node without a key.
func (s *served) list(n int, recycled bool) {
	for i := range n + 1 {
		b := redn.AppendNode(nil, listKey(i), s.value(i), s.node(i+1))
		switch {
		case i == n && recycled:
			b = redn.AppendEnd(nil, s.value(i), s.node(i))
		case i == n:
			b = redn.AppendNode(nil, 1<<48-1, s.value(i), s.node(i))
		}
		copy(s.Memory[s.place["list"]+i*64:], b)
		value := s.place["values"] + i*valueLen
		copy(s.Memory[value:value+valueLen], bytes.Repeat([]byte{byte(i + 1)}, valueLen))
	}
}

// start writes the queues and the master, rings its doorbell and lets the NIC work.
func (s *served) start(queues ...*redn.Queue) {
	s.t.Helper()
	for _, q := range queues {
		s.write(q)
	}
	if err := s.master.Doorbell(s.Now, s.write(s.masterQueue)); err != nil {
		s.t.Fatal(err)
	}
	s.Settle()
}

func (s *served) receive(sges []verbs.SGE) {
	if err := s.answers.PostRecv([]verbs.RecvWR{{SGL: sges}}); err != nil {
		s.t.Fatal(err)
	}
}

// A recycled loop finds the key at each place of lists of each length and learns that it is missing:
// one answer for each request, over the wrap of the ring and of 16 bits.
func TestListServer(t *testing.T) {
	s := newServed(t, redn.ListWorkerBlocks, redn.ListAnswerBlocks, true)
	l := &redn.ListServer{
		Worker: s.l.Worker, Answers: s.l.Answers, Received: s.l.Received, Lists: s.Code, Client: s.l.Client, Skipped: s.Code.At(s.place["scratch"], redn.WalkLen),
	}
	pool := s.pool()
	sges, err := l.Build(pool)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := redn.CostOf(l.Worker), (redn.Cost{Copies: 2, Atomics: 5, Controls: 5}); got != want {
		t.Errorf("a lap takes %+v, want %+v", got, want)
	}
	if err := redn.Verify(map[*redn.Counter]uint32{l.Received: 1}, l.Worker, l.Answers); err == nil {
		t.Error("a program without its master is accepted")
	}
	s.load(pool)
	l.Start(s.masterQueue)
	s.start(l.Worker, l.Answers)
	for n := 1; n <= maxList; n++ {
		s.list(n, true)
		for at := range n + 1 {
			s.receive(sges)
			key := listKey(at)
			if at == n {
				key = 0xabcdef
			}
			value, hits := s.ask(redn.AppendWalk(nil, key, s.node(0)), 1, false)
			if (hits == 1) != (at < n) || !bytes.Equal(value, bytes.Repeat([]byte{byte(at + 1)}, valueLen)) {
				t.Fatalf("%d nodes, key at %d: %d hits, value % x", n, at, hits, value)
			}
		}
	}
	if n := s.NIC.Counters().RingRefused; n != 0 {
		t.Errorf("%d entries were refused", n)
	}
}

// An unrolled walk finds the key at each place and tells a miss; with a break it ends there. The NIC
// executes 6 requests for each node, of which 1 copy, 1 atomic and 3 WAIT or ENABLE are those of Table
// 2: of 8 nodes, without a break two thirds more than with one, for a key at a random place.
func TestWalk(t *testing.T) {
	total := map[bool]int{}
	for _, brk := range []bool{false, true} {
		for _, n := range []int{1, 2, 7, 8, 14, 15, 16, 17, 33, 64} {
			var w *walking
			for at := range n + 1 {
				if w == nil || brk {
					w = newWalking(t, n, brk)
				}
				got, want := w.find(at), requestsOf(n, at, brk)
				if got != want {
					t.Errorf("break %t, %d nodes, key at %d: %d requests, want %d", brk, n, at, got, want)
				}
				if n == 8 && at < n {
					total[brk] += got
				}
			}
		}
	}
	if ratio := float64(total[false]) / float64(total[true]); ratio < 1.6 || ratio > 1.7 {
		t.Errorf("without a break %d requests, with one %d: ratio %.2f", total[false], total[true], ratio)
	}
}

// requestsOf returns how many requests a walk over n nodes executes; at n: no node has the key.
func requestsOf(n, at int, brk bool) int {
	want := 2 + 6*n + 2 // WAIT and ENABLE in front, an ENABLE and the last answer behind
	if n > 14 {
		want += (n+15)/16 + 1 // READs of the key and a WAIT
	}
	if !brk {
		return want
	}
	want++ // the answer is no request of a node
	if at == n {
		return want + 3 // what the last break replaces, a WRITE that takes the answer back, a WAIT
	}
	return want - 6*(n-at-1)
}

// walking is a server with an unrolled walk.
type walking struct {
	*served
	w        *redn.Walk
	n        int
	brk      bool
	executed int // requests
}

func newWalking(t *testing.T, n int, brk bool) *walking {
	t.Helper()
	k := &walking{served: newServed(t, 2048, 512, false), n: n, brk: brk}
	k.list(n, false)
	k.w = &redn.Walk{Worker: k.l.Worker, Answers: k.l.Answers, Received: k.l.Received, Lists: k.Code, Client: k.l.Client, Pool: k.pool()}
	if brk {
		k.w.Copies, _ = k.ring("copies", 64, true, nil)
	}
	k.w.Start(k.masterQueue)
	k.post()
	k.start(k.queues()...)
	k.NIC.Hooks.Executed = func(_ wire.QPN, ev *sendring.Event) {
		if e := ev.Entry; e.Op != sendring.NOP || !filler(e) {
			k.executed++
		}
	}
	return k
}

// filler reports whether a NOP is one that fills READs of the key up to the same length: the NOPs of
// programs have one segment, three or those of the READ that they stand for.
func filler(e *sendring.Entry) bool {
	return e.Segments >= 4 && e.Flags == 0 && e.QPN != 0 && e.Segments != 8
}

func (k *walking) queues() []*redn.Queue {
	all := []*redn.Queue{k.w.Worker, k.w.Answers}
	if k.brk {
		all = append(all, k.w.Copies)
	}
	return all
}

// post builds a walk.
func (k *walking) post() {
	k.t.Helper()
	sges, err := k.w.Request(k.n)
	if err != nil {
		k.t.Fatal(err)
	}
	k.load(k.w.Pool)
	k.receive(sges)
}

// find walks to the key of node at, and returns how many requests were executed.
func (k *walking) find(at int) int {
	k.t.Helper()
	if !k.brk {
		k.post()
		for _, q := range k.queues() {
			k.write(q)
		}
	}
	key := listKey(at)
	if at == k.n {
		key = 0xabcdef
	}
	before := k.executed
	value, hits := k.ask(redn.AppendWalk(nil, key, k.node(0)), k.n+1, true)
	if (hits == 1) != (at < k.n) || hits == 1 && !bytes.Equal(value, bytes.Repeat([]byte{byte(at + 1)}, valueLen)) {
		k.t.Fatalf("break %t, %d nodes, key at %d: %d hits, value % x", k.brk, k.n, at, hits, value)
	}
	return k.executed - before
}

// Table 2: for each node of an unrolled walk 1 copy, 1 atomic, 3 WAIT or ENABLE.
func TestCostOfWalk(t *testing.T) {
	for _, brk := range []bool{false, true} {
		cost := func(n int) redn.Cost {
			s := newServed(t, 512, 128, false)
			w := &redn.Walk{Worker: s.l.Worker, Answers: s.l.Answers, Received: s.l.Received, Lists: s.Code, Client: s.l.Client, Pool: s.pool()}
			if brk {
				w.Copies, _ = s.ring("copies", 64, true, nil)
			}
			if _, err := w.Request(n); err != nil {
				t.Fatal(err)
			}
			return redn.CostOf(w.Worker)
		}
		a, b := cost(7), cost(8)
		if got, want := (redn.Cost{Copies: b.Copies - a.Copies, Atomics: b.Atomics - a.Atomics, Controls: b.Controls - a.Controls}), (redn.Cost{Copies: 1, Atomics: 1, Controls: 3}); got != want {
			t.Errorf("break %t: a node takes %+v, want %+v", brk, got, want)
		}
	}
}
