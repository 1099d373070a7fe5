package swordbox

import (
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// parts lists the handlers of a program, by the optional interfaces that they implement.
type parts struct {
	all       []handler.Handler
	machines  []handler.Machine
	observers []handler.Observer
	queuers   []handler.Queuer
	takers    []handler.Taker
	bypass    []handler.Bypasser
	// others lists, for each machine, the bypassers that must see the packets of its flows: all
	// bypassers except the machine itself. The entry for nil is for flows without a machine.
	others  map[handler.Machine][]handler.Bypasser
	strays  []handler.Strayer
	markers []pipeline.Marker
	pickers []picker
	// fallback is the handler that uses the switch's connections that no picker claims; nil means
	// that there is none.
	fallback handler.Connector
	rest     handler.Machine // fallback as a machine; nil means that it is no machine
}

// picker is a handler that claims some of the switch's connections.
type picker struct {
	handler.Picker
	machine handler.Machine // the Picker as a handler.Machine; nil if it is none
}

func partsOf(list []handler.Handler) parts {
	p := parts{
		all: list, machines: of[handler.Machine](list), observers: of[handler.Observer](list), queuers: of[handler.Queuer](list),
		takers: of[handler.Taker](list), bypass: of[handler.Bypasser](list), strays: of[handler.Strayer](list), markers: of[pipeline.Marker](list),
	}
	for _, h := range list {
		switch c := h.(type) {
		case handler.Picker:
			m, _ := h.(handler.Machine)
			p.pickers = append(p.pickers, picker{c, m})
		case handler.Connector:
			p.fallback = c
			p.rest, _ = h.(handler.Machine)
		}
	}
	p.others = map[handler.Machine][]handler.Bypasser{nil: p.bypass}
	for _, m := range p.machines {
		p.others[m] = slices.DeleteFunc(slices.Clone(p.bypass), func(b handler.Bypasser) bool { return b == m })
	}
	return p
}

// of returns the handlers of a list that implement interface T, in their order.
func of[T any](list []handler.Handler) (out []T) {
	for _, h := range list {
		if t, ok := h.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

func (p *parts) setRules(set *rules.Set) {
	for _, u := range of[handler.RuleUser](p.all) {
		u.SetRules(set)
	}
}

// machineFor returns the machine that carries out a rule; nil means that there is none.
func (p *parts) machineFor(r *rules.Rule) handler.Machine {
	i := slices.IndexFunc(p.machines, func(m handler.Machine) bool { return m.Kind().Serves(r) })
	if i < 0 {
		return nil
	}
	return p.machines[i]
}

// draining reports whether a handler still finishes the work of a removed rule (handler.Bypasser).
// Until it has, it must see the requests of all flows, also of flows for which no handler has a
// rule.
func (p *parts) draining() bool { return slices.ContainsFunc(p.bypass, handler.Bypasser.Draining) }

// strict reports whether the switch must drop requests with unknown opcodes for machine m.
func strict(m handler.Machine) bool {
	_, ok := m.(handler.Strict)
	return ok
}

// strictFor reports whether a strict machine (handler.Strict) carries out one of the rules in list.
func (p *parts) strictFor(list []*rules.Rule) bool {
	return slices.ContainsFunc(list, func(r *rules.Rule) bool { return strict(p.machineFor(r)) })
}

// stray is called for a request that belongs to no tracked flow. If the request matches a rule,
// stray passes it to every handler that implements handler.Strayer.
func (p *parts) stray(set *rules.Set, q *pipeline.Parsed) {
	if len(p.strays) == 0 {
		return
	}
	r := ruleFor(set.Lookup(q.DstAddr()), &q.Frame)
	if r == nil {
		return
	}
	for _, s := range p.strays {
		s.Stray(r, &q.Frame)
	}
}

// user returns the handler that uses the switch's connection whose key is k, or nil if there is
// none.
func (p *parts) user(k switchconn.Key) handler.Connector {
	for _, u := range p.pickers {
		if u.Uses(k) {
			return u.Picker
		}
	}
	return p.fallback
}

// owned handles a packet that is addressed to the switch: it passes the packet to the handler that
// uses the connection to which the packet belongs. If there is none, it drops the packet.
func (p *parts) owned(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	m := p.rest
	for i := range p.pickers {
		if u := &p.pickers[i]; u.Mine(q.BTH.DestQP) {
			m = u.machine
		}
	}
	if m != nil {
		return m.Owned(c, q)
	}
	return pipeline.Drop(ReasonNotMine)
}

// Marked passes a packet of the switch that an egress queue has marked to the handlers that may have sent it.
func (p *Program) Marked(now clock.Time, f *wire.Frame) {
	for _, m := range p.parts.markers {
		m.Marked(now, f)
	}
}

// wants lists the connections that the rules need, in the order of the rules.
func (p *parts) wants(set *rules.Set) []handler.Wanted {
	var list []handler.Wanted
	for i := range set.All() {
		r := &set.All()[i]
		if c, ok := p.machineFor(r).(handler.Connector); ok {
			list = append(list, c.Wants(r)...)
		}
	}
	return list
}

// ruleFor returns the first rule of list that a request matches. It returns nil if none does, or if
// the packet names no memory.
func ruleFor(list []*rules.Rule, f *wire.Frame) *rules.Rule {
	va, length, rkey, ok := transform.Target(f)
	if !ok {
		return nil
	}
	return rules.First(list, va, int(length), rkey)
}

// moving returns the ID of the only rule for the flow's server that a machine carries out; "" if there are
// several, of which a response does not tell.
func (e *flowRule) moving() (id string) {
	for _, r := range e.rules {
		switch {
		case r.Action == rules.Track:
		case id != "":
			return ""
		default:
			id = r.ID
		}
	}
	return id
}
