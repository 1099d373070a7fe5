package redn_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Places in the memory of a NIC with locks. Each client has an area of clientArea bytes.
const (
	lockAt     = 0
	clientsAt  = 1 << 10
	clientArea = 8 << 10
	areaWorker = 0
	areaAnswer = areaWorker + redn.LockWorkerBlocks*sendring.BlockSize
	areaMaster = areaAnswer + sendring.BlockSize
	areaTurns  = areaMaster + 4*sendring.BlockSize
	areaPool   = areaTurns + sendring.BlockSize
	areaTicket = areaPool + 1024
	areaAsk    = areaTicket + 8
)

// lockRack is a NIC with locks and clients of them.
type lockRack struct {
	*served
	locks   []*redn.Lock
	clients []*lockClient
}

type lockClient struct {
	answers, qp *engine.QP
	worker      *engine.QP
	inbox       *engine.CQ
	area        int
	lock        int // which it has, or waits for; -1: none
	holds       bool
}

func newLockRack(t *testing.T, locks, clients int) *lockRack {
	t.Helper()
	s := &served{machine: newMachine(t, true), place: map[string]int{}, narrow: true}
	s.Memory = make([]byte, clientsAt+(clients+locks)*clientArea)
	m, err := s.Register(s.Memory)
	if err != nil {
		t.Fatal(err)
	}
	s.Code = m
	r := &lockRack{served: s}
	for i := range locks {
		s.place["turns"], s.narrow = clientsAt+(clients+i)*clientArea+areaTurns, false
		q, _ := s.ring("turns", redn.LockTurnBlocks, true, nil)
		l := &redn.Lock{Turns: q, Memory: s.Code.At(lockAt+i*redn.LockLen, redn.LockLen)}
		copy(s.Memory[lockAt+i*redn.LockLen:], l.Build())
		s.write(q)
		r.locks = append(r.locks, l)
	}
	s.narrow = true
	for i := range clients {
		r.clients = append(r.clients, r.client(clientsAt+i*clientArea))
	}
	return r
}

