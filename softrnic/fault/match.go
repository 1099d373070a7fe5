package fault

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// classes has the values of Match.Class and what each selects.
var classes = map[string]func(*view) bool{
	"roce":          func(*view) bool { return true },
	"request":       func(v *view) bool { return isRequest(v.op) },
	"response":      func(v *view) bool { return isResponse(v.op) },
	"ack":           func(v *view) bool { return v.op == wire.RCAck && v.syndrome.IsAck() },
	"nak":           func(v *view) bool { return v.op == wire.RCAck && v.syndrome.IsNak() },
	"rnr":           func(v *view) bool { return v.op == wire.RCAck && v.syndrome.IsRNR() },
	"read_response": func(v *view) bool { return v.op >= wire.RCReadResponseFirst && v.op <= wire.RCReadResponseOnly },
	"atomic":        func(v *view) bool { return v.op.Is(wire.OpAtomic) },
	"cnp":           func(v *view) bool { return v.op == wire.CNP },
}

// Classes returns the values of Match.Class.
func Classes() []string {
	names := make([]string, 0, len(classes))
	for name := range classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func isResponse(op wire.Opcode) bool { return op >= wire.RCReadResponseFirst && op <= wire.RCAtomicAck }

func isRequest(op wire.Opcode) bool { return op.Service() < wire.ServiceCNP && !isResponse(op) }

// empty reports whether the match selects every frame.
func (m *Match) empty() bool {
	return len(m.Opcodes) == 0 && m.Class == "" && m.QPN == nil && m.PSN == nil && m.PSNOffset == nil &&
		m.Transmission == 0 && !m.SamePacket
}

// matcher is a Match in a form that is fast to evaluate.
type matcher struct {
	any     bool
	opcodes []wire.Opcode
	class   func(*view) bool
	m       Match
}

func newMatcher(m Match) matcher {
	return matcher{any: m.empty(), opcodes: m.Opcodes, class: classes[m.Class], m: m}
}

// static checks the fields of the match that do not depend on earlier packets. first is the
// connection's first PSN.
func (k *matcher) static(v *view, first wire.PSN) bool {
	switch {
	case k.any:
		return true
	case !v.roce,
		k.class != nil && !k.class(v),
		len(k.opcodes) != 0 && !slices.Contains(k.opcodes, v.op),
		k.m.QPN != nil && *k.m.QPN != v.qpn,
		k.m.PSN != nil && *k.m.PSN != v.psn,
		k.m.PSNOffset != nil && v.psn != first.Add(*k.m.PSNOffset):
		return false
	}
	return true
}
