package packetbuffer

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// ring is a ring of entries in servers' memory. Positions count entries since the ring began:
//
//	read       oldest entry that may have an unread part of a frame
//	  ≤ asked  next entry to ask for
//	    ≤ written  next entry to write
type ring struct {
	layout *Layout
	links  []*Link // of the layout's servers
	// trusting: an entry that comes back is taken for the right one, as in the paper.
	trusting             bool
	epoch                uint32 // names the ring in calls of carriers
	tag                  uint32 // 0: no entry was written
	read, asked, written uint64
	// number is the number of the next frame to store. expected is the number of the next frame
	// that should come back.
	number, expected uint32
	window           []slot // the entries from read on that were asked for
	partial          partial
	out              []byte // scratch: an entry to write
}

// slot is an entry that was asked for.
type slot struct {
	state slotState
	data  []byte
}

type slotState uint8

const (
	asking slotState = iota
	arrived
	missed
)

// partial is a frame of which some parts have come back.
type partial struct {
	header
	data []byte
	next int // the next part; 0: there is no frame
}

// outcome says what became of a frame.
type outcome uint8

const (
	stored outcome = iota
	full
	blocked
	long
)

// empty reports whether no frame is in the ring.
func (r *ring) empty() bool { return r.read == r.written }

// remote returns how many frames are in the ring.
func (r *ring) remote() uint32 { return r.number - r.expected }

// spare returns how many entries the servers can take now. The switch sends only so many packets in
// one step.
func (r *ring) spare(c *pipeline.Ctx) (n int) {
	for _, l := range r.links {
		n += l.writes()
	}
	return min(n, c.EmitsLeft())
}

// store writes a frame to the ring. stored: at least its first entry was written. If there was no
// room for another one, because entries were skipped, the frame will not come back.
func (r *ring) store(c *pipeline.Ctx, f packetio.Frame) outcome {
	room := r.layout.Size - headerLen
	parts := (len(f.Data) + room - 1) / room
	switch {
	case parts > maxParts || parts > r.layout.Cells:
		return long
	case r.written-r.read+uint64(parts) > uint64(r.layout.Cells):
		return full
	case r.spare(c) < parts:
		return blocked
	}
	h := header{number: r.number, last: uint8(parts - 1), meta: f}
	for part := range parts {
		n := min(room, len(f.Data)-part*room)
		h.part, h.length = uint8(part), uint16(n)
		if !r.put(c, &h, f.Data[part*room:][:n]) {
			if part == 0 {
				return full
			}
			break
		}
	}
	r.number++
	return stored
}

// put writes the next entry whose server can take a WRITE now.
func (r *ring) put(c *pipeline.Ctx, h *header, b []byte) bool {
	for skip := range uint64(len(r.links)) {
		at := r.written + skip
		if at-r.read >= uint64(r.layout.Cells) {
			return false
		}
		server, offset := r.layout.Place(at)
		l := r.links[server]
		if l.writes() == 0 {
			continue
		}
		if r.tag == 0 {
			r.tag = l.carrier.Nonce() ^ r.epoch<<24 | 1
		}
		h.tag, h.place = r.tag, uint32(at)
		r.out = append(h.appendTo(r.out[:0]), b...)
		r.written = at + 1
		l.carrier.Write(c, offset, r.out)
		return true
	}
	return false
}

// ask asks for entries, as many as may be in flight.
func (r *ring) ask(c *pipeline.Ctx) {
	for r.asked != r.written && r.asked-r.read < uint64(len(r.window)) {
		server, offset := r.layout.Place(r.asked)
		s, l := r.slot(r.asked), r.links[server]
		switch {
		case !l.up():
			s.state = missed
		case !l.reads() || c.EmitsLeft() == 0:
			return
		default:
			s.state = asking
			l.carrier.Read(c, offset, r.layout.Size, Entry{Ring: r.epoch, Place: uint32(r.asked)})
		}
		r.asked++
	}
}

func (r *ring) slot(at uint64) *slot { return &r.window[at%uint64(len(r.window))] }

// Entry names an entry that was asked for.
type Entry struct{ Ring, Place uint32 }

// came takes the answer for an entry; b is nil if there is none. It ignores entries that are not
// asked for.
func (r *ring) came(e Entry, b []byte) {
	d := e.Place - uint32(r.read)
	if e.Ring != r.epoch || uint64(d) >= r.asked-r.read {
		return
	}
	s := r.slot(r.read + uint64(d))
	if s.state != asking {
		return
	}
	if s.state = missed; b != nil {
		s.state, s.data = arrived, append(s.data[:0], b...)
	}
}

// next returns the next frame that has come back, and its number. The frame is valid until the next
// call. ok is false if there is none at present.
func (r *ring) next() (f packetio.Frame, number uint32, ok bool) {
	for r.read != r.asked {
		s := r.slot(r.read)
		if s.state == asking {
			return f, 0, false
		}
		at := r.read
		r.read++
		var h header
		body, valid := h.parse(s.data)
		if s.state == missed || !valid || !r.trusting && !r.right(&h, at) {
			continue
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
func (r *ring) right(h *header, at uint64) bool {
	return h.tag == r.tag && h.place == uint32(at) && h.number-r.expected < r.remote()
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

// count makes the frame behind number the expected one, and returns how many frames before it have
// not come back. A trusting ring does not know.
func (r *ring) count(number uint32) (lost uint32) {
	if r.trusting {
		if r.remote() > 0 {
			r.expected++
		}
		return 0
	}
	lost = number - r.expected
	r.expected = number + 1
	return lost
}

// end is called when the ring is empty: it returns how many frames have not come back.
func (r *ring) end() (lost uint32) {
	lost = r.remote()
	r.expected, r.partial.next = r.number, 0
	return lost
}
