package swordbox

import (
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// sight is what an observing rule (rules.Definition.Observes) needs of a request: the rule, and the
// memory that the request names. look makes it before the switch decides about the request, because
// the decision may change the packet.
type sight struct {
	rule   *rules.Rule // nil means that no observing rule matches the request
	target handler.Target
}

// look returns the first rule of list that matches request f, with the memory that the request
// names. list has the observing rules of the server to which the request goes.
func look(list []*rules.Rule, f *wire.Frame) sight {
	va, length, rkey, ok := transform.Target(f)
	if !ok {
		return sight{}
	}
	return sight{rules.First(list, va, int(length), rkey), handler.Target{
		Opcode: f.BTH.Opcode, VA: va, Length: length, RKey: rkey, From: f.SrcAddr().Unmap(), To: f.BTH.DestQP,
	}}
}

// watched is what the program keeps for a flow if observing rules apply to the flow's server. It is
// a separate object because each packet of every flow reads flowRule, which must stay small.
type watched struct {
	rules []*rules.Rule
	shown shown
}

// observed decides what happens to a packet of a flow with observing rules. Unless the packet is
// dropped, as a damaged one is (guarded), observed shows it to the handlers of these rules. A
// retransmission is not shown again, except on a connection whose PSNs or path MTU the switch does
// not know yet.
func (p *Program) observed(c *pipeline.Ctx, e *flowRule, s *conntrack.Seen, q *pipeline.Parsed) pipeline.Verdict {
	if s.Response || s.Bad != conntrack.Fine || s.Class == conntrack.Duplicate {
		return p.decide(c, e, s, q)
	}
	var at sight
	expected, psn := s.Flow.Expected, q.BTH.PSN
	if s.Class == conntrack.Unsynced || !e.watch.shown.has(expected, psn) {
		at = look(e.watch.rules, &q.Frame)
	}
	v := p.decide(c, e, s, q)
	if v.Action == pipeline.ActDrop {
		return v
	}
	if s.Class == conntrack.Unsynced || e.watch.shown.add(expected, psn, s.Span) {
		p.show(c, at)
	}
	return v
}

// shown remembers which requests of a flow the handlers of observing rules have seen, so that each
// request is shown once. Requests may arrive at the switch out of order, and the network behind the
// switch may restore the order: then no request is retransmitted. So a request is shown when it
// arrives for the first time, also out of order, and not when it is retransmitted. A requester may
// also ask again for a part of a READ, with a PSN within the READ; that is not shown either.
type shown struct {
	base  wire.PSN // all requests with lower PSNs were shown, or sent before the switch saw the flow
	known bool     // true if base is valid
	ahead []extent // requests with higher PSNs than base that were shown
}

// extent is a range of PSNs that consecutive requests take. It begins at from and ends before end.
type extent struct{ from, end wire.PSN }

// maxAhead is how many extents shown.ahead remembers.
const maxAhead = 64

// move advances the base to the PSN `to`, unless the base is already there or beyond. Then it
// advances the base over the extents of h.ahead that it has reached, because the handlers have seen
// the requests in these extents, too.
func (h *shown) move(to wire.PSN) {
	if !h.known || wire.Diff(to, h.base) > 0 {
		h.base, h.known = to, true
	}
	for moved := true; moved; {
		moved = false
		h.ahead = slices.DeleteFunc(h.ahead, func(x extent) bool {
			if wire.Diff(x.from, h.base) > 0 {
				return false
			}
			if wire.Diff(x.end, h.base) > 0 {
				h.base, moved = x.end, true
			}
			return true
		})
	}
}

// has reports whether the handlers have already seen a request at psn, either this request or a
// READ of which it repeats a part. expected is the expected PSN of the flow: requests with lower
// PSNs count as seen.
func (h *shown) has(expected, psn wire.PSN) bool {
	h.move(expected)
	return wire.Diff(psn, h.base) < 0 || slices.ContainsFunc(h.ahead, func(x extent) bool {
		return wire.Diff(psn, x.from) >= 0 && wire.Diff(psn, x.end) < 0
	})
}

// add remembers a request that takes span PSNs; 0 means that their number is not known. The result
// is false if the request was remembered already, or if there is no room.
func (h *shown) add(expected, psn wire.PSN, span int) bool {
	if h.has(expected, psn) {
		return false
	}
	x := extent{psn, psn.Add(max(1, span))}
	if psn == h.base {
		h.move(x.end)
		return true
	}
	// Extents that overlap or touch x are merged into x.
	h.ahead = slices.DeleteFunc(h.ahead, func(o extent) bool {
		before, behind := o.end == psn, wire.Diff(o.from, psn) > 0 && wire.Diff(o.from, x.end) <= 0
		switch {
		case before:
			x.from = o.from
		case behind && wire.Diff(o.end, x.end) > 0:
			x.end = o.end
		}
		return before || behind
	})
	if len(h.ahead) == maxAhead {
		return false
	}
	h.ahead = append(h.ahead, x)
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
