package swordbox

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// sight is what an observing rule needs of a request: the rule and the memory that the request
// names. It is taken before the switch decides about the request, because the decision may change
// the packet.
type sight struct {
	rule   *rules.Rule // nil: no observing rule matches the request
	target handler.Target
}

// look finds the observing rule of a request among those of its server.
func look(list []*rules.Rule, f *wire.Frame) sight {
	va, length, rkey, ok := memory(f)
	if !ok {
		return sight{}
	}
	return sight{rules.First(list, va, int(length), rkey), handler.Target{
		Opcode: f.BTH.Opcode, VA: va, Length: length, RKey: rkey, From: f.SrcAddr().Unmap(), To: f.BTH.DestQP,
	}}
}

// observed decides about a packet of a flow for which observing rules exist, and shows the packet
// to their handler unless it is dropped. A retransmission is not shown again, except on a
// connection whose PSNs the switch does not know yet.
func (p *Program) observed(c *pipeline.Ctx, e *flowRule, s *conntrack.Seen, q *pipeline.Parsed) pipeline.Verdict {
	if s.Response || s.Bad != conntrack.Fine || s.Class == conntrack.Duplicate {
		return p.decide(c, e, s, q)
	}
	if !q.Intact() {
		return pipeline.Forward() // it must neither count nor, by its PSN, keep its retransmission from counting
	}
	var at sight
	expected, psn := s.Flow.Expected, q.BTH.PSN
	if s.Class == conntrack.Unsynced || !e.early.has(expected, psn) {
		at = look(e.watch, &q.Frame)
	}
	v := p.decide(c, e, s, q)
	if v.Action == pipeline.ActDrop {
		return v
	}
	if s.Class != conntrack.Ahead {
		p.show(c, at)
	} else if e.early.add(expected, psn) {
		p.show(c, at)
	}
	return v
}

// early notes requests of a flow that have overtaken others on their way to the switch. They may
// overtake nothing behind it, so that their receiver takes them and they never come again; and if
// they come again, they must not be shown twice.
type early struct {
	base wire.PSN // the expected PSN at the last use
	bits uint64   // bit i is for the PSN base + i
}

// move makes the expected PSN the base.
func (e *early) move(expected wire.PSN) {
	if d := wire.Diff(expected, e.base); d < 0 || d >= 64 {
		e.bits = 0
	} else {
		e.bits >>= uint(d)
	}
	e.base = expected
}

// has reports whether the request with a PSN was noted.
func (e *early) has(expected, psn wire.PSN) bool {
	e.move(expected)
	d := wire.Diff(psn, expected)
	return d >= 0 && d < 64 && e.bits>>uint(d)&1 != 0
}

// add notes a request; false: it was noted before, or it is too far ahead to be noted.
func (e *early) add(expected, psn wire.PSN) bool {
	d := wire.Diff(psn, expected)
	if d < 0 || d >= 64 || e.has(expected, psn) {
		return false
	}
	e.bits |= 1 << uint(d)
	return true
}

// show hands a request to the handler of its observing rule.
func (p *Program) show(c *pipeline.Ctx, at sight) {
	if at.rule == nil {
		return
	}
	for _, o := range p.parts.observers {
		if o.Kind().Serves(at.rule) {
			o.Observe(c, at.rule, at.target)
		}
	}
}
