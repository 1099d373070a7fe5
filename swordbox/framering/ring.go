package framering

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Ring is a ring of entries in servers' memory. Positions count entries since the ring began:
//
//	read       oldest entry that may have an unread part of a frame
//	  ≤ asked  next entry to ask for
//	    ≤ written  next entry to write
type Ring struct {
	cfg                  Config
	tag                  uint32 // 0 means that no entry was written
	read, asked, written uint64
	// number is the number of the next frame to store. expected is the number of the next frame
	// that should come back.
	number, expected uint32
	window           []slot // the entries from position read on that the ring has requested
	// lengths has the number of bytes that were written to each entry, if READs are exact
	// (Config.Exact); otherwise it is nil.
	lengths []uint16
	partial partial
	out     []byte // scratch: an entry to write
}

// slot is an entry for which the ring has asked.
type slot struct {
	state slotState
	// run is how many entries the READ that begins with this entry brings; 0 means that no READ
	// begins with it.
	run  int
	data []byte // the bytes of the entry, if they have arrived
}

// slotState says what became of the READ of an entry: it is not answered yet, its bytes have
// arrived, or they will not arrive.
type slotState uint8

const (
	asking slotState = iota
	arrived
	missed
)

// partial is a frame of which some parts have come back.
type partial struct {
	header // of the first part
	data   []byte
	next   int // the next part; 0 means that there is no frame
}

// Outcome says what became of a frame.
type Outcome uint8

const (
	// Stored: the frame is in the ring. Full: the ring has no room for it. Blocked: the servers
	// or the switch cannot handle it now, but may later. Long: it has more parts than the ring has
	// entries, or than maxParts.
	Stored Outcome = iota
	Full
	Blocked
	Long
)

// New makes an empty ring. Its entries in the servers' memory may have any bytes.
func New(cfg Config) Ring {
	r := Ring{cfg: cfg, window: make([]slot, cfg.Window)}
	if cfg.Exact {
		r.lengths = make([]uint16, cfg.Layout.Cells)
	}
	return r
}

// Empty reports whether no entry is in use.
func (r *Ring) Empty() bool { return r.read == r.written }

// Remote returns how many stored frames are in the ring, or did not come back and are not reported
// as lost yet (by the methods Count and End).
func (r *Ring) Remote() uint32 { return r.number - r.expected }

// Used returns how many entries are in use. A frame takes one entry or several.
func (r *Ring) Used() int { return int(r.written - r.read) }

// Window returns how many entries may be asked for at a time.
func (r *Ring) Window() int { return len(r.window) }

// Read returns the position of the oldest entry in use.
func (r *Ring) Read() uint64 { return r.read }

// Written returns the position behind the newest entry.
func (r *Ring) Written() uint64 { return r.written }

// Newest returns the number of the frame that was stored last.
func (r *Ring) Newest() uint32 { return r.number - 1 }

// spare returns how many WRITEs of entries can be sent now. It is bounded by what the servers can
// take, and by how many packets the switch may still send in this step.
func (r *Ring) spare(c *pipeline.Ctx) (n int) {
	for _, l := range r.cfg.Carriers {
		n += l.Writes()
	}
	return min(n, c.EmitsLeft())
}

// Store writes a frame to the ring. Stored means that at least the frame's first entry was written.
// put skips entries of servers that cannot take a WRITE now, so the ring may be full before the
// last part of the frame is written. Then the frame will not come back.
func (r *Ring) Store(c *pipeline.Ctx, f packetio.Frame) Outcome {
	room := r.cfg.Layout.Size - HeaderLen
	parts := (len(f.Data) + room - 1) / room
	switch {
	case parts > maxParts || parts > r.cfg.Layout.Cells:
		return Long
	case r.written-r.read+uint64(parts) > uint64(r.cfg.Layout.Cells):
		return Full
	case r.spare(c) < parts:
		return Blocked
	}
	h := header{number: r.number, last: uint8(parts - 1), meta: f}
	for rest := f.Data; len(rest) > 0; {
		n := r.put(c, &h, rest)
		if n == 0 {
			if h.part == 0 {
				return Full
			}
			break
		}
		rest = rest[n:]
	}
	r.number++
	return Stored
}

