package flows

import "github.com/rdmalab/rdmalab/softrnic/wire"

// Middle returns the flows of which the capture lacks the beginning: their first packet is an answer, or a request
// that goes on with a message. Where a flow begins with a whole message, the capture does not show whether there
// were others before. Sort was called.
func (b *Book) Middle() (list []*Flow) {
	for _, f := range b.Flows {
		if len(f.Packets) == 0 {
			continue
		}
		if p := &b.Packets[f.Packets[0]]; p.IsAnswer() || p.Opcode().Is(wire.OpMiddle|wire.OpLast) {
			list = append(list, f)
		}
	}
	return list
}
