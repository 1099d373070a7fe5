package packetio

import (
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Open is a RoCEv2 packet that is not encoded: its headers are fields, and its payload is a copy of the
// sender's memory. Two engines of one process exchange such packets if nothing on the way looks at
// their bytes (package direct). AppendTo makes the bytes that the engine would have sent.
//
// An open packet has one holder at a time. The holder that does not pass it on calls Return, and then
// its memory is used again. If a holder forgets that, the garbage collector frees the memory.
type Open struct {
	// Frame is changed by Change alone. Its lengths, checksums and ICRC are not set.
	Frame  wire.Frame
	length int
	page   *page
}

// Len returns the length of the encoded frame in bytes.
func (o *Open) Len() int { return o.length }

// AppendTo appends the encoded frame to b.
func (o *Open) AppendTo(b []byte, s *wire.Sealer) []byte { return s.AppendFrame(b, &o.Frame) }

// Change makes the packet f, if f has the packet's payload, its beginning, or none. Otherwise it returns
// false, and has done nothing: other memory may not stay valid as long as the packet's.
func (o *Open) Change(f *wire.Frame) bool {
	was, now := o.Frame.Payload, f.Payload
	if len(now) > len(was) || len(now) > 0 && &now[0] != &was[0] {
		return false
	}
	o.Frame, o.length = *f, f.Len()
	return true
}

// Return says that the holder needs the packet and its payload no longer.
func (o *Open) Return() { o.page.returned.Add(1) }

// Shares reports whether the memory of both packets is used again only after both were returned.
func (o *Open) Shares(with *Open) bool { return o.page == with.page }

// ReturnAll returns the open packets among frames.
func ReturnAll(frames []Frame) {
	var run *page
	n := int64(0)
	for i := range frames {
		o := frames[i].Open
		if o == nil {
			continue
		}
		if o.page != run {
			if n > 0 {
				run.returned.Add(n)
			}
			run, n = o.page, 0
		}
		n++
	}
	if n > 0 {
		run.returned.Add(n)
	}
}

// Opener is a Port that can pass on open packets, because the other end is in the same process.
type Opener interface {
	Port
	// TakeOpen says that the owner of this end handles open packets. The port passes those of the owner
	// on in any case.
	TakeOpen()
}

// Bounds of the memory for open packets.
const (
	// openChunk and byteChunk are the numbers of packets and of bytes for payloads that a page gets at a
	// time.
	openChunk = 32
	byteChunk = 32 << 10
	// A page is full with so many packets or bytes. It may become larger in one step of a queue pair.
	fullOpens = 64
	fullBytes = 48 << 10
	// maxPages bounds the pages that Pages keeps to use them again.
	maxPages = 64
)

// page has memory for packets that are used again together.
type page struct {
	given    int64        // packets that were given to holders; only the owner uses it
	returned atomic.Int64 // packets that their holders have returned
	opens    [][]Open
	n        int // packets in use
	bytes    [][]byte
	at, used int // the chunk of bytes in use, and how many bytes of it are in use
}

// idle reports whether all packets were returned.
func (p *page) idle() bool { return p.given == p.returned.Load() }

func (p *page) renew() {
	p.given, p.n, p.at, p.used = 0, 0, 0, 0
	p.returned.Store(0)
}

func (p *page) full() bool { return p.n >= fullOpens || p.at*byteChunk+p.used >= fullBytes }

// Pages makes the open packets of one NIC. Only the owner's thread calls its methods; holders of the
// packets may be other threads. Use NewPages.
type Pages struct {
	now  *page
	kept []*page // others, to use them again
	busy bool    // packets or payloads were made since the last call of Trim
}

func NewPages() *Pages { return &Pages{now: new(page)} }

// Alloc returns n bytes for the payload of a packet that Add or Give makes before the next call of Rest.
func (s *Pages) Alloc(n int) []byte {
	p := s.now
	s.busy = true
	for {
		if p.at == len(p.bytes) {
			p.bytes = append(p.bytes, make([]byte, max(byteChunk, n)))
		}
		if c := p.bytes[p.at]; p.used+n <= len(c) {
			p.used += n
			return c[p.used-n : p.used : p.used]
		}
		p.at, p.used = p.at+1, 0
	}
}

// New returns memory for a packet. The caller sets all fields of Frame, and then calls Add or Give.
func (s *Pages) New() *Open {
	p := s.now
	if p.n == len(p.opens)*openChunk {
		p.opens = append(p.opens, make([]Open, openChunk))
	}
	o := &p.opens[p.n/openChunk][p.n%openChunk]
	o.page = p
	return o
}

// Add appends o, the last result of New, to b.
func (s *Pages) Add(b *Batch, o *Open) {
	b.Frames = append(b.Frames, s.Give(o))
	b.bytes += o.length
}

// Give returns o, the last result of New, as a frame. Its holder is the caller.
func (s *Pages) Give(o *Open) Frame {
	o.length = o.Frame.Len()
	s.now.n++
	s.now.given++
	s.busy = true
	return Frame{Open: o}
}

// Rest is called between two steps: the payloads of all packets of the last step belong to packets that
// Add or Give has made.
func (s *Pages) Rest() {
	switch {
	case s.now.n == 0 && s.now.used == 0:
	case s.now.idle():
		s.now.renew()
	case s.now.full():
		s.next()
	}
}

// Trim gives the memory of a burst back to the garbage collector, if no packet was made since the last
// call, and reports whether it has. It is called between two steps. Packets that are on their way keep
// their memory.
func (s *Pages) Trim() bool {
	if s.busy {
		s.busy = false
		return false
	}
	s.now, s.kept = new(page), nil
	return true
}

// next takes another page for the next packets.
func (s *Pages) next() {
	full := s.now
	s.now = nil
	for i, p := range s.kept {
		if p.idle() {
			p.renew()
			s.kept[i], s.now = full, p
			return
		}
	}
	s.now = new(page)
	if len(s.kept) == maxPages {
		s.kept = append(s.kept[:0], s.kept[1:]...)
	}
	s.kept = append(s.kept, full)
}
