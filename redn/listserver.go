package redn

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Sizes of the rings of a ListServer, in blocks.
const (
	ListWorkerBlocks = 16
	ListAnswerBlocks = 1
)

// ListServer walks lists of any length for one client. No processor takes part, and it serves any
// number of requests as long as receives are posted. It is a recycled loop (see Loop); each lap
// looks at one node.
//
// At the beginning of a lap, a WAIT of Worker waits until as many receives have completed as its
// count says. A lap that has found the key or the end of the list sends the answer, and adds one to
// this count: the next lap waits for the next request. Otherwise the count is unchanged, and the
// next lap looks at the next node at once.
type ListServer struct {
	// Worker is a managed queue that is connected to itself. Answers is a managed queue that is
	// connected to the client. In the rings of both, WAIT and ENABLE compare only the low 16 bits of
	// counts and indexes (Counts16). The ring of Worker has ListWorkerBlocks blocks, that of Answers
	// ListAnswerBlocks.
	Worker, Answers *Queue
	// Received counts the receives of the queue pair of Answers.
	Received *Counter
	// Lists is the memory with nodes and values. The program has its L_Key and R_Key, so a client
	// needs to know only addresses.
	Lists Mem
	// Client is the client's buffer for a value, which the client has registered. It has the length
	// of a value.
	Client Mem
	// Skipped is memory of WalkLen bytes that nothing reads: a client's request has more copies of the
	// key than a ListServer needs, and the receive scatters the surplus copies there.
	Skipped Mem
}

// Build appends the loop, and returns the scatter list of each receive. The client sends a request
// that AppendWalk has made, and sends the next one only after the answer. The answer is a WRITE
// with immediate data Hit and the value. If no node has the key, the answer has immediate data Miss
// and the bytes that the end of the list names (see AppendEnd).
func (s *ListServer) Build(pool *Pool) ([]verbs.SGE, error) {
	l, err := s.Worker.Recycle(pool, s.Answers)
	if err != nil {
		return nil, err
	}
	w := s.Worker
	s.Received.Count++
	received := w.Wait(s.Received)
	received.held = true
	reply := s.Answers.Append(answer(s.Client, s.Lists.LKey, Hit))
	end := &Request{queue: w, index: w.next + listEnd}
	read := &Request{queue: w, index: w.next}
	w.Read(0, Mem{RKey: s.Lists.RKey}, reply.dataAddr(), read.Remote(), reply.head(), reply.immediate(), end.head())
	first := w.walkCAS(reply, writeSegments, sendring.WriteImm, l.scratch)
	second := w.walkCAS(end, atomicSegments, sendring.MaskedFetchAdd, l.scratch)
	w.Wait(w.Done)
	w.Enable(s.Answers)
	w.Wait(s.Answers.Done)
	end = w.remote(sendring.MaskedFetchAdd, 0, Mem{}, l.scratch)
	if err := l.End(); err != nil {
		return nil, err
	}
	word, addend, last := l.raises(received)
	end.entry.RemoteAddr, end.entry.RKey, end.entry.SwapAdd, end.entry.Compare = word.Addr, word.RKey, addend, last
	return []verbs.SGE{first.key().sge(), second.key().sge(), s.Skipped.At(0, WalkLen-2*keyLen-wordLen).sge(), read.Remote().sge()}, nil
}

const (
	atomicSegments = 4 // control, remote, atomic, one SGE
	// listEnd is the number of blocks from the READ of a lap to the request that ends the walk. The
	// READ has two blocks; each of two CAS, two WAITs and an ENABLE has one.
	listEnd = 7
)

// Start appends to master the request that starts the worker.
func (s *ListServer) Start(master *Queue) { master.enable(s.Worker, uint32(s.Worker.blocks())) }

// raises returns the operands of a masked FETCH_ADD that adds 1 to the shadow of the count of r
// (see Loop): the word, the addend, and the mask, which has the highest of the shadow's 16 bits,
// so that no carry leaves the shadow.
func (l *Loop) raises(r *Request) (word Mem, addend, last uint64) {
	i := slices.Index(l.counted, r)
	word = l.shadow.At(i/countsInWord*wordLen, wordLen)
	shift := 16 * (i % countsInWord)
	return word, 1 << shift, 1 << (shift + 15)
}
