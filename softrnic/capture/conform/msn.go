package conform

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// msnRange is what is known of the MSN with which the flow has begun: it is in [low, high], relative to zero,
// the first one in the capture.
type msnRange struct {
	known     bool
	zero      uint32
	low, high int
	newest    int
}

// counted holds the MSN of an answer against the messages that have arrived: it counts at least those that
// the answer acknowledges, and at most all. It never goes back.
func (w *walker) counted(p *flows.Packet, at int, nak bool) (Violation, bool) {
	if !p.Opcode().Has(wire.HasAETH) {
		return none()
	}
	m := &w.msn
	if !m.known {
		*m = msnRange{known: true, zero: p.Header.AETH.MSN, low: -flows.Far, high: flows.Far, newest: -flows.Far}
	}
	msn := int(wire.Diff(wire.PSN(p.Header.AETH.MSN), wire.PSN(m.zero)))
	least, most := w.ended(at, nak || p.Opcode().Plain() == wire.RCReadResponseFirst), w.messages[w.whole]
	low, high := max(m.low, msn-most), min(m.high, msn-least)
	switch {
	case low > high:
		return broken(p, MSN, "it is %d; the messages before it make it %d to %d", p.Header.AETH.MSN,
			int(m.zero)+m.low+least, int(m.zero)+m.high+most)
	case msn < m.newest && !w.touched:
		return broken(p, MSN, "it is %d, and was %d", p.Header.AETH.MSN, int(m.zero)+m.newest)
	}
	m.low, m.high, m.newest = low, high, max(m.newest, msn)
	return none()
}

// ended returns how many messages end up to the relative PSN at, or before the request with it.
func (w *walker) ended(at int, before bool) int {
	i, found := slices.BinarySearchFunc(w.reqs[:w.whole], at, func(r *request, at int) int { return r.at - at })
	switch {
	case found && !before:
		i++
	case !found && i > 0 && before && w.reqs[i-1].end() > at:
		i--
	}
	return w.messages[i]
}
