package redn

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Sizes of locks in memory, and of the rings of the programs that serve them.
const (
	// LockLen is the length of a lock in bytes. A lock has the number of the completion queue that
	// counts its releases, the number of the queue pair of Lock.Turns, and the address of the next
	// ticket, all big-endian; then the next ticket, little-endian as in atomics.
	LockLen     = lockTicket + wordLen
	lockTicket  = 16
	lockObjects = 4 // length of the number of a completion queue or queue pair

	// LockTurnBlocks, LockWorkerBlocks and LockAnswerBlocks are the sizes, in blocks, of the rings
	// of Lock.Turns, LockServer.Worker and LockServer.Answers.
	LockTurnBlocks   = 1
	LockWorkerBlocks = 32
	LockAnswerBlocks = 1
	// LockReceives is the number of receives of the queue pair of a LockServer's Answers
	// (MaxRecvWR): the receives of two laps, so that a client may take its next lock at once.
	LockReceives = 2 * lockLapReceives
	// lockLapReceives: a lap gets one request that takes a lock, and one that releases it.
	lockLapReceives = 2
)

// Lock is a lock that clients get in the order of their requests. A request that takes the lock
// draws a ticket by FETCH_ADD, and a WAIT delays the answer until as many releases have been
// counted as the ticket says. A release is an ENABLE of one more entry of Turns, a NOP whose
// completion is counted. The limit of the ENABLE is absolute, so that releasing the same ticket
// twice has no effect.
type Lock struct {
	// Turns is a managed queue that is connected to itself and that no other lock has. Its ring has
	// LockTurnBlocks, and does not have RingInit.Counts16: limits are compared in 32 bits.
	Turns *Queue
	// Memory is LockLen bytes, at a multiple of 8, in the memory that LockServer.Locks names.
	Memory Mem
}

// Build appends the only request of Turns, and returns the bytes that the caller must write to
// Memory.
func (l *Lock) Build() []byte {
	l.Turns.Nop(sendring.Signalled)
	b := binary.BigEndian.AppendUint32(nil, l.Turns.Done.Number)
	b = binary.BigEndian.AppendUint32(b, uint32(l.Turns.QPN))
	b = binary.BigEndian.AppendUint64(b, l.Memory.Addr+lockTicket)
	return append(b, make([]byte, wordLen)...)
}

// LockServer lets one client take and release locks without a processor of the server. It is a
// recycled loop (see Loop), and each lap serves one lock: from the request that takes it to the
// request that releases it.
//
// If the queue pair of Answers enters the error state, the NIC flushes its receives. These
// completions end the WAITs of a lap like requests do. So if the client holds a lock, the NIC
// releases it; if the client waits for a lock, the NIC releases it when the client's turn comes.
// After that the program stops. The NIC moves the queue pair to the error state itself if an
// answer is not acknowledged. It sends nothing to a client that holds a lock, so the server must
// notice that such a client has gone, and move the queue pair to the error state. The server must
// not destroy this queue pair before the lap has ended: an ENABLE of a queue pair that does not
// exist stops the worker. A client that was only slow may then still use what the lock guards; the
// ticket, which grows, shows which requests come from the former holder.
type LockServer struct {
	// Worker is a managed queue that is connected to itself. Answers is a managed queue that is
	// connected to the client. In the rings of both, WAIT and ENABLE compare only the low 16 bits of
	// counts and indexes (Counts16). The ring of Worker has LockWorkerBlocks blocks, that of Answers
	// LockAnswerBlocks.
	Worker, Answers *Queue
	// Received counts the receives of the queue pair of Answers, whose MaxRecvWR is LockReceives.
	Received *Counter
	// Locks is the memory with the locks; it allows READs and atomics. A client names the address of a
	// lock in it. An address outside of it ends this client's program.
	Locks Mem
	// Client is 8 bytes of the client for the ticket, which the client has registered.
	Client Mem
}

// AppendTake appends the request that takes the lock whose address is lock. A client sends this
// request as a SEND, and gets one answer when it holds the lock: the ticket (8 bytes,
// little-endian), with immediate data Hit. A SEND without data then releases the lock.
func AppendTake(b []byte, lock uint64) []byte { return binary.BigEndian.AppendUint64(b, lock) }

// Build appends the loop, and returns the scatter lists of the receives, which the caller posts in
// this order. A client has at most one lock at a time, and sends a request only after the answer to
// the one before.
func (s *LockServer) Build(pool *Pool) ([][]verbs.SGE, error) {
	l, err := s.Worker.Recycle(pool, s.Answers)
	if err != nil {
		return nil, err
	}
	if s.Client.Len < wordLen {
		return nil, fmt.Errorf("redn: %d bytes for a ticket; it has %d", s.Client.Len, wordLen)
	}
	l.outside, l.receives = s.Received, lockLapReceives
	ticket, _ := pool.Reserve(wordLen)
	next, _ := pool.Reserve(wordLen)
	w := s.Worker
	s.received()
	// The first READ also copies the numbers of the lock's completion queue and queue pair into turn
	// and release, which are appended later. named is where the client's request puts the address of
	// the lock.
	at := w.next
	turn, release := &Request{queue: w, index: at + lockTurn}, &Request{queue: w, index: at + lockRelease}
	draw := &Request{queue: w, index: at + lockDraw}
	named := w.Read(sendring.Signalled, Mem{RKey: s.Locks.RKey}, turn.object(), release.object(), draw.Remote()).Remote().sge()
	w.Wait(w.Done) // a fence is too late: the NIC reads the ADD before it waits for the fence
	w.Add(sendring.Signalled, Mem{RKey: s.Locks.RKey}, ticket, 1)
	w.Wait(w.Done)
	w.Read(0, ticket.At(0, countLen), reversed(turn.Count())...)
	w.Read(0, ticket, next)
	w.Add(sendring.Fence, next, l.scratch, 1)
	w.Read(sendring.Signalled|sendring.Fence, next.At(0, countLen), reversed(release.Count())...)
	w.Wait(w.Done)
	w.Append(sendring.Entry{Op: sendring.Wait}) // turn
	grant := answer(s.Client.At(0, wordLen), ticket.LKey, Hit)
	grant.SGL[0] = ticket.sge()
	s.Answers.Append(grant)
	w.Enable(s.Answers)
	s.received()
	w.Append(sendring.Entry{Op: sendring.Enable}) // the request `release`, which releases the lock
	w.Wait(s.Answers.Done)
	w.EnableReceive(s.Answers, LockReceives+lockLapReceives)
	return [][]verbs.SGE{{named}, nil, {named}, nil}, l.End()
}

// received appends a WAIT for the next request of the client.
func (s *LockServer) received() {
	s.Received.Count++
	s.Worker.Wait(s.Received)
}

// countLen is the length of the count of a WAIT or ENABLE.
const countLen = 4

// Distances in blocks from the READ of a lock to later requests of the lap: to the ADD that draws a
// ticket (lockDraw), to the WAIT for the ticket's turn (lockTurn), and to the ENABLE that releases
// the lock (lockRelease).
const (
	lockDraw    = 3
	lockTurn    = 12
	lockRelease = lockTurn + 3
)

// object returns the part of a WAIT or ENABLE that has the number of a completion queue or queue
// pair.
func (r *Request) object() Mem { return r.bytes(sendring.OffObject, lockObjects) }

// Start appends to master the request that starts the worker.
func (s *LockServer) Start(master *Queue) { master.enable(s.Worker, uint32(s.Worker.blocks())) }
