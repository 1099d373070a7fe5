package trunk

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Receive takes a datagram, whose memory it changes, appends the frames that are complete now, and the
// datagrams that are to be sent. The frames are valid until Begin is called, and as long as the
// memory of d. Room must have said that there is room. It reports whether the datagram was not refused:
// only the peer can have made it.
func (e *End) Receive(now clock.Time, d []byte, frames *packetio.Batch, out *Out) bool {
	before := e.stats.Received
	e.receive(now, d, frames, out)
	return e.stats.Received != before
}

func (e *End) receive(now clock.Time, d []byte, frames *packetio.Batch, out *Out) {
	if e.state == Off {
		return
	}
	r := &e.stats.Refused
	h, ok := parseHeader(d)
	switch {
	case !ok:
		r.Malformed++
	case h.version != Version:
		r.Version++
		e.peerVersion = h.version
	case h.rack != e.id.rack:
		r.OtherRack++
	case len(d) > MaxDatagram:
		r.Oversized++
	case h.kind == 0 || h.kind >= kinds:
		r.Malformed++
	case h.kind == kindHello:
		m, ok := e.id.openHello(d)
		if !ok {
			r.BadTag++
			return
		}
		e.peerVersion = 0
		before := r.Sum()
		if e.greeted(now, &m, false, out); r.Sum() == before {
			e.stats.Received++
		}
	case len(d) <= Overhead:
		r.Malformed++
	default:
		e.sealed(now, &h, d, frames, out)
	}
}

// sealed takes a datagram that is sealed with a key.
func (e *End) sealed(now clock.Time, h *header, d []byte, frames *packetio.Batch, out *Out) {
	r := &e.stats.Refused
	s := e.keys.of(now, h.epoch)
	if s == nil {
		r.UnknownEpoch++
		return
	}
	w, n := s.space(h.counter)
	if w == &s.sizes && h.kind != kindProbe {
		r.Malformed++
		return
	}
	switch w.look(n) {
	case replayed:
		r.Replayed++
		return
	case old:
		r.Old++
		return
	case fresh:
	}
	if h.kind == kindData {
		e.data(now, s, h, d, frames)
		return
	}
	b, ok := s.open(d[headerLen:headerLen], d, h.counter)
	if !ok {
		r.BadTag++
		return
	}
	e.heard(now, s, h)
	if h.kind == kindProbe {
		p, ok := parseProbe(b)
		if !ok {
			r.Malformed++
			return
		}
		if w == &s.window { // which counts from here on at the latest
			s.peerSent.told(p.unsent)
		}
		e.probed(now, &p, len(d))
		return
	}
	m, ok := parseHello(b)
	if !ok {
		r.Malformed++
		return
	}
	e.greeted(now, &m, true, out)
}

// heard notes a datagram that is authentic.
func (e *End) heard(now clock.Time, s *session, h *header) {
	if w, n := s.space(h.counter); w.accept(n) {
		e.stats.Reordered++
	}
	e.stats.Received++
	e.live.heard, e.live.strange, e.peerVersion = now, e.stats.Refused.strange(), 0
	e.proved(now, s)
	e.on(now, chHeard)
}

// data takes a piece of a train. Before the piece has proved to be authentic, it may only change memory that
// has nothing in it.
func (e *End) data(now clock.Time, s *session, h *header, d []byte, frames *packetio.Batch) {
	r := &e.stats.Refused
	n := len(d) - Overhead
	if h.index >= h.count || h.counter <= uint64(h.index) {
		r.Malformed++
		return
	}
	if h.count == 1 {
		b, ok := s.open(d[headerLen:headerLen], d, h.counter)
		if !ok {
			r.BadTag++
			return
		}
		if c := e.asm.current(); c != nil && (c.of != s || c.id < h.counter) {
			e.asm.finish(frames)
		}
		e.heard(now, s, h)
		e.asm.whole(b, frames)
		return
	}
	t := e.asm.of(s, h)
	if t == nil { // authentic or not, its train is gone
		if _, ok := s.open(d[headerLen:headerLen], d, h.counter); !ok {
			r.BadTag++
			return
		}
		e.heard(now, s, h)
		e.stats.Late++
		return
	}
	at, ok := t.place(int(h.index), int(h.count), n)
	if !ok {
		r.Oversized++
		return
	}
	if _, ok := s.open(t.buf[at:at:at+n], d, h.counter); !ok {
		r.BadTag++
		return
	}
	e.heard(now, s, h)
	if e.asm.took(t, h, n, frames); e.asm.open && e.asm.current() == t {
		e.wait = now.Add(trainWait)
	}
}
