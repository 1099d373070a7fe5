package story

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// keyUse is what a capture shows of an R_Key: the range that requests with it have named.
type keyUse struct {
	requests int
	// first and end are the lowest address and the one behind the highest, of requests other than those of
	// failed transfers.
	first, end uint64
}

// target returns what memory a request names.
func target(p *flows.Packet) (key uint32, addr, length uint64, ok bool) {
	switch h := &p.Header; {
	case p.Opcode().Has(wire.HasRETH):
		return h.RETH.RKey, h.RETH.VA, uint64(h.RETH.Length), true
	case p.Opcode().Has(wire.HasAtomicETH):
		return h.AtomicETH.RKey, h.AtomicETH.VA, 8, true
	}
	return 0, 0, 0, false
}

// keysOf returns what the flows' requests show of R_Keys. Requests that a fatal NAK refused are left out.
func keysOf(b *flows.Book) map[uint32]*keyUse {
	refused := map[*flows.Flow]map[wire.PSN]bool{}
	for i := range b.Packets {
		p := &b.Packets[i]
		if s := p.Header.AETH.Syndrome; p.Flow != nil && p.IsAnswer() && p.Opcode().Has(wire.HasAETH) && s.IsNak() && s != wire.NakPSNSequence {
			if refused[p.Flow] == nil {
				refused[p.Flow] = map[wire.PSN]bool{}
			}
			refused[p.Flow][p.PSN()] = true
		}
	}
	keys := map[uint32]*keyUse{}
	for i := range b.Packets {
		p := &b.Packets[i]
		key, addr, length, ok := target(p)
		if !ok || p.IsAnswer() || p.Flow == nil || refused[p.Flow][p.PSN()] {
			continue
		}
		use := keys[key]
		if use == nil {
			use = &keyUse{first: addr, end: addr + length}
			keys[key] = use
		}
		use.requests++
		use.first, use.end = min(use.first, addr), max(use.end, addr+length)
	}
	return keys
}

// keyStory says what the capture shows of the R_Key of a refused transfer; "" if the transfer has none.
func (t *teller) keyStory(m *transfer) string {
	key, addr, length, ok := target(m.first)
	if !ok {
		return ""
	}
	use := t.keys[key]
	switch {
	case use == nil:
		return fmt.Sprintf("No other request of the capture has R_Key %#x.", key)
	case addr < use.first || addr+length > use.end:
		return fmt.Sprintf("%s with R_Key %#x had targets from %#x to %#x, and this one asks for %d bytes at %#x: it may reach out of the region.",
			plural(use.requests, "other request"), key, use.first, use.end-1, length, addr)
	}
	return fmt.Sprintf("%s with R_Key %#x had targets from %#x to %#x, and this one is within them: the right to the operation may be missing.",
		plural(use.requests, "other request"), key, use.first, use.end-1)
}
