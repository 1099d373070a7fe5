package flows

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// restarts splits flows at a request with the first PSN if the answers behind it count messages from one again:
// then the queue pair number was used again, with the same PSNs.
func (b *Book) restarts() {
	for i := 0; i < len(b.Flows); i++ { // grows by what is split off
		f := b.Flows[i]
		at := b.restart(f)
		if at == 0 {
			continue
		}
		second := &Flow{
			Requester: f.Requester, Responder: f.Responder, QPN: f.QPN, Back: f.Back, First: f.First, last: f.last,
			Packets: slices.Clone(f.Packets[at:]), Reused: true, origin: &b.Packets[f.Packets[at]],
		}
		f.Packets = f.Packets[:at]
		for _, k := range second.Packets {
			b.Packets[k].Flow = second
		}
		b.Flows = slices.Insert(b.Flows, i+1, second)
	}
}

// restart returns where in f.Packets a second use of the number begins; 0 means nowhere. The answers of a flow that a
// fault has delayed or doubled can count back, so that it says nothing.
func (b *Book) restart(f *Flow) int {
	suspect, newest := 0, map[string]wire.PSN{} // by link
	if f.Touched(b) {
		return 0
	}
	for at, k := range f.Packets {
		p := &b.Packets[k]
		switch {
		case !p.IsAnswer():
			if at > 0 && p.PSN() == f.First && p.Opcode() == f.origin.Opcode() && p.Link == f.origin.Link {
				suspect = at
			}
		case !p.Opcode().Has(wire.HasAETH) || p.Verdict == dump.BadICRC:
		default:
			msn := wire.PSN(p.Header.AETH.MSN)
			before, counted := newest[p.Link]
			if counted && suspect > 0 && wire.Diff(msn, before) < 0 {
				return suspect
			}
			newest[p.Link] = msn
		}
	}
	return 0
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
