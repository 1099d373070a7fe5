package pipeline

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Open does what Frame does, for a packet that is not encoded (packetio.Frame.Open), if the switch only
// forwards it through one port, through which leaves lets it leave, and nothing in the switch looks at
// the packet's bytes. It returns this port. It returns false, and has done nothing, if the caller must
// encode the packet and pass it to Frame.
func (s *Switch) Open(now clock.Time, in int, f *packetio.Frame, leaves func(to int) bool) (to int, ok bool) {
	h := &f.Open.Frame
	if !s.spec.Blind || s.observed || s.fdb.trunks != nil || in < 0 || in >= len(s.ports) || s.taken.Has(in) ||
		h.Eth.Dst.IsMulticast() || h.Eth.Src.IsMulticast() || s.self.owns(h.Eth.Src) || s.self.owns(h.Eth.Dst) ||
		len(s.self.Addrs) != 0 && slices.Contains(s.self.Addrs, h.SrcAddr()) {
		return 0, false
	}
	to = s.fdb.lookup(now, h.Eth.Dst)
	if to < 0 || to == in || !s.ports[to].up || s.queued.Has(to) || !s.ports.allowed(in, to) || !leaves(to) {
		return 0, false
	}
	n := f.Len()
	s.ctx.Now = now
	s.fdb.learn(now, h.Eth.Src, in)
	s.flows.count(now, h, 1, n)
	p := &s.ports[in]
	p.RxPackets++
	p.RxBytes += uint64(n)
	p.RxRoCE++
	p = &s.ports[to]
	p.TxPackets++
	p.TxBytes += uint64(n)
	f.Port, f.Origin = to, int16(in+1)
	return to, true
}
