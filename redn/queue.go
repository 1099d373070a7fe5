package redn

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Mem is registered memory, with the L_Key and R_Key under which requests name it.
type Mem struct {
	Addr       uint64
	LKey, RKey uint32
	Len        int
}

// At returns n bytes of m, beginning at the offset `off`. It panics if m has fewer bytes: programs
// are built from constants, so this is a mistake of the program's author.
func (m Mem) At(off, n int) Mem {
	if off < 0 || n < 0 || off+n > m.Len {
		panic(fmt.Sprintf("redn: %d bytes at offset %d of %d", n, off, m.Len))
	}
	return Mem{Addr: m.Addr + uint64(off), LKey: m.LKey, RKey: m.RKey, Len: n}
}

func (m Mem) sge() verbs.SGE {
	return verbs.SGE{Addr: m.Addr, Length: uint32(m.Len), LKey: m.LKey}
}

// Counter is a completion queue, with this Number, whose completions a WAIT counts. The count is
// absolute: it continues from one program to the next.
type Counter struct {
	Number uint32
	// Count is the number of completions when all requests that were built so far have completed.
	Count uint32
}

// Queue is a send ring and the requests that were appended since the last Take.
type Queue struct {
	Name string
	QPN  wire.QPN
	// Ring is the ring's memory, a power of two of blocks.
	Ring Mem
	// Managed is true if the NIC executes a request only after an ENABLE of another request has
	// allowed it. Otherwise the doorbell allows it.
	Managed bool
	// Counts16 is true if the ring compares only the low 16 bits of counts and indexes.
	Counts16 bool
	// OneBlock is true if Verify must refuse requests that are longer than one block. A program
	// that counts requests instead of blocks needs this: its ENABLEs cannot count longer ones.
	OneBlock bool
	// Done counts the completions of this queue, and of no other queue.
	Done *Counter

	requests []*Request
	first    uint32 // index of the first block of requests
	next     uint32 // index of the next block
	began    uint32 // Done.Count at the last Take
	loop     *Loop  // the loop to which the queue belongs; nil means none
}

// Request is a request of a queue. index is the index of its first block, entry its content.
type Request struct {
	queue   *Queue
	index   uint32
	entry   sendring.Entry
	waits   *Counter // the completion queue whose completions this request, a WAIT, waits for
	to      *Queue   // the queue whose limit this request, an ENABLE, moves
	receive bool     // the request is a RECV_ENABLE
	pad     bool     // the request is a NOP that fills the ring of a loop
	// changed is true if other requests change the control segment of this request, so that a loop
	// must restore it in each lap.
	changed bool
	fixes   []fix // what this request, a READ or ADD of a loop, does to the counts of other requests
	// held is true if the loop does not raise the count of this request, because the program raises
	// it itself.
	held bool
}

func (q *Queue) blocks() int { return q.Ring.Len / sendring.BlockSize }

// Append appends a request. It fills in the index and the queue pair number of e.
func (q *Queue) Append(e sendring.Entry) *Request {
	e.Index, e.QPN = uint16(q.next), q.QPN
	r := &Request{queue: q, index: q.next, entry: e}
	q.requests = append(q.requests, r)
	q.next += uint32(e.Len() / sendring.BlockSize)
	if e.Flags&sendring.Signalled != 0 {
		q.Done.Count++
	}
	return r
}

// remote appends a request on the memory that begins at remote; local are its pieces of local
// memory.
func (q *Queue) remote(op sendring.Opcode, f sendring.Flags, remote Mem, local ...Mem) *Request {
	e := sendring.Entry{Op: op, Flags: f, RemoteAddr: remote.Addr, RKey: remote.RKey, NSGE: len(local)}
	for i, m := range local {
		e.SGL[i] = m.sge()
	}
	return q.Append(e)
}

func (q *Queue) Nop(f sendring.Flags) *Request {
	return q.Append(sendring.Entry{Op: sendring.NOP, Flags: f})
}

// Write appends a WRITE of src over the memory that begins at dst.
func (q *Queue) Write(f sendring.Flags, dst, src Mem) *Request {
	return q.remote(sendring.Write, f, dst, src)
}

// Read appends a READ of the memory that begins at src. It scatters the bytes over the pieces dst,
// at most 16.
func (q *Queue) Read(f sendring.Flags, src Mem, dst ...Mem) *Request {
	return q.remote(sendring.Read, f, src, dst...)
}

// CAS appends a compare and swap of a word; the old value goes to old. compare and swap are in the
// byte order of the host.
func (q *Queue) CAS(f sendring.Flags, word, old Mem, compare, swap uint64) *Request {
	r := q.remote(sendring.CmpSwap, f, word, old)
	r.entry.Compare, r.entry.SwapAdd = compare, swap
	return r
}

// Add appends a FETCH_ADD of n to a word; the old value goes to old.
func (q *Queue) Add(f sendring.Flags, word, old Mem, n uint64) *Request {
	r := q.remote(sendring.FetchAdd, f, word, old)
	r.entry.SwapAdd = n
	return r
}