// put writes the next parts of a frame by one WRITE: to the next entry whose server can take a
// WRITE now, and to the following entries in the same piece of memory, as many as fit into a WRITE.
// b is the rest of the frame. put sets h to the part that follows, and returns how many bytes of
// the frame it has written; 0 means that no entry was free, or that no server could take a WRITE.
func (r *Ring) put(c *pipeline.Ctx, h *header, b []byte) (n int) {
	for skip := range uint64(len(r.cfg.Carriers)) {
		at := r.written + skip
		if at-r.read >= uint64(r.cfg.Layout.Cells) {
			return 0
		}
		server, offset := r.cfg.Layout.Place(at)
		l := r.cfg.Carriers[server]
		if l.Writes() == 0 {
			r.note(at, HeaderLen)
			continue
		}
		if r.tag == 0 {
			// The tag is never 0. The factor is even and spreads epochs over all bits, so that 2^31
			// epochs have different tags although bit 0 is always set.
			r.tag = l.Nonce() ^ r.cfg.Epoch*0x9e3779b2 | 1
		}
		room := r.cfg.Layout.Size - HeaderLen
		h.tag, r.out = r.tag, r.out[:0]
		for range r.run(at, r.read+uint64(r.cfg.Layout.Cells)) {
			part := b[n:min(n+room, len(b))]
			h.place, h.length = uint32(at), uint16(len(part))
			r.out = append(h.appendTo(r.out), part...)
			r.note(at, HeaderLen+len(part))
			h.part++
			at++
			if n += len(part); n == len(b) {
				break
			}
		}
		r.written = at
		l.Write(c, offset, r.out)
		return n
	}
	return 0
}

// Share returns how many entries of an area can be in one request of at most `longest` bytes.
func Share(a *extmem.Area, longest int) int {
	if len(a.Servers) != 1 {
		return 1 // neighbouring entries are on different servers
	}
	return max(1, longest/a.Size)
}

// run returns how many entries from a position on, and before position `end`, can be in one request:
// they follow one another in the memory of one server.
func (r *Ring) run(at, end uint64) int {
	server, offset := r.cfg.Layout.Place(at)
	n := min(uint64(Share(&r.cfg.Layout, r.cfg.Carriers[server].Longest())), end-at)
	return int(min(n, (r.cfg.Layout.End()-offset)/uint64(r.cfg.Layout.Size))) // behind the last cell the ring continues at the first one
}

// note keeps the length n of the entry at a position, if Config.Exact is true. For an entry to
// which nothing was written, because its server could take no WRITE, n is HeaderLen: a READ of the
// header is enough to show that the bytes there belong to another entry.
func (r *Ring) note(at uint64, n int) {
	if r.lengths != nil {
		r.lengths[at%uint64(len(r.lengths))] = uint16(n)
	}
}

// length returns how many bytes of an entry a READ returns.
func (r *Ring) length(at uint64) int {
	if r.lengths == nil {
		return r.cfg.Layout.Size
	}
	return int(r.lengths[at%uint64(len(r.lengths))])
}

// Ask asks for entries, as many as the window allows.
func (r *Ring) Ask(c *pipeline.Ctx) { r.AskUntil(c, r.written) }

// AskUntil asks for entries before position `end`, which is at most Written. It reports whether it
// has asked for all of them. A READ brings several entries if they can be in one request. An entry
// whose carrier has no connection is given up without a READ.
func (r *Ring) AskUntil(c *pipeline.Ctx, end uint64) bool {
	for r.asked < end && r.asked-r.read < uint64(len(r.window)) {
		server, offset := r.cfg.Layout.Place(r.asked)
		s, l := r.slot(r.asked), r.cfg.Carriers[server]
		switch {
		case !l.Up():
			s.state = missed
			r.asked++
			continue
		case !l.Reads() || c.EmitsLeft() == 0:
			return false
		}
		n, size := 1, r.length(r.asked)
		if r.lengths == nil {
			n = r.run(r.asked, end)
			if room := len(r.window) - int(r.asked-r.read); n > room {
				if r.asked != r.read {
					return false // wait for room: a READ of fewer entries would only add a request
				}
				n = room
			}
			size *= n
		}
		first := Entry{Ring: r.cfg.Epoch, Place: uint32(r.asked)}
		for range n {
			at := r.slot(r.asked)
			at.state, at.run = asking, 0
			r.asked++
		}
		s.run = n
		l.Read(c, offset, size, first)
	}
	return r.asked >= end
}

