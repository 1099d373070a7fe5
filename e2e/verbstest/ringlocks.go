package verbstest

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	ringLocks       = 2
	ringLockClients = 4
	ringLockRounds  = 25 // how often each client takes a lock
	lockMasterRing  = 4  // length of the master queue's ring in blocks
	lockPool        = 1024
	lockTicketAt    = lockPool
	lockAskAt       = lockTicketAt + 8
	lockData        = lockAskAt + 8
)

// ringLockTable has the locks that a NIC hands out, and checks that they are handed out correctly.
type ringLockTable struct {
	lane   *lane
	mu     sync.Mutex        // guards holder and next
	holder [ringLocks]int    // by lock: the client that has it; 0 means that it is free
	next   [ringLocks]uint64 // by lock: the next ticket
}

func (e *end) ringLockTable() *ringLockTable {
	e.t.Helper()
	l := &ringLockTable{lane: e.lane(ringLocks*redn.LockTurnBlocks, ringLocks*redn.LockLen)}
	for i := range ringLocks {
		turns := l.lane.queue("turns", 0, verbs.RingInit{Blocks: redn.LockTurnBlocks, Managed: true})
		lock := redn.Lock{Turns: turns.Queue, Memory: l.lane.data.At(i*redn.LockLen, redn.LockLen)}
		must(e.t, l.lane.mr.WriteAt(lock.Build(), l.lane.dataAt()+i*redn.LockLen))
		l.lane.load(turns)
	}
	return l
}

// take is called when the NIC has given a lock to a client. It returns an error if another client
// has the lock or the ticket is not the next one.
func (l *ringLockTable) take(lock, client int, ticket uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder[lock] != 0 || ticket != l.next[lock] {
		return fmt.Errorf("client %d gets lock %d with ticket %d; client %d has it, the next ticket is %d", client, lock, ticket, l.holder[lock], l.next[lock])
	}
	l.holder[lock] = client
	l.next[lock]++
	return nil
}

// release is called before the client asks the NIC to release the lock.
func (l *ringLockTable) release(lock int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder[lock] = 0
}

// ringLockClient is a client that takes locks, with the NIC program that serves it.
type ringLockClient struct {
	lane   *lane
	number int
	qp     verbs.QP
	own    verbs.CQ // completion queue of qp
	sends  int      // SENDs that have not completed
}

func (e *end) ringLockClient(locks redn.Mem, number int) *ringLockClient {
	e.t.Helper()
	c := &ringLockClient{lane: e.lane(lockMasterRing+redn.LockWorkerBlocks+redn.LockAnswerBlocks, lockData), number: number}
	master := c.lane.queue("master", 0, verbs.RingInit{Blocks: lockMasterRing})
	worker := c.lane.queue("worker", 0, verbs.RingInit{Blocks: redn.LockWorkerBlocks, Managed: true, Counts16: true})
	received := c.lane.counted(0)
	answers := c.lane.ring("answers", 0, verbs.RingInit{Blocks: redn.LockAnswerBlocks, Managed: true, Counts16: true}, func(init *verbs.QPInit) {
		init.RecvCQ, init.MaxRecvWR = received, redn.LockReceives
	})
	c.own = need(c.lane.ctx.CreateCQ(8))(c.lane.t)
	c.qp = e.qp(verbs.RC, func(init *verbs.QPInit) { init.SendCQ, init.RecvCQ = c.own, c.own })
	e.connect(e, answers.qp, c.qp)

	s := &redn.LockServer{
		Worker: worker.Queue, Answers: answers.Queue, Received: &redn.Counter{Number: received.Number()}, Locks: locks, Client: c.lane.data.At(lockTicketAt, 8),
	}
	pool := redn.NewPool(c.lane.data.At(0, lockPool))
	receives := need(s.Build(pool))(c.lane.t)
	s.Start(master.Queue)
	must(c.lane.t, redn.Verify(map[*redn.Counter]uint32{s.Received: 3 * redn.LockReceives / 2}, master.Queue, worker.Queue, answers.Queue))
	must(c.lane.t, c.lane.mr.WriteAt(pool.Image(), c.lane.dataAt()))
	for _, sgl := range receives {
		must(c.lane.t, answers.qp.PostRecv(verbs.RecvWR{SGL: sgl}))
	}
	c.lane.load(worker, answers, master)
	return c
}

// send sends a request of n bytes.
func (c *ringLockClient) send(n int) error {
	c.sends++
	return c.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{c.lane.mr.SGE(c.lane.dataAt()+lockAskAt, n)}})
}

// until takes completions until done returns true or an answer of the NIC has come.
func (c *ringLockClient) until(done func() bool) error {
	var wc [1]verbs.WC
	for !done() {
		n, err := c.own.Poll(wc[:])
		switch {
		case err != nil:
			return err
		case n == 0:
			if err := c.own.Wait(c.lane.in(patience)); err != nil {
				return err
			}
		case wc[0].Status != verbs.Success:
			return fmt.Errorf("a request ends with %q", wc[0].Status)
		case wc[0].Opcode == verbs.WCRecvWriteImm:
			return nil
		default:
			c.sends--
		}
	}
	return nil
}

// round takes a lock and releases it.
func (c *ringLockClient) round(l *ringLockTable, lock int) error {
	if err := c.qp.PostRecv(verbs.RecvWR{}); err != nil {
		return err
	}
	ask := redn.AppendTake(nil, l.lane.data.Addr+uint64(lock*redn.LockLen))
	if err := c.lane.mr.WriteAt(ask, c.lane.dataAt()+lockAskAt); err != nil {
		return err
	}
	if err := c.send(len(ask)); err != nil {
		return err
	}
	if err := c.until(func() bool { return false }); err != nil {
		return err
	}
	var ticket [8]byte
	if err := c.lane.mr.ReadAt(ticket[:], c.lane.dataAt()+lockTicketAt); err != nil {
		return err
	}
	if err := l.take(lock, c.number, binary.LittleEndian.Uint64(ticket[:])); err != nil {
		return err
	}
	l.release(lock)
	if err := c.send(0); err != nil {
		return err
	}
	return c.until(func() bool { return c.sends == 0 })
}

// testRingLocks lets threads take locks that the NIC hands out. A lock must have one holder at a
// time, holders must come in the order of their tickets, and every thread must get its locks.
func testRingLocks(t *testing.T, w *World) {
	a, _ := w.ends(t)
	l := a.ringLockTable()
	errs := make(chan error, ringLockClients)
	for i := range ringLockClients {
		c := a.ringLockClient(l.lane.data, i+1)
		a.ctx.Runtime().Go(fmt.Sprintf("client-%d", c.number), func() {
			for round := range ringLockRounds {
				if err := c.round(l, (round/3+c.number)%ringLocks); err != nil {
					errs <- fmt.Errorf("client %d, round %d: %w", c.number, round, err)
					return
				}
			}
			errs <- nil
		})
	}
	for range ringLockClients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := l.next[0] + l.next[1]; got != ringLockClients*ringLockRounds && !t.Failed() {
		t.Errorf("%d locks were taken, want %d", got, ringLockClients*ringLockRounds)
	}
}