// client makes a client and its program.
func (r *lockRack) client(area int) *lockClient {
	s := r.served
	s.t.Helper()
	s.place["master"], s.place["worker"], s.place["answers"], s.place["pool"] = area+areaMaster, area+areaWorker, area+areaAnswer, area+areaPool
	c := &lockClient{area: area, lock: -1, inbox: s.cq(64)}
	var err error
	if c.qp, err = s.NIC.CreateQP(s.PD, c.inbox, c.inbox, verbs.QPInit{MaxRecvWR: 4}); err != nil {
		s.t.Fatal(err)
	}
	s.narrow = false
	master, doorbell := s.ring("master", 4, false, nil)
	s.narrow = true
	p := &redn.LockServer{Locks: s.Code.At(lockAt, len(r.locks)*redn.LockLen), Client: s.Code.At(area+areaTicket, 8)}
	p.Worker, c.worker = s.ring("worker", redn.LockWorkerBlocks, true, nil)
	p.Answers, c.answers = s.ringOf("answers", redn.LockAnswerBlocks, true, c.qp, redn.LockReceives)
	p.Received = &redn.Counter{Number: s.received.ID()}
	pool := redn.NewPool(s.Code.At(area+areaPool, 1024))
	receives, err := p.Build(pool)
	if err != nil {
		s.t.Fatal(err)
	}
	p.Start(master)
	if err := redn.Verify(map[*redn.Counter]uint32{p.Received: 10}, master, p.Worker, p.Answers); err != nil {
		s.t.Fatal(err)
	}
	s.load(pool)
	s.masterQueue, s.master = master, doorbell
	for _, sges := range receives {
		if err := c.answers.PostRecv([]verbs.RecvWR{{SGL: sges}}); err != nil {
			s.t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.start(p.Worker, p.Answers)
	return c
}

// send sends a request of n bytes.
func (r *lockRack) send(c *lockClient, request []byte) {
	r.t.Helper()
	copy(r.Memory[c.area+areaAsk:], request)
	if err := c.qp.PostSend(r.Now, []verbs.SendWR{{Op: verbs.OpSend, SGL: []verbs.SGE{{Addr: r.Code.Addr + uint64(c.area+areaAsk), Length: uint32(len(request)), LKey: r.Code.LKey}}}}, &r.Out); err != nil {
		r.t.Fatal(err)
	}
	r.Settle()
}

func (r *lockRack) take(c *lockClient, lock int) {
	r.t.Helper()
	c.lock = lock
	r.send(c, redn.AppendTake(nil, r.locks[lock].Memory.Addr))
}

// granted returns the tickets of the answers that have come.
func (r *lockRack) granted(c *lockClient) (tickets []uint64) {
	r.t.Helper()
	q, err := c.inbox.Queue()
	if err != nil {
		r.t.Fatal(err)
	}
	wcs := make([]verbs.WC, 8)
	for _, wc := range wcs[:q.Poll(wcs)] {
		if wc.Opcode != verbs.WCRecvWriteImm {
			continue
		}
		if wc.Status != verbs.Success || wc.Imm != redn.Hit {
			r.t.Fatalf("answer %+v", wc)
		}
		tickets = append(tickets, binary.LittleEndian.Uint64(r.Memory[c.area+areaTicket:]))
		if err := c.qp.PostRecv([]verbs.RecvWR{{}}); err != nil {
			r.t.Fatal(err)
		}
	}
	return tickets
}

// lockModel is the same service in Go: a queue of clients for each lock.
type lockModel struct {
	queues  [][]int
	tickets []uint64
}

// grants checks that exactly the first client of each queue has its lock.
func (m *lockModel) grants(r *lockRack) error {
	for i, c := range r.clients {
		got := r.granted(c)
		first := c.lock >= 0 && m.queues[c.lock][0] == i
		if first != (c.holds || len(got) == 1) || len(got) > 1 || c.holds && len(got) > 0 {
			return fmt.Errorf("client %d of lock %d with the queue %v: answers %v", i, c.lock, m.queues, got)
		}
		if len(got) == 1 {
			if got[0] != m.tickets[c.lock] {
				return fmt.Errorf("client %d: ticket %d of lock %d, want %d", i, got[0], c.lock, m.tickets[c.lock])
			}
			m.tickets[c.lock]++
			c.holds = true
		}
	}
	return nil
}

// Locks that a NIC serves behave like queues of clients in Go, for random requests of several clients:
// one client at a time has a lock, in the order of the requests, and for more requests than 16 bits count.
func TestLockServer(t *testing.T) {
	const locks, clients = 3, 5
	r := newLockRack(t, locks, clients)
	m := &lockModel{queues: make([][]int, locks), tickets: make([]uint64, locks)}
	rnd := rand.New(rand.NewPCG(2, 2))
	for step := range verbstest.Tries(1_000_000, 340_000) {
		i := rnd.IntN(clients)
		c := r.clients[i]
		switch {
		case c.lock < 0:
			lock := min(rnd.IntN(12), locks-1) // the last one most often
			m.queues[lock] = append(m.queues[lock], i)
			r.take(c, lock)
		case c.holds:
			m.queues[c.lock] = m.queues[c.lock][1:]
			c.lock, c.holds = -1, false
			r.send(c, nil)
		default:
			continue // it waits
		}
		if err := m.grants(r); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
	if m.tickets[locks-1] < 1<<16 {
		t.Errorf("%d tickets; want more than 16 bits count", m.tickets[locks-1])
	}
	if n := r.NIC.Counters().RingRefused; n != 0 {
		t.Errorf("%d entries were refused", n)
	}
}

// The NIC releases the lock of a client whose connection ends, and passes its turn on while it waits; a
// client that has no lock leaves all as it is.
func TestLockServerClientGone(t *testing.T) {
	for _, gone := range []string{"holds", "waits", "idle", "new"} {
		r := newLockRack(t, 1, 3)
		a, b, c := r.clients[0], r.clients[1], r.clients[2]
		order := map[string][]*lockClient{"holds": {b, a, c}, "waits": {a, b, c}, "idle": {a, c}, "new": {a, c}}[gone]
		if gone == "idle" {
			r.take(b, 0)
			r.granted(b)
			r.send(b, nil)
		}
		for _, x := range order {
			r.take(x, 0)
		}
		if n := len(r.granted(order[0])); n != 1 {
			t.Fatalf("%s: %d answers to the first client", gone, n)
		}
		if err := b.answers.ToError(r.Now, &r.Out); err != nil {
			t.Fatal(err)
		}
		r.Settle()
		for _, x := range order {
			if x == b {
				continue
			}
			if x != order[0] && len(r.granted(x)) != 1 {
				state, next, _, _ := b.worker.RingState()
				t.Fatalf("%s: the next client has no lock; the program of the one that has gone is %v at %d", gone, state, next)
			}
			if x == a && c != x && len(r.granted(c)) != 0 {
				t.Fatalf("%s: two clients have the lock", gone)
			}
			r.send(x, nil)
		}
	}
}

// A client that names no lock ends its own program, and no other.
func TestLockServerOutside(t *testing.T) {
	r := newLockRack(t, 1, 2)
	r.send(r.clients[0], redn.AppendTake(nil, 0x1000))
	if n := len(r.granted(r.clients[0])); n != 0 {
		t.Errorf("%d answers", n)
	}
	r.take(r.clients[1], 0)
	if n := len(r.granted(r.clients[1])); n != 1 {
		t.Errorf("%d answers to the other client", n)
	}
}

// Build refuses a buffer without room for a ticket.
func TestLockServerRefuses(t *testing.T) {
	m := newMachine(t, true)
	worker, err := m.Add("worker", redn.LockWorkerBlocks)
	if err != nil {
		t.Fatal(err)
	}
	answers, err := m.Add("answers", redn.LockAnswerBlocks)
	if err != nil {
		t.Fatal(err)
	}
	s := &redn.LockServer{Worker: worker, Answers: answers, Received: &redn.Counter{}, Locks: m.Data, Client: m.Data.At(0, 4)}
	if _, err := s.Build(redn.NewPool(m.Data.At(poolAt, 1024))); err == nil || !strings.Contains(err.Error(), "4 bytes for a ticket") {
		t.Errorf("%v", err)
	}
}
