package conform

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// met is a message of the connection manager: from src to dst, with the sender's number of the connection.
type met struct {
	src, dst netip.Addr
	id       mad.CommID
}

// managers finds messages of the connection manager that answer none. A capture that begins in the middle lacks
// requests; so an answer is held against the messages of the other direction only if there was a REQ before it
// with its sender's number or, for the first answer, any REQ.
func managers(b *flows.Book) (list []Violation) {
	reqs := map[met]bool{}
	seen := map[[2]netip.Addr]bool{}
	for i := range b.Packets {
		p := &b.Packets[i]
		switch m := p.Message.(type) {
		case *mad.REQ:
			reqs[met{p.Src, p.Dst, m.LocalID}] = true
			seen[[2]netip.Addr{p.Src, p.Dst}] = true
		case *mad.REP:
			if seen[[2]netip.Addr{p.Dst, p.Src}] && !reqs[met{p.Dst, p.Src, m.RemoteID}] {
				v, _ := broken(p, Answer, "the REP is for connection %#x, which no REQ has", uint32(m.RemoteID))
				list = append(list, v)
			}
			reqs[met{p.Src, p.Dst, m.LocalID}] = true
		case *mad.RTU:
			if reqs[met{p.Src, p.Dst, m.LocalID}] && !reqs[met{p.Dst, p.Src, m.RemoteID}] {
				v, _ := broken(p, Answer, "the RTU is for connection %#x, which no REP has", uint32(m.RemoteID))
				list = append(list, v)
			}
		}
	}
	return list
}
