package redn

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// SlotLen is the length of a slot of a LookupServer's table in bytes. A slot has the key (6 bytes,
// little-endian), then the immediate data and the data segment (length, L_Key and address of the
// value). A READ copies these into the work request that sends the answer.
const SlotLen = OperandLen + 4 + segmentLen

// AppendSlot appends a slot. A client that asks for key gets the value with the immediate data imm,
// which must not be Miss. An empty slot has key 0, so no client may ask for key 0.
func AppendSlot(b []byte, key Operand, imm uint32, value Mem) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(key))[:len(b)+OperandLen]
	b = binary.BigEndian.AppendUint32(b, imm)
	b = binary.BigEndian.AppendUint32(b, uint32(value.Len))
	b = binary.BigEndian.AppendUint32(b, value.LKey)
	return binary.BigEndian.AppendUint64(b, value.Addr)
}

// LookupServerBlocks returns the sizes, in blocks, of the two rings of a LookupServer with the
// given number of probes. They are powers of two.
func LookupServerBlocks(probes int) (worker, answers int) {
	size := func(n int) int { return 1 << bits.Len(uint(n-1)) }
	return size(lookupLap + 3*probes), size(probes + 1)
}

// lookupLap is the number of blocks of a lap without its probes. It is the sum of: two WAITs and
// two ENABLEs, a WAIT for the answers, a READ that restores them, a READ of four blocks for the
// counts, two ADDs, and a RECV_ENABLE. With more than two probes the READ that restores the answers
// has a second block, for which the ring has room because its size is rounded up.
const lookupLap = 13

// LookupServer looks keys up for one client. No processor of the server takes part. It serves any
// number of requests: it is a recycled loop (see Loop), and each lap answers one request. In
// contrast to Lookup, each value has its own length.
type LookupServer struct {
	// Worker is a managed queue that is connected to itself. Answers is a managed queue that is
	// connected to the client. In the rings of both, WAIT and ENABLE compare only the low 16 bits of
	// counts and indexes (Counts16). LookupServerBlocks returns the sizes of the rings.
	Worker, Answers *Queue
	// Received counts the receives of the queue pair of Answers.
	Received *Counter
	// Receives is the number of receives that the queue pair of Answers can hold (MaxRecvWR), a
	// power of two. The caller posts this number of receives, and each lap lets the NIC use one of
	// them again. 0 means that the caller posts a receive for each request.
	Receives int
	// Table is the memory with the slots; the slots name the memory of the values.
	Table Mem
	// Client is the client's buffer, which the client has registered. It has room for the longest
	// value.
	Client Mem
	// Note is memory that the last answer to each request copies to Noted, which is memory of the
	// client. This happens after all slots were read. If the length is 0, nothing is copied.
	Note, Noted Mem
}

// Build appends the loop, and returns the scatter list of each receive. The client sends one probe
// (AppendProbe) for each slot that may have its key. For each slot that has the key, it gets a
// WRITE of the value with the immediate data of the slot. Then it gets a WRITE with immediate data
// Miss, and may send its next request.
func (s *LookupServer) Build(pool *Pool, probes int) ([]verbs.SGE, error) {
	if probes < 1 || probes > MaxProbes {
		return nil, fmt.Errorf("redn: %d probes; choose 1 to %d", probes, MaxProbes)
	}
	l, err := s.Worker.Recycle(pool, s.Answers)
	if err != nil {
		return nil, err
	}
	s.Received.Count++
	l.outside = s.Received
	w := s.Worker
	w.Wait(s.Received)
	var receive []verbs.SGE
	for range probes {
		e := answer(s.Client, 0, Miss)
		e.Op, e.Segments = sendring.NOP, writeSegments
		reply := s.Answers.Append(e)
		reply.changed = true
		low, high := reply.Operand()
		read := w.Read(0, Mem{RKey: s.Table.RKey}, low, high, reply.immediate(), reply.data())
		cas := w.walkCAS(reply, writeSegments, sendring.WriteImm, l.scratch)
		receive = append(receive,
			cas.bytes(sendring.OffCompare+1, operandHalf).sge(), cas.bytes(sendring.OffCompare+5, operandHalf).sge(), read.Remote().sge())
	}
	s.last()
	w.Wait(w.Done)
	if s.Receives > 0 { // the next receive may overwrite the keys in the probes
		w.EnableReceive(s.Answers, uint32(s.Receives)+1)
	}
	w.Enable(s.Answers)
	w.Wait(s.Answers.Done)
	return receive, l.End()
}

// last appends the answer with Miss, which tells the client that all slots were searched.
func (s *LookupServer) last() {
	e := sendring.Entry{Op: sendring.WriteImm, Flags: sendring.Signalled, Imm: Miss, RemoteAddr: s.Client.Addr, RKey: s.Client.RKey}
	if s.Note.Len > 0 {
		e.RemoteAddr, e.RKey, e.NSGE = s.Noted.Addr, s.Noted.RKey, 1
		e.SGL[0] = s.Note.sge()
	}
	s.Answers.Append(e)
}

func (r *Request) data() Mem { return r.bytes(offData, segmentLen) }

// Start appends to master the request that starts the worker.
func (s *LookupServer) Start(master *Queue) { master.enable(s.Worker, uint32(s.Worker.blocks())) }
