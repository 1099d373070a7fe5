package fault

import (
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// classes has each value of Match.Class that selects RoCEv2 packets, with a function that reports
// whether a packet belongs to the class.
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

// oneRMAClasses has each value of Match.Class that selects 1RMA messages, with a function that
// reports whether a message belongs to the class: all messages, those of a kind, or those of an
// operation.
var oneRMAClasses = map[string]func(*view) bool{
	"onerma":         func(*view) bool { return true },
	"onerma_request": func(v *view) bool { return v.kind == onerma.Request },
	"onerma_pull":    func(v *view) bool { return v.kind == onerma.Pull },
	"onerma_data":    func(v *view) bool { return v.kind == onerma.Data },
	"onerma_done":    func(v *view) bool { return v.kind == onerma.Done },
	"onerma_refusal": func(v *view) bool { return v.kind == onerma.Nack || v.kind == onerma.AuthFail },
	"onerma_read":    func(v *view) bool { return v.solo == onerma.Read },
	"onerma_write":   func(v *view) bool { return v.solo == onerma.Write },
	"onerma_rekey":   func(v *view) bool { return v.solo == onerma.Rekey },
}

func Classes() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(classes)), maps.Keys(oneRMAClasses))
	slices.Sort(names)
	return names
}

func isResponse(op wire.Opcode) bool {
	op = op.Plain()
	return op >= wire.RCReadResponseFirst && op <= wire.RCAtomicAck
}

func isRequest(op wire.Opcode) bool {
	s := op.Service()
	return (s < wire.ServiceCNP || s == wire.ServiceXRC) && !isResponse(op)
}

// empty reports whether the match selects every frame.
func (m *Match) empty() bool {
	return len(m.Opcodes) == 0 && m.Class == "" && m.QPN == nil && m.PSN == nil && m.PSNOffset == nil &&
		m.Transmission == 0 && !m.SamePacket
}

// matcher is a Match in a form that is fast to evaluate.
type matcher struct {
	any     bool
	opcodes []wire.Opcode
	class   func(*view) bool // the function of class Match.Class in classes; nil means that it has none there
	oneRMA  func(*view) bool // the function of class Match.Class in oneRMAClasses; nil means that it has none there
	m       Match
}

func newMatcher(m Match) matcher {
	return matcher{any: m.empty(), opcodes: m.Opcodes, class: classes[m.Class], oneRMA: oneRMAClasses[m.Class], m: m}
}

// gsi is the queue pair of management datagrams, which are of no connection.
const gsi wire.QPN = 1

// static checks the fields of the match that do not depend on earlier packets. first is the
// connection's first PSN.
func (k *matcher) static(v *view, first wire.PSN) bool {
	switch {
	case k.any:
		return true
	case k.oneRMA != nil:
		return v.oneRMA && k.oneRMA(v)
	case !v.roce,
		k.class != nil && !k.class(v),
		len(k.opcodes) != 0 && !slices.Contains(k.opcodes, v.op),
		k.m.QPN != nil && *k.m.QPN != v.qpn,
		k.m.PSN != nil && *k.m.PSN != v.psn,
		k.m.PSNOffset != nil && (v.psn != first.Add(*k.m.PSNOffset) || v.qpn == gsi && k.m.QPN == nil):
		return false
	}
	return true
}
