package redn

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Mem is registered memory that requests name by either key.
type Mem struct {
	Addr       uint64
	LKey, RKey uint32
	Len        int
}

// At returns the n bytes of m from offset off on. It panics if m has fewer: programs are built from
// constants.
func (m Mem) At(off, n int) Mem {
	if off < 0 || n < 0 || off+n > m.Len {
		panic(fmt.Sprintf("redn: %d bytes at offset %d of %d", n, off, m.Len))
	}
	return Mem{Addr: m.Addr + uint64(off), LKey: m.LKey, RKey: m.RKey, Len: n}
}

func (m Mem) sge() verbs.SGE {
	return verbs.SGE{Addr: m.Addr, Length: uint32(m.Len), LKey: m.LKey}
}

// Counter is a completion queue on which requests wait. The count is absolute: it goes on from
// program to program.
type Counter struct {
	Number uint32
	// Count is how many completions the requests that were built so far cause.
	Count uint32
}

// Queue is a send ring and the requests that were appended since the last Take.
type Queue struct {
	Name string
	QPN  wire.QPN
	// Ring is the ring's memory, a power of two of blocks.
	Ring Mem
	// Managed: only an ENABLE lets the requests be executed.
	Managed bool
	// Counts16: the ring compares the low 16 bits of counts and indexes alone.
	Counts16 bool
	// OneBlock: Verify refuses requests of more than one block, which a program that counts
	// requests instead of blocks cannot enable.
	OneBlock bool
	// Done counts the completions of the queue, and of no other.
	Done *Counter

	requests []*Request
	first    uint32 // index of the first of them
	next     uint32 // index of the next block
	began    uint32 // Done.Count at the last Take
	loop     *Loop  // whose laps the ring executes; nil means none
}

// Request is a request of a queue.
type Request struct {
	queue   *Queue
	index   uint32
	entry   sendring.Entry
	waits   *Counter // of a WAIT
	to      *Queue   // of an ENABLE
	receive bool     // a RECV_ENABLE
	pad     bool     // fills the ring of a loop
	// changed: other requests change the control segment, so a loop restores it in each lap.
	changed bool
	fixes   []fix // what a loop's READ or ADD does to the counts of other requests
	held    bool  // the program raises the count itself when it has to
}

// blocks returns the number of blocks of the ring.
func (q *Queue) blocks() int { return q.Ring.Len / sendring.BlockSize }

// Append appends a request. Index and queue pair number of e are filled in.
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

// Nop appends a request that does nothing.
func (q *Queue) Nop(f sendring.Flags) *Request {
	return q.Append(sendring.Entry{Op: sendring.NOP, Flags: f})
}

// Write appends a WRITE of src over the memory that begins at dst.
func (q *Queue) Write(f sendring.Flags, dst, src Mem) *Request {
	e := sendring.Entry{Op: sendring.Write, Flags: f, RemoteAddr: dst.Addr, RKey: dst.RKey, NSGE: 1}
	e.SGL[0] = src.sge()
	return q.Append(e)
}

// Read appends a READ that scatters the memory from src on over dst, at most 16 pieces.
func (q *Queue) Read(f sendring.Flags, src Mem, dst ...Mem) *Request {
	e := sendring.Entry{Op: sendring.Read, Flags: f, RemoteAddr: src.Addr, RKey: src.RKey, NSGE: len(dst)}
	for i, m := range dst {
		e.SGL[i] = m.sge()
	}
	return q.Append(e)
}

// CAS appends a compare and swap of a word; old takes what the word was. The numbers are in the
// byte order of the host.
func (q *Queue) CAS(f sendring.Flags, word, old Mem, compare, swap uint64) *Request {
	e := sendring.Entry{Op: sendring.CmpSwap, Flags: f, RemoteAddr: word.Addr, RKey: word.RKey, Compare: compare, SwapAdd: swap, NSGE: 1}
	e.SGL[0] = old.sge()
	return q.Append(e)
}

// Add appends an addition to a word; old takes what the word was.
func (q *Queue) Add(f sendring.Flags, word, old Mem, n uint64) *Request {
	e := sendring.Entry{Op: sendring.FetchAdd, Flags: f, RemoteAddr: word.Addr, RKey: word.RKey, SwapAdd: n, NSGE: 1}
	e.SGL[0] = old.sge()
	return q.Append(e)
}

// Wait appends a WAIT for all completions of c that the requests built so far cause.
func (q *Queue) Wait(c *Counter) *Request { return q.wait(c, c.Count) }

func (q *Queue) wait(c *Counter, count uint32) *Request {
	r := q.Append(sendring.Entry{Op: sendring.Wait, Count: count, Object: c.Number})
	r.waits = c
	return r
}

// Enable appends an ENABLE of all requests that to has so far.
func (q *Queue) Enable(to *Queue) *Request { return q.enable(to, to.next) }

// enable appends an ENABLE of the requests of to in front of index limit.
func (q *Queue) enable(to *Queue, limit uint32) *Request {
	r := q.Append(sendring.Entry{Op: sendring.Enable, Count: limit, Object: uint32(to.QPN)})
	r.to = to
	return r
}

// EnableReceive appends a RECV_ENABLE: the queue pair of to may use its receives again, in front of index
// limit. MaxRecvWR of the queue pair is a power of two, and as many receives were posted.
func (q *Queue) EnableReceive(to *Queue, limit uint32) *Request {
	r := q.Append(sendring.Entry{Op: sendring.RecvEnable, Count: limit, Object: uint32(to.QPN)})
	r.receive = true
	return r
}

// counts reports whether the request has a count, which each lap of a loop raises.
func (r *Request) counts() bool { return r.waits != nil || r.to != nil || r.receive }

// bytes returns the memory of n bytes of the entry from offset off on, which lie in one block.
func (r *Request) bytes(off, n int) Mem {
	place := (int(r.index) + off/sendring.BlockSize) % r.queue.blocks()
	return r.queue.Ring.At(place*sendring.BlockSize+off%sendring.BlockSize, n)
}

// Control returns the first 8 bytes: one word for a CAS.
func (r *Request) Control() Mem { return r.bytes(0, 8) }

// Operand returns the two halves, of 3 bytes each, that an unchecked ring ignores.
func (r *Request) Operand() (low, high Mem) { return r.bytes(0, 3), r.bytes(sendring.OffQPN, 3) }

// Remote returns the remote address, 8 bytes, big-endian.
func (r *Request) Remote() Mem { return r.bytes(sendring.OffRemote, 8) }

// Value returns the swap value or addend of an atomic, 8 bytes, big-endian.
func (r *Request) Value() Mem { return r.bytes(sendring.OffSwapAdd, 8) }

// Count returns the count of a WAIT, ENABLE or RECV_ENABLE, 4 bytes, big-endian.
func (r *Request) Count() Mem { return r.bytes(sendring.OffCount, 4) }

// Flags returns the byte with fence and completion.
func (r *Request) Flags() Mem { return r.bytes(sendring.OffFlags, 1) }

// Piece is a part of the image of a ring.
type Piece struct {
	Off   int // in the ring's memory
	Bytes []byte
}

// Take returns the bytes of the appended requests, and begins the next program. Limit is what the
// doorbell of an unmanaged queue says.
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

// Cost counts the requests of a program as the paper's Table 2 does: copies (NOPs count as what
// they become; those that fill a ring do not count), atomics, and WAIT with ENABLE.
type Cost struct{ Copies, Atomics, Controls int }

// CostOf returns the cost of the requests that the queues have.
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
