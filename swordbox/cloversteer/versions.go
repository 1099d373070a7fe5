package cloversteer

import (
	"fmt"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// apply writes the operands that decision d has chosen into the CAS of an append (holes 26 and 32).
func (d *decision) apply(e *wire.AtomicETH) {
	e.VA = d.to.va
	if d.absorbed {
		e.Compare, e.SwapOrAdd = d.compare, d.swap
		return
	}
	if d.seen == d.version {
		return
	}
	e.Compare = d.compare
	e.SwapOrAdd = uint64(layout.Word(e.SwapOrAdd).WithEntryVersion(d.version))
}

// translate puts the version that the client expects into a response. It replaces only the version
// of the node to which the request was steered, which is never lower than the version that the
// client knows. If another node has taken that node's place in the pool meanwhile, the response
// shows a third version, and the client asks the metadata server. The response to an append that has
// succeeded tells the version of that node: the client gives its next nodes no lower one.
func (m *Machine) translate(c *pipeline.Ctx, d *decision, p *pipeline.Parsed) pipeline.Verdict {
	switch {
	case d.kind == kindAppend && d.absorbed && p.BTH.Opcode == wire.RCAtomicAck:
		return m.tellAbsorbed(c, d, p)
	case !d.steered || d.seen == d.version:
		return pipeline.Forward()
	case d.kind == kindAppend && p.BTH.Opcode == wire.RCAtomicAck:
		w := layout.Word(p.AtomicAck)
		if w.EntryVersion() != d.version {
			return pipeline.Forward()
		}
		if p.AtomicAck = uint64(w.WithEntryVersion(d.seen)); w == layout.Header(d.version) {
			p.AtomicAck = uint64(layout.Told(d.seen, d.version))
		}
	case d.kind == kindRead && p.BTH.Opcode == wire.RCReadResponseOnly && len(p.Payload) <= cap(m.scratch):
		b := append(m.scratch[:0], p.Payload...)
		if !d.format.Relabel(b, d.version, d.seen) {
			return pipeline.Forward()
		}
		p.Payload = b
	default:
		return pipeline.Forward()
	}
	return m.answer(c, d)
}

// answer counts a changed response, and returns the verdict with a text for captures.
func (m *Machine) answer(c *pipeline.Ctx, d *decision) pipeline.Verdict {
	m.stats.Answers++
	if !c.Observed() {
		return pipeline.Rewrite()
	}
	return pipeline.Rewrite().With(fmt.Sprintf("version %d shown as %d", d.version, d.seen))
}
