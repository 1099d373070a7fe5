package redn

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A bucket of a table that Lookup searches has a key (6 bytes, little-endian) and the address of
// the value (8 bytes, big-endian).
const (
	BucketLen = OperandLen + 8
	// ProbeLen is the length of a probe, the part of a client's request for one bucket; see
	// AppendProbe.
	ProbeLen = OperandLen + 8
	// MaxProbes is the largest number of buckets of one lookup: a probe takes three of the 16 pieces
	// of a receive.
	MaxProbes = 5
	// Immediate data of the answers.
	Miss, Hit = 0, 1

	offData     = 32 // offset of the data segment of a WRITE
	offDataAddr = 40 // offset of the address in the data segment
)

// AppendBucket appends a bucket: key, and the address of its value.
func AppendBucket(b []byte, key Operand, value uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(key))[:len(b)+OperandLen]
	return binary.BigEndian.AppendUint64(b, value)
}

// AppendProbe appends to b, a client's request, the part for one bucket in which the key may be:
// the key and the address of the bucket, both big-endian.
func AppendProbe(b []byte, key Operand, bucket uint64) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(key)<<16)[:len(b)+OperandLen]
	return binary.BigEndian.AppendUint64(b, bucket)
}

// Lookup looks keys up in a table for one client. No processor of the server takes part. Worker is
// a managed queue that is connected to itself. Answers is a queue that is connected to the client;
// it should be managed. If it is not, a WAIT in front of each answer waits for the CAS that turns
// the answer from a NOP into a WRITE. But the NIC may read the answer from the ring before the
// CAS: then it executes the NOP, and never sends the answer. The server posts a receive for each
// request to the queue pair of Answers.
type Lookup struct {
	Worker, Answers *Queue
	// Beside are further queues like Worker, for parallel probes. If there are none, Worker
	// executes all probes in sequence. Otherwise Worker and each of these queues execute one probe,
	// all at the same time, and Worker starts the answers when all have ended.
	Beside []*Queue
	// Received counts the completed receives of the queue pair of Answers.
	Received *Counter
	// Table is the memory with the buckets and the values. The program has its L_Key and R_Key, so a
	// client needs to know only addresses.
	Table Mem
	// Client is the client's buffer for a value, which the client has registered. It has the length
	// of a value.
	Client  Mem
	Scratch Mem // 8 bytes that the program may overwrite
}

// Request appends the requests of one lookup with the given number of probes, and returns the
// scatter list of the receive for the client's request. The client gets a WRITE with immediate data
// Hit and the value for each bucket that has the key. After these it gets a WRITE of no bytes with
// Miss: so it learns without a time-out that no bucket has the key. Request fails if probes is not
// from 1 to MaxProbes, or if there are parallel queues (Beside) and probes is not the number of
// all queues, Worker included.
//
// A lookup begins with a WAIT for the receive and an ENABLE (lookupHead). Start enables these two
// requests of the first lookup. The ENABLE of each lookup enables its other requests, and the
// first two requests of the next lookup, which must be in the ring by then. So a server keeps at
// least one more lookup in the ring than its client may ask for.
func (l *Lookup) Request(probes int) ([]verbs.SGE, error) {
	workers := l.workers()
	switch {
	case probes < 1 || probes > MaxProbes:
		return nil, fmt.Errorf("redn: %d probes; choose 1 to %d", probes, MaxProbes)
	case len(workers) > 1 && probes != len(workers):
		return nil, fmt.Errorf("redn: %d probes in %d queues; each queue has one", probes, len(workers))
	}
	l.Received.Count++
	begins := make([]*Request, len(workers))
	for i, w := range workers {
		w.Wait(l.Received)
		begins[i] = w.Enable(w)
	}
	var receive []verbs.SGE
	for i := range probes {
		receive = append(receive, l.probe(workers[i%len(workers)])...)
	}
	if len(workers) > 1 {
		for _, w := range workers {
			l.Worker.Wait(w.Done)
		}
	}
	l.Answers.Append(sendring.Entry{Op: sendring.WriteImm, Flags: sendring.Signalled, Imm: Miss, RemoteAddr: l.Client.Addr, RKey: l.Client.RKey})
	l.Worker.release(l.Answers)
	for i, w := range workers {
		begins[i].entry.Count = w.next + lookupHead
	}
	return receive, nil
}

func (l *Lookup) workers() []*Queue { return append([]*Queue{l.Worker}, l.Beside...) }

// probe appends to w the requests that look at one bucket. It returns the pieces of the receive's
// scatter list for the part of the client's request that AppendProbe has made: the key and the
// address of the bucket. Without parallel queues, the answer for this bucket is sent before the
// next bucket is read.
func (l *Lookup) probe(w *Queue) []verbs.SGE {
	if !l.Answers.Managed {
		l.Answers.wait(w.Done, w.Done.Count+1) // the answer waits until the CAS that changes its opcode has ended
	}
	e := answer(l.Client, l.Table.LKey, Hit)
	e.Op, e.Segments = sendring.NOP, writeSegments
	reply := l.Answers.Append(e)
	low, high := reply.Operand()
	read := w.Read(0, Mem{RKey: l.Table.RKey}, low, high, reply.dataAddr())
	cas := w.walkCAS(reply, writeSegments, sendring.WriteImm, l.Scratch)
	if len(l.Beside) == 0 {
		w.Wait(w.Done)
		w.release(l.Answers)
	}
	// A compare value has the bytes of a control segment in reverse order, so the two halves of the
	// key have other offsets in it than in a control segment.
	return []verbs.SGE{
		cas.bytes(sendring.OffCompare+1, operandHalf).sge(), cas.bytes(sendring.OffCompare+5, operandHalf).sge(), read.Remote().sge(),
	}
}

// lookupHead is the number of blocks of the WAIT and the ENABLE with which a lookup begins. The
// previous lookup enables them.
const lookupHead = 2

// Start appends to master the ENABLEs that start the workers. They enable the first two requests of
// the first lookup.
func (l *Lookup) Start(master *Queue) {
	for _, w := range l.workers() {
		master.enable(w, w.first+lookupHead)
	}
}
