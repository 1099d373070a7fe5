package transport

import (
	"math/bits"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// sendWQE is an entry of the send queue.
type sendWQE struct {
	id     uint64
	posted clock.Time
	op     verbs.WROpcode
	flags  verbs.SendFlags
	sendProgress
	nsge       int
	length     uint32 // bytes in all SGEs, or inline
	imm        uint32
	invRKey    uint32
	rkey       uint32
	remote     uint64
	compareAdd uint64
	swap       uint64
	masks      wire.AtomicMasks
	access     verbs.Access // rights that OpBindMW and OpRegMR grant
	flush      verbs.Flush
	to         datagramPeer
	srqn       uint32 // of XRC
}

// sendProgress says how far the execution of a work request is.
type sendProgress struct {
	status verbs.Status // if not Success, the work request cannot be executed, and fails when it is the oldest
	fault  mem.Fault    // why a memory management operation has failed
	// started is true when the execution of the work request has begun. A work request of RC then has
	// its PSNs: consecutive ones that begin with first, as many as packets says. A READ has one PSN
	// for each response packet.
	started bool
	packets uint32
	first   wire.PSN
	// sent counts the packets of the work request that are acknowledged or were sent since the last
	// retry, acked those that are acknowledged. If the work request needs a response of its own
	// (see answered), it has a single request packet: sent is 0 or 1, and acked counts response
	// packets.
	sent, acked uint32
	// askedFrom is the value of acked when the request of a READ was last sent. The response packet
	// with this index may have opcode FIRST or ONLY.
	askedFrom uint32
}

// datagramPeer is the destination of a datagram: address handle, queue pair number and Q_Key.
type datagramPeer struct {
	ah   uint32
	qpn  wire.QPN
	qkey uint32
}

// answered reports whether w is complete only when the response to w itself has arrived, as for a
// READ or an atomic. Other work requests are complete when an ACK for them or for a later one
// arrives.
func (w *sendWQE) answered() bool {
	return (atomics|1<<verbs.OpRead|1<<verbs.OpAtomicWrite|1<<verbs.OpFlush)>>w.op&1 != 0
}

// atomics has a bit for each atomic operation, with and without masks.
const atomics uint32 = 1<<verbs.OpCmpSwap | 1<<verbs.OpFetchAdd | 1<<verbs.OpMaskedCmpSwap | 1<<verbs.OpMaskedFetchAdd

func (w *sendWQE) atomic() bool { return atomics>>w.op&1 != 0 }

// requests returns the number of request packets of w.
func (w *sendWQE) requests() uint32 {
	if w.answered() {
		return 1
	}
	return w.packets
}

// inFlight returns the number of packets of w in flight since the last retry: request packets that
// are sent and not acknowledged, or response packets that are requested and not received.
func (w *sendWQE) inFlight() int {
	if w.answered() {
		return int(w.sent) * int(w.packets-w.acked) // one request packet asks for all response packets
	}
	return int(w.sent) - int(w.acked)
}

// sendQueue is a ring of sendWQEs. Its positions only grow. Entries in [head, send) have been sent
// completely since the last retry; send is the next entry to send; tail is where the next post
// goes.
type sendQueue struct {
	ring             []sendWQE
	sges             []verbs.SGE // maxSGE for each entry
	inline           []byte      // maxInline bytes for each entry; allocated by the first inline post
	maxSGE           int
	maxInline        int
	limit            int // largest number of entries in use; ring is longer if limit is no power of two
	head, send, tail uint32
}

func newSendQueue(limit, maxSGE, maxInline int) sendQueue {
	n := 1 << bits.Len(uint(limit-1))
	return sendQueue{ring: make([]sendWQE, n), sges: make([]verbs.SGE, n*maxSGE), maxSGE: maxSGE, maxInline: maxInline, limit: limit}
}

func (s *sendQueue) len() int { return int(s.tail - s.head) }

func (s *sendQueue) at(pos uint32) *sendWQE { return &s.ring[pos&uint32(len(s.ring)-1)] }

func (s *sendQueue) place(pos uint32) int { return int(pos & uint32(len(s.ring)-1)) }

func (s *sendQueue) sgl(pos uint32) []verbs.SGE {
	i := s.place(pos) * s.maxSGE
	return s.sges[i : i+s.ring[s.place(pos)].nsge]
}

// data returns the buffer for inline data of the entry at pos.
func (s *sendQueue) data(pos uint32) []byte {
	if s.inline == nil {
		s.inline = make([]byte, len(s.ring)*s.maxInline)
	}
	i := s.place(pos) * s.maxInline
	return s.inline[i : i+s.maxInline]
}

type recvWQE struct {
	id     uint64
	nsge   int
	length uint64 // bytes in all SGEs
}

// recvQueue is a ring of recvWQEs. The entry at head is the receive in use.
type recvQueue struct {
	ring       []recvWQE
	sges       []verbs.SGE
	maxSGE     int
	limit      int
	head, tail uint32
}

func newRecvQueue(limit, maxSGE int) recvQueue {
	n := 1 << bits.Len(uint(limit-1))
	return recvQueue{ring: make([]recvWQE, n), sges: make([]verbs.SGE, n*maxSGE), maxSGE: maxSGE, limit: limit}
}

// resized returns a queue of another size with the same receives, which fit into it.
func (r *recvQueue) resized(limit int) recvQueue {
	to := newRecvQueue(limit, r.maxSGE)
	for pos := r.head; pos != r.tail; pos++ {
		*to.at(to.tail) = *r.at(pos)
		copy(to.sgl(to.tail), r.sgl(pos))
		to.tail++
	}
	return to
}

func (r *recvQueue) len() int { return int(r.tail - r.head) }

func (r *recvQueue) at(pos uint32) *recvWQE { return &r.ring[pos&uint32(len(r.ring)-1)] }

func (r *recvQueue) post(op string, wr *verbs.RecvWR) error {
	if r.len() >= r.limit {
		return verbs.Errorf(op, verbs.ErrNoSpace, "%d receives are queued", r.len())
	}
	length, err := sglLength(op, wr.SGL, r.maxSGE)
	if err != nil {
		return err
	}
	*r.at(r.tail) = recvWQE{id: wr.ID, nsge: len(wr.SGL), length: length}
	copy(r.sgl(r.tail), wr.SGL)
	r.tail++
	return nil
}

func (r *recvQueue) sgl(pos uint32) []verbs.SGE {
	i := int(pos & uint32(len(r.ring)-1))
	return r.sges[i*r.maxSGE : i*r.maxSGE+r.ring[i].nsge]
}