func (r *Ring) slot(at uint64) *slot { return &r.window[at%uint64(len(r.window))] }

// Entry names an entry for which a ring has asked: Ring is the ring's Config.Epoch, and Place is
// the position of the entry, modulo 2³².
type Entry struct{ Ring, Place uint32 }

// Came handles the answer to the READ whose first entry is e; b is nil if there is no answer. Came
// ignores an entry for which the ring does not wait.
func (r *Ring) Came(e Entry, b []byte) {
	d := e.Place - uint32(r.read)
	if e.Ring != r.cfg.Epoch || uint64(d) >= r.asked-r.read {
		return
	}
	at := r.read + uint64(d)
	if r.slot(at).state != asking {
		return
	}
	run := r.slot(at).run
	for i := range run {
		s := r.slot(at + uint64(i))
		if s.state = missed; len(b) > 0 {
			n := len(b)
			if i+1 < run {
				n = min(n, r.cfg.Layout.Size)
			}
			s.state, s.data, b = arrived, append(s.data[:0], b[:n]...), b[n:]
		}
	}
}

// Next returns the next frame that has come back, and its number. The frame is valid until the next
// call of a method that changes the ring. ok is false if no frame has come back whole, or if an
// older entry is still to come.
func (r *Ring) Next() (f packetio.Frame, number uint32, ok bool) {
	for r.read != r.asked {
		s := r.slot(r.read)
		if s.state == asking {
			return f, 0, false
		}
		at := r.read
		r.read++
		var h header
		body, valid := h.parse(s.data)
		if s.state == missed || !valid || !r.cfg.Trusting && !r.right(&h, at) {
			continue
		}
		if h.part == 0 && h.last == 0 { // the whole frame
			r.partial.next = 0
			f = h.meta
			f.Data = body
			return f, h.number, true
		}
		if r.partial.take(&h, body) {
			f = h.meta
			f.Data = r.partial.data
			return f, h.number, true
		}
	}
	return f, 0, false
}

// right reports whether the entry at a position has a header that this ring has written there.
func (r *Ring) right(h *header, at uint64) bool {
	return h.tag == r.tag && h.place == uint32(at) && h.number-r.expected < r.Remote()
}

// take adds a part and reports whether the frame is complete.
func (p *partial) take(h *header, body []byte) bool {
	switch {
	case h.part == 0:
		p.header, p.data, p.next = *h, append(p.data[:0], body...), 1
	case p.next == 0 || int(h.part) != p.next || h.number != p.number || h.last != p.last:
		p.next = 0
		return false
	default:
		p.data = append(p.data, body...)
		p.next++
	}
	if h.part != h.last {
		return false
	}
	p.next = 0
	return true
}

// Count is called with the number of a frame that Next has returned. It returns how many frames
// between the frame counted before and this one have not come back. A trusting ring does not check
// numbers, so it counts one frame, whatever its number is, and returns 0.
func (r *Ring) Count(number uint32) (lost uint32) {
	if r.cfg.Trusting {
		if r.Remote() > 0 {
			r.expected++
		}
		return 0
	}
	lost = number - r.expected
	r.expected = number + 1
	return lost
}

// End is called when no entry of the ring waits to be read. It returns how many of the stored
// frames have not come back, and will not: their entries were lost.
func (r *Ring) End() (lost uint32) {
	lost = r.Remote()
	r.expected, r.partial.next = r.number, 0
	return lost
}
