package flows

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// restarts splits flows at requests with the first PSN if the answers behind them count messages from one again:
// then the queue pair number was used again, with the same PSNs.
func (b *Book) restarts() {
	all := make([]*Flow, 0, len(b.Flows))
	for _, f := range b.Flows {
		packets, cuts := f.Packets, b.cuts(f)
		all = append(all, f)
		for i, at := range cuts {
			end := len(packets)
			if i+1 < len(cuts) {
				end = cuts[i+1]
			}
			next := &Flow{
				Requester: f.Requester, Responder: f.Responder, QPN: f.QPN, Back: f.Back, First: f.First, last: f.last,
				Packets: packets[at:end:end], Reused: true, origin: &b.Packets[packets[at]],
			}
			for _, k := range next.Packets {
				b.Packets[k].Flow = next
			}
			all = append(all, next)
		}
		if len(cuts) > 0 {
			f.Packets = packets[:cuts[0]:cuts[0]]
		}
	}
	b.Flows = all
}

// cuts returns where in f.Packets further uses of the number begin. The answers of a flow that a fault has
// delayed or doubled can count back, so that it says nothing.
func (b *Book) cuts(f *Flow) (cuts []int) {
	if f.Touched(b) {
		return nil
	}
	suspect, begin, origin, newest := 0, 0, f.origin, map[string]wire.PSN{} // by link
	for at := 0; at < len(f.Packets); at++ {
		p := &b.Packets[f.Packets[at]]
		switch {
		case !p.IsAnswer():
			if at > begin && p.PSN() == f.First && p.Opcode() == origin.Opcode() && p.Link == origin.Link {
				suspect = at
			}
		case !p.Opcode().Has(wire.HasAETH) || p.Verdict == dump.BadICRC:
		default:
			msn := wire.PSN(p.Header.AETH.MSN)
			before, counted := newest[p.Link]
			if counted && suspect > begin && wire.Diff(msn, before) < 0 {
				cuts = append(cuts, suspect)
				begin, origin = suspect, &b.Packets[f.Packets[suspect]]
				clear(newest)
				at = suspect // what follows it is looked at again
				continue
			}
			newest[p.Link] = msn
		}
	}
	return cuts
}

// Touched reports whether a comment says that a fault, or the switch, has done something to a packet of f other than to
// drop it.
func (f *Flow) Touched(b *Book) bool {
	return slices.ContainsFunc(f.Packets, func(k int) bool { return len(b.Packets[k].Comments) > 0 && !b.Packets[k].Lost() })
}

// mtu finds the path MTU: the payload of most first and middle packets, or else what the connection
// manager has said.
func (f *Flow) mtu(b *Book) {
	counts, most := map[int]int{}, 0
	for _, k := range f.Packets {
		p := &b.Packets[k]
		if !p.Opcode().Is(wire.OpFirst | wire.OpMiddle) {
			continue
		}
		if counts[p.Length]++; counts[p.Length] > most {
			most, f.MTU = counts[p.Length], p.Length
		}
	}
}
