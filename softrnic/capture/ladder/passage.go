package ladder

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxInside is how many packets can be inside of the switch: the last that went up, and have not come down.
const maxInside = 256

// passage finds, for a packet from the switch, the same packet on its way to the switch.
type passage struct{ inside []*flows.Packet }

// add notes p if it goes up. If it comes down, add sets Passed and Changes of its row.
func (s *passage) add(p *flows.Packet, row *Row) {
	host, d := flows.Side(p.Link)
	switch {
	case d == flows.Up && !p.Lost():
		if len(s.inside) == maxInside {
			s.inside = append(s.inside[:0], s.inside[1:]...)
		}
		s.inside = append(s.inside, p)
	case d == flows.Down:
		i := slices.IndexFunc(s.inside, func(up *flows.Packet) bool { return unchanged(up, p) })
		if i < 0 {
			i = s.rewritten(p, host)
		}
		if i < 0 {
			return
		}
		row.Passed, row.Changes = s.inside[i].Number, changes(s.inside[i], p)
		s.inside = append(s.inside[:i], s.inside[i+1:]...)
	}
}

func unchanged(up, down *flows.Packet) bool {
	return up.Src == down.Src && up.Dst == down.Dst && up.Header.BTH == down.Header.BTH && up.Length == down.Length && up.Sum == down.Sum
}

// rewritten returns the place of the packet from which the switch has made p, which goes to host: the
// comments of both name the other's link, and p's has the PSN before the change.
func (s *passage) rewritten(p *flows.Packet, host string) int {
	for i, up := range slices.Backward(s.inside) {
		if len(p.Comments) == 0 && len(up.Comments) == 0 {
			continue
		}
		from, _ := flows.Side(up.Link)
		psn := fmt.Sprintf("psn %d→%d", up.PSN(), p.PSN())
		if has(p.Comments, "from "+from) && has(p.Comments, psn) || has(up.Comments, "to "+host) && has(up.Comments, psn) {
			return i
		}
	}
	return -1
}

func has(comments []string, text string) bool {
	return slices.ContainsFunc(comments, func(c string) bool { return strings.Contains(c, text) })
}

// changes lists the fields that the switch has rewritten, with the value before and behind it.
func changes(up, down *flows.Packet) (list []string) {
	field := func(name string, before, behind string) {
		if before != behind {
			list = append(list, name+" "+before+" → "+behind)
		}
	}
	hex := func(n uint64) string { return "0x" + strconv.FormatUint(n, 16) }
	a, b := &up.Header, &down.Header
	field("opcode", a.BTH.Opcode.String(), b.BTH.Opcode.String())
	field("from", up.Src.String(), down.Src.String())
	field("to", up.Dst.String(), down.Dst.String())
	field("qp", hex(uint64(a.BTH.DestQP)), hex(uint64(b.BTH.DestQP)))
	field("psn", hex(uint64(a.BTH.PSN)), hex(uint64(b.BTH.PSN)))
	both := func(h wire.Headers) bool { return a.BTH.Opcode.Has(h) && b.BTH.Opcode.Has(h) }
	if both(wire.HasRETH) {
		field("address", hex(a.RETH.VA), hex(b.RETH.VA))
		field("rkey", hex(uint64(a.RETH.RKey)), hex(uint64(b.RETH.RKey)))
	}
	if both(wire.HasAETH) {
		field("msn", strconv.Itoa(int(a.AETH.MSN)), strconv.Itoa(int(b.AETH.MSN)))
		field("syndrome", a.AETH.Syndrome.String(), b.AETH.Syndrome.String())
	}
	if both(wire.HasAtomicAckETH) {
		field("original", hex(a.AtomicAck), hex(b.AtomicAck))
	}
	if up.Length != down.Length {
		field("payload", strconv.Itoa(up.Length), strconv.Itoa(down.Length))
	}
	return list
}
