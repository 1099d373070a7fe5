package redn

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A bucket of a table that Lookup searches is a key, little-endian in 6 bytes, and the address of the
// value, big-endian in 8 bytes.
const (
	BucketLen = OperandLen + 8
	// ProbeLen is the length of one probe in a request of a client.
	ProbeLen = OperandLen + 8
	// MaxProbes is the largest number of buckets of one lookup: a probe takes three of the 16 pieces
	// of a receive.
	MaxProbes = 5
	// Immediate data of the answers.
	Miss, Hit = 0, 1

	offData     = 32 // of a WRITE: its data segment
	offDataAddr = 40 // and the address in it
)

// AppendBucket appends a bucket.
func AppendBucket(b []byte, key Operand, value uint64) []byte {
	for i := range OperandLen {
		b = append(b, byte(key>>(8*i)))
	}
	return binary.BigEndian.AppendUint64(b, value)
}

// AppendProbe appends what a client sends for each bucket that may have its key: key and address,
// both big-endian.
func AppendProbe(b []byte, key Operand, bucket uint64) []byte {
	for i := OperandLen - 1; i >= 0; i-- {
		b = append(b, byte(key>>(8*i)))
	}
	return binary.BigEndian.AppendUint64(b, bucket)
}

// Lookup is a server of one client: it answers requests without a processor. Worker is a managed
// queue that is its own peer. Answers is a managed queue whose peer is the client: if it is not
// managed, each answer waits for its CAS, and has no effect if the NIC has read it before. The server
// posts the receive of each request to that queue pair.
type Lookup struct {
	Worker, Answers *Queue
	// Beside are further queues like Worker. None: probes are in sequence. Else each queue has a probe
	// of its own, all at the same time, and Worker answers when all have ended.
	Beside []*Queue
	// Received counts the receives of the queue pair of Answers.
	Received *Counter
	// Table is the memory with the buckets and the values. Its keys replace what a client may not
	// know: a client names addresses alone.
	Table Mem
	// Client is the client's buffer, of the length of a value; the client registered it.
	Client  Mem
	Scratch Mem // 8 bytes
}

// Request appends the requests that answer the next request of the client, with that many probes, and
// returns the scatter list of its receive. The client gets a WRITE with immediate data Hit for each
// bucket that has the key, and behind that one of no bytes with Miss, so that a miss is seen without a
// time-out. It fails for a number of probes that no receive can hold, or that is not the number of
// parallel queues.
//
// The worker's limit must be behind the first request of a lookup: the one that waits for the
// receive. A lookup lets the worker go on to the first requests of the next one, which must be in the
// ring by then: a server keeps at least one more lookup in the ring than clients may ask for.
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

// probe appends the requests that look at one bucket to w, and returns the pieces of the receive that
// they need. In sequence, they answer at once.
func (l *Lookup) probe(w *Queue) []verbs.SGE {
	if !l.Answers.Managed {
		l.Answers.wait(w.Done, w.Done.Count+1) // for the CAS
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
	// The compare value is a number in the other byte order.
	return []verbs.SGE{
		cas.bytes(sendring.OffCompare+1, operandHalf).sge(), cas.bytes(sendring.OffCompare+5, operandHalf).sge(), read.Remote().sge(),
	}
}

// lookupHead is the number of blocks at the beginning of a lookup that must be enabled in front of it:
// WAIT and ENABLE.
const lookupHead = 2

// Start appends to master the requests that start the workers.
func (l *Lookup) Start(master *Queue) {
	for _, w := range l.workers() {
		master.enable(w, w.first+lookupHead)
	}
}
