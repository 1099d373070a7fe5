package pipeline

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Open handles a packet that is not encoded (packetio.Frame.Open) as Frame would, if the program does not
// look at it, and the switch only forwards it through one port, through which leaves lets it leave. It
// returns this port. Otherwise it has done nothing, and to is -1: ok reports whether the caller may pass
// the packet to Frame as it is. If not, something in front of the program looks at the packet's bytes, so
// the caller must encode it first.
func (s *Switch) Open(now clock.Time, in int, f *packetio.Frame, leaves func(to int) bool) (to int, ok bool) {
	h := &f.Open.Frame
	if s.notes.on || s.fdb.trunks != nil || in < 0 || in >= len(s.ports) || s.program.taken.Has(in) ||
		h.Eth.Dst.IsMulticast() || h.Eth.Src.IsMulticast() || s.self.owns(h.Eth.Src) ||
		len(s.self.Addrs) != 0 && slices.Contains(s.self.Addrs, h.SrcAddr()) {
		return -1, false
	}
	if !s.program.spec.Blind || s.self.owns(h.Eth.Dst) {
		return -1, true
	}
	to = s.fdb.lookup(now, h.Eth.Dst)
	if to < 0 || to == in || !s.ports[to].up || s.program.queued.Has(to) || !s.ports.allowed(in, to) || !leaves(to) {
		return -1, true
	}
	s.ctx.Now = now
	s.fdb.learn(now, h.Eth.Src, in)
	s.flows.count(now, h, 1, f.Len())
	s.ports[in].received(f.Len())
	p := &s.ports[to]
	p.TxPackets++
	p.TxBytes += uint64(f.Len())
	f.Port, f.Origin = to, int16(in+1)
	return to, true
}

// acceptOpen handles a packet that is not encoded. The packet leaves so, as it was or as the program
// has changed it; what is sent in its place or in many directions is encoded.
func (s *Switch) acceptOpen(in int, f packetio.Frame) {
	p := s.parsed
	p.Frame = f.Open.Frame
	s.fdb.learn(s.ctx.Now, p.Eth.Src, in)
	s.flows.count(s.ctx.Now, &p.Frame, 1, f.Len())
	s.ports[in].received(f.Len())
	p.Raw, p.packet, p.Ingress, p.Packets, p.icrc = f, nil, in, 1, icrcRight
	p.Own = s.self.owns(p.Eth.Dst)
	s.openSent = false
	s.made.begin(s.ctx.Now)
	s.decisions.begin(s.ctx.Now, in)
	s.apply(s.program.Packet(&s.ctx, p), p)
	s.decisions.begin(s.ctx.Now, -1)
	s.made.on = false
	if !s.openSent {
		f.Open.Return()
	}
	p.Raw = packetio.Frame{}
}

// emit sends packet f, of n bytes, that the program has made.
func (c *Ctx) emit(f *wire.Frame, n int) bool {
	s := c.s
	if !s.made.on || !s.made.takes(f) {
		return s.forward(-1, -1, packetio.Frame{Data: s.parsed.seal(f, n, s.out)})
	}
	handled := s.openSent
	s.openSent = false
	made := s.made.packet(f)
	ok := s.forward(-1, -1, made)
	if !s.openSent {
		made.Open.Return()
	}
	s.openSent = handled
	return ok
}

// made has the packets that a program makes while it handles one that is not encoded: they are not
// encoded either.
type made struct {
	on     bool // the program handles such a packet
	pages  *packetio.Pages
	trimAt clock.Time // when the memory of a burst is given back, if no packet is made until then
}

// trimEvery: the memory of open packets is given back when none was made for so long, at the latest
// after twice this time.
const trimEvery = time.Second

// begin is called before the program handles a packet that is not encoded.
func (m *made) begin(now clock.Time) {
	if m.pages == nil {
		m.pages = packetio.NewPages()
	}
	m.on = true
	m.pages.Rest()
	if m.trimAt == clock.Never {
		m.trimAt = now.Add(trimEvery)
	}
}

// takes reports whether a NIC takes f as it is: a packet of a reliable connection, as NICs send open
// themselves, and neither a datagram nor a CNP.
func (m *made) takes(f *wire.Frame) bool {
	const gsi = 1 // the queue pair of management datagrams
	return f.BTH.Opcode.Service() == wire.ServiceRC && f.BTH.DestQP > gsi
}

// packet returns a copy of f, which the caller holds.
func (m *made) packet(f *wire.Frame) packetio.Frame {
	o := m.pages.New()
	o.Frame = *f
	if n := len(f.Payload); n > 0 {
		o.Frame.Payload = m.pages.Alloc(n)
		copy(o.Frame.Payload, f.Payload)
	}
	return m.pages.Give(o)
}

// trim gives back the memory of open packets if it is time.
func (m *made) trim(now clock.Time) {
	switch {
	case m.trimAt > now:
	case m.pages.Trim():
		m.trimAt = clock.Never
	default:
		m.trimAt = now.Add(trimEvery)
	}
}

// encoded returns f encoded, in memory of out.
func encoded(f packetio.Frame, out *packetio.Batch, sealer *wire.Sealer) packetio.Frame {
	if f.Open != nil {
		f.Data = f.Open.AppendTo(out.Alloc(f.Len()), sealer)
		f.Open = nil
	}
	return f
}
