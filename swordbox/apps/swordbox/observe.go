package swordbox

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// sight is what an observing rule needs of a request: the rule, and the memory that the request
// names. look makes it before the switch decides about the request, because the decision may change
// the packet.
type sight struct {
	rule   *rules.Rule // nil: no observing rule matches the request
	target handler.Target
}

// look returns the first rule of list that matches a request, with the memory that the request
// names. list are the observing rules of its server.
func look(list []*rules.Rule, f *wire.Frame) sight {
	va, length, rkey, ok := memory(f)
	if !ok {
		return sight{}
	}
	return sight{rules.First(list, va, int(length), rkey), handler.Target{
		Opcode: f.BTH.Opcode, VA: va, Length: length, RKey: rkey, From: f.SrcAddr().Unmap(), To: f.BTH.DestQP,
	}}
}

// watched is what the program keeps for a flow to whose responder observing rules apply. It is a
// separate object because each packet of every flow reads flowRule, which must stay small.
type watched struct {
	rules []*rules.Rule
	early early
}

// observed decides what happens to a packet of a flow with observing rules. Unless the packet is
// dropped, observed shows it to the handlers of these rules. It does not show a retransmission
// again, except on a connection whose PSNs the switch does not know yet.
func (p *Program) observed(c *pipeline.Ctx, e *flowRule, s *conntrack.Seen, q *pipeline.Parsed) pipeline.Verdict {
	if s.Response || s.Bad != conntrack.Fine || s.Class == conntrack.Duplicate {
		return p.decide(c, e, s, q)
	}
	if !q.Intact() {
		return pipeline.Forward() // a damaged packet must not count, and its PSN must not keep its retransmission from counting
	}
	var at sight
	expected, psn := s.Flow.Expected, q.BTH.PSN
	if s.Class == conntrack.Unsynced || !e.watch.early.has(expected, psn) {
		at = look(e.watch.rules, &q.Frame)
	}
	v := p.decide(c, e, s, q)
	if v.Action == pipeline.ActDrop {
		return v
	}
	if s.Class != conntrack.Ahead {
		p.show(c, at)
	} else if e.watch.early.add(expected, psn) {
		p.show(c, at)
	}
	return v
}

// early remembers requests of a flow that have overtaken others before they reached the switch.
// Behind the switch they may be in order again: then the receiver accepts them, and they never come
// again. If they come again, the switch must not show them twice.
type early struct {
	base wire.PSN // the expected PSN at the last call
	bits uint64   // bit i is for the PSN base + i
}

// move makes the expected PSN the new base.
func (e *early) move(expected wire.PSN) {
	if d := wire.Diff(expected, e.base); d < 0 || d >= 64 {
		e.bits = 0
	} else {
		e.bits >>= uint(d)
	}
	e.base = expected
}

// has reports whether early remembers the request with a PSN.
func (e *early) has(expected, psn wire.PSN) bool {
	e.move(expected)
	d := wire.Diff(psn, expected)
	return d >= 0 && d < 64 && e.bits>>uint(d)&1 != 0
}

// add remembers a request. false: it was remembered already, or its PSN is too far ahead.
func (e *early) add(expected, psn wire.PSN) bool {
	d := wire.Diff(psn, expected)
	if d < 0 || d >= 64 || e.has(expected, psn) {
		return false
	}
	e.bits |= 1 << uint(d)
	return true
}

// show hands a request to the handlers of its observing rule.
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