// Wait appends a WAIT: the queue stops there until all signalled requests that were built so far,
// and whose completions c counts, have completed.
func (q *Queue) Wait(c *Counter) *Request { return q.wait(c, c.Count) }

func (q *Queue) wait(c *Counter, count uint32) *Request {
	r := q.Append(sendring.Entry{Op: sendring.Wait, Count: count, Object: c.Number})
	r.waits = c
	return r
}

// Enable appends an ENABLE of all requests that queue `to` has so far.
func (q *Queue) Enable(to *Queue) *Request { return q.enable(to, to.next) }

// enable appends an ENABLE of the requests of queue `to` whose index is below limit.
func (q *Queue) enable(to *Queue, limit uint32) *Request {
	r := q.Append(sendring.Entry{Op: sendring.Enable, Count: limit, Object: uint32(to.QPN)})
	r.to = to
	return r
}

// EnableReceive appends a RECV_ENABLE, which makes used receives of the queue pair of queue `to`
// usable again, up to the receive before index limit. MaxRecvWR of the queue pair is a power of
// two, and MaxRecvWR receives were posted.
func (q *Queue) EnableReceive(to *Queue, limit uint32) *Request {
	r := q.Append(sendring.Entry{Op: sendring.RecvEnable, Count: limit, Object: uint32(to.QPN)})
	r.receive = true
	return r
}

// counts reports whether the request has a count or limit, which each lap of a loop raises.
func (r *Request) counts() bool { return r.waits != nil || r.to != nil || r.receive }

// bytes returns n bytes of the entry, from offset off on, as memory. They must lie in one block.
func (r *Request) bytes(off, n int) Mem {
	place := (int(r.index) + off/sendring.BlockSize) % r.queue.blocks()
	return r.queue.Ring.At(place*sendring.BlockSize+off%sendring.BlockSize, n)
}

// Control returns the memory of the first 8 bytes; a CAS can change them as one word.
func (r *Request) Control() Mem { return r.bytes(0, 8) }

// Operand returns the memory of the operand: two halves of 3 bytes. The NIC ignores them if
// the ring was made without Checked (verbs.RingInit).
func (r *Request) Operand() (low, high Mem) { return r.bytes(0, 3), r.bytes(sendring.OffQPN, 3) }

// Hold puts an operand into the request, which has it when the program starts.
func (r *Request) Hold(x Operand) {
	r.entry.OpMod, r.entry.Index, r.entry.QPN = byte(x), uint16(byte(x>>8))<<8|uint16(byte(x>>16)), wire.QPN(byte(x>>24))<<16|wire.QPN(byte(x>>32))<<8|wire.QPN(byte(x>>40))
}

// Remote returns the memory of the remote address: 8 bytes, big-endian.
func (r *Request) Remote() Mem { return r.bytes(sendring.OffRemote, 8) }

// Value returns the memory of an atomic's swap value or addend: 8 bytes, big-endian.
func (r *Request) Value() Mem { return r.bytes(sendring.OffSwapAdd, 8) }

// Count returns the memory of the count of a WAIT, ENABLE or RECV_ENABLE: 4 bytes, big-endian.
func (r *Request) Count() Mem { return r.bytes(sendring.OffCount, 4) }

// Piece is a part of the image of a ring.
type Piece struct {
	Off   int // offset in the ring's memory
	Bytes []byte
}

// Take returns the bytes of the requests that were appended since the last Take, for the caller to
// write to the ring, and begins the next program. limit is the index for the doorbell of a queue
// that is not managed.
func (q *Queue) Take() (image []Piece, limit uint32) {
	for _, r := range q.requests {
		b := r.entry.AppendTo(nil)
		for i := 0; i < len(b); i += sendring.BlockSize {
			place := (int(r.index) + i/sendring.BlockSize) % q.blocks()
			image = append(image, Piece{place * sendring.BlockSize, b[i : i+sendring.BlockSize]})
		}
	}
	q.requests, q.first, q.began = nil, q.next, q.Done.Count
	return image, q.next
}

// Cost counts the requests of a program as the paper's Table 2 does: copies, atomics, and WAITs
// together with all ENABLEs. A NOP counts as a copy, because it may become one; NOPs that fill a ring do
// not count.
type Cost struct{ Copies, Atomics, Controls int }

func CostOf(queues ...*Queue) (c Cost) {
	for _, q := range queues {
		for _, r := range q.requests {
			switch r.entry.Op {
			case sendring.NOP:
				if !r.pad {
					c.Copies++
				}
			case sendring.Wait, sendring.Enable, sendring.RecvEnable:
				c.Controls++
			case sendring.CmpSwap, sendring.FetchAdd, sendring.MaskedCmpSwap, sendring.MaskedFetchAdd:
				c.Atomics++
			default:
				c.Copies++
			}
		}
	}
	return c
}
