package conform

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Violation is a packet that breaks a rule.
type Violation struct {
	Packet *flows.Packet
	Rule   Rule
	// Why says what is wrong, like "PSN +4 is missing before it, and #9 acknowledges it".
	Why string
}

// place is a flow, or the datagrams between two hosts, at one tap.
type place struct {
	flow     *flows.Flow
	src, dst netip.Addr
	tap      string
}

// Check returns the first violation of each flow at each tap, and of the packets without a flow between two
// hosts, in the order of the capture. It has called b.Sort.
func Check(b *flows.Book) []Violation {
	found := map[place]Violation{}
	report := func(at place, v Violation) {
		if old, ok := found[at]; !ok || v.Packet.Number < old.Packet.Number {
			found[at] = v
		}
	}
	damage := false // a fault changes bits
	for i := range b.Packets {
		p := &b.Packets[i]
		damage = damage || slices.ContainsFunc(p.Comments, damages)
		if v, bad := alone(p); bad && (!damage || !fragile(v.Rule)) {
			report(place{p.Flow, p.Src, p.Dst, p.Tap()}, v)
		}
	}
	for _, f := range b.Flows {
		touched := f.Touched(b)
		for tap, list := range taps(b, f) {
			if v, bad := walk(f, list, touched); bad {
				first := list[0]
				report(place{f, first.Src, first.Dst, tap}, v)
			}
		}
	}
	for _, v := range strangers(b) {
		report(place{nil, v.Packet.Src, v.Packet.Dst, v.Packet.Tap()}, v)
	}
	all := make([]Violation, 0, len(found))
	for _, v := range found {
		all = append(all, v)
	}
	slices.SortFunc(all, func(x, y Violation) int { return cmp.Compare(x.Packet.Number, y.Packet.Number) })
	return slices.CompactFunc(all, func(x, y Violation) bool { return x.Packet == y.Packet })
}

// taps returns the packets of f at each tap.
func taps(b *flows.Book, f *flows.Flow) map[string][]*flows.Packet {
	m := map[string][]*flows.Packet{}
	for _, k := range f.Packets {
		p := &b.Packets[k]
		m[p.Tap()] = append(m[p.Tap()], p)
	}
	return m
}

// walk holds the packets of a flow at one tap against the rules of requester and responder.
func walk(f *flows.Flow, list []*flows.Packet, touched bool) (Violation, bool) {
	w := newWalker(f, touched)
	w.service = serving(list)
	for _, p := range list {
		var v Violation
		var bad bool
		switch {
		case p.Verdict == dump.BadICRC:
		case p.IsAnswer(): // also one that is lost behind the tap
			v, bad = w.answer(p)
		default:
			v, bad = w.request(p)
		}
		if bad {
			return v, true
		}
	}
	return Violation{}, false
}

// broken makes a violation.
func broken(p *flows.Packet, r Rule, format string, args ...any) (Violation, bool) {
	return Violation{Packet: p, Rule: r, Why: fmt.Sprintf(format, args...)}, true
}

// none is no violation.
func none() (Violation, bool) { return Violation{}, false }

// strangers finds answers to a queue pair to which no answer of a flow goes, though the requests of the other
// direction are captured.
func strangers(b *flows.Book) (list []Violation) {
	type hosts struct {
		tap      string
		src, dst netip.Addr
	}
	type end struct {
		src, dst netip.Addr
		qpn      wire.QPN
	}
	asked, known := map[hosts]bool{}, map[end]bool{}
	for _, f := range b.Flows {
		known[end{f.Responder, f.Requester, f.Back}] = true
	}
	for i := range b.Packets {
		p := &b.Packets[i]
		switch {
		case !p.Ordered() || !p.Opcode().Reliable():
		case !p.IsAnswer():
			asked[hosts{p.Tap(), p.Src, p.Dst}] = true
		case p.Flow == nil && arrives(p) && asked[hosts{p.Tap(), p.Dst, p.Src}] && !known[end{p.Src, p.Dst, p.Header.BTH.DestQP}]:
			v, _ := broken(p, Unsent, "no request that fits an answer to queue pair %#x was sent", uint32(p.Header.BTH.DestQP))
			list = append(list, v)
		}
	}
	return append(list, managers(b)...)
}
