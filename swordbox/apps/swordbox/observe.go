package swordbox

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
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
	t, ok := target(f)
	if !ok {
		return sight{}
	}
	return sight{rules.First(list, t.VA, int(t.Length), t.RKey), t}
}

// observed decides about a packet of a flow for which observing rules exist, and shows the packet
// to their handler unless it is dropped. A retransmission is not shown again, except on a
// connection whose PSNs the switch does not know yet.
func (p *Program) observed(c *pipeline.Ctx, e *flowRule, s *conntrack.Seen, q *pipeline.Parsed) pipeline.Verdict {
	var at sight
	fresh := s.Class == conntrack.New || s.Class == conntrack.Unsynced
	if fresh && s.Bad == conntrack.Fine && !s.Response {
		at = look(e.watch, &q.Frame)
	}
	v := p.decide(c, e, s, q)
	if v.Action != pipeline.ActDrop {
		p.show(c.Now, at)
	}
	return v
}

// show hands a request to the handler of its observing rule.
func (p *Program) show(now clock.Time, at sight) {
	if at.rule == nil {
		return
	}
	for _, o := range p.parts.observers {
		if o.Kind().Serves(at.rule) {
			o.Observe(now, at.rule, at.target)
		}
	}
}
