package swordbox

import (
	"reflect"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Report is the state of the program for an operator.
type Report struct {
	// Flows lists the flows that the switch tracks.
	Flows []conntrack.Info `json:"rows"`
	// Handlers has the report of each handler.
	Handlers []handler.Info `json:"machines"`
	// Dialed lists the switch's connections.
	Dialed []switchconn.Info `json:"dialed"`
	// Former lists the stale flows: those that a former incarnation of the switch has moved, and
	// that package staleflows has not forgotten yet.
	Former []journal.Flow `json:"former"`
}

func (p *Program) Report(now clock.Time) Report {
	r := Report{Flows: p.track.List(now), Handlers: []handler.Info{}, Dialed: []switchconn.Info{}, Former: []journal.Flow{}}
	for _, h := range p.parts.all {
		info := h.Info(now)
		for _, l := range h.Kind().Listings {
			if list := l.Items(h, now); list != nil {
				if info.Lists == nil {
					info.Lists = make(map[string]any)
				}
				info.Lists[l.Name] = list
			}
		}
		r.Handlers = append(r.Handlers, info)
	}
	if o := p.cfg.Own; o != nil {
		r.Dialed = append(r.Dialed, o.dialer.List()...)
		r.Former = append(r.Former, o.former.Flows()...)
	}
	return r
}

// Counters lists the counters of the program and of its handlers.
func (p *Program) Counters(now clock.Time) []handler.Group {
	groups := []handler.Group{{Name: "tracking", Counters: numbers(p.track.Stats())}}
	for _, h := range p.parts.all {
		groups = append(groups, handler.Group{Name: h.Kind().Name, Counters: h.Info(now).Counters})
	}
	if o := p.cfg.Own; o != nil {
		groups = append(groups,
			handler.Group{Name: "dialing", Counters: numbers(o.dialer.Stats())},
			handler.Group{Name: "restart", Counters: numbers(o.former.Stats())},
			handler.Group{Name: "record", Counters: numbers(o.journal.Stats())})
	}
	return groups
}

// numbers lists the fields of a struct of counters. The name of a counter is its JSON name or, if
// it has none, its Go name.
func numbers(stats any) []handler.Counter {
	v := reflect.ValueOf(stats)
	var list []handler.Counter
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, help := f.Tag.Get("json"), f.Tag.Get("help")
		if name == "" {
			name = string(f.Name[0]|0x20) + f.Name[1:]
		}
		switch n := v.Field(i); {
		case n.CanUint():
			list = append(list, handler.Counter{Name: name, Value: n.Uint(), Help: help})
		case n.CanInt():
			list = append(list, handler.Counter{Name: name, Value: uint64(n.Int()), Help: help})
		}
	}
	return list
}

// Names of the program's tables that can be cleared.
const (
	tableFlows = "rows"
	tableWords = "words"
)

// Tables lists the tables of the program and of its handlers, and how full they are.
func (p *Program) Tables(now clock.Time) []handler.Table {
	words, moved, flows := 0, 0, p.track.MaxFlows()
	for _, h := range p.parts.all {
		info := h.Info(now)
		words += len(info.Words)
		moved += len(info.Flows)
	}
	list := []handler.Table{
		{Name: tableFlows, Doc: "tracked flows, two for each connection", Used: len(p.track.List(now)), Max: flows, Clear: true},
		{Name: "moved", Doc: "flows of which requests were moved", Used: moved, Max: flows},
		{Name: tableWords, Doc: "words of memory under rules", Used: words, Max: p.maxWords(), Clear: true},
		{Name: "shared", Doc: "connections of the switch to memory servers"},
	}
	if o := p.cfg.Own; o != nil {
		s, shared := o.journal.Stats(), &list[len(list)-1]
		shared.Used, shared.Max = len(o.dialer.List()), switchconn.MaxShared
		list = append(list,
			handler.Table{Name: "stale flows", Doc: "flows that an earlier incarnation of the switch has moved, and that it refuses", Used: s.Flows, Max: journal.MaxFlows},
			handler.Table{Name: "record conns", Doc: "connections that a restarted switch ends", Used: s.Conns, Max: journal.MaxConns})
	}
	for _, t := range of[handler.Tabler](p.parts.all) {
		list = append(list, t.Tables()...)
	}
	return list
}

// ClearTable empties a table of the program or of a handler, and returns how many entries it had.
// ok is false if there is no table of this name that can be cleared. Flows with moved requests stay
// in the table of flows.
func (p *Program) ClearTable(name string) (n int, ok bool) {
	switch name {
	case tableFlows:
		p.forget = true // the next Tick forgets the flows, because machines need a Ctx when a flow ends
		return p.track.Clearable(), true
	case tableWords:
		for _, f := range of[handler.WordForgetter](p.parts.all) {
			n += f.ForgetWords()
		}
		return n, true
	}
	for _, t := range of[handler.Tabler](p.parts.all) {
		for _, mine := range t.Tables() {
			if mine.Name == name && mine.Clear {
				return t.ClearTable(name), true
			}
		}
	}
	return 0, false
}

// maxWords returns the largest number of words that the first handler with a table of words can
// know; 0 if no handler has such a table.
func (p *Program) maxWords() int {
	for _, h := range p.parts.all {
		for _, t := range h.Spec().Tables {
			if t.Name == tableWords {
				return t.Entries
			}
		}
	}
	return 0
}

// States calls visit for the state of each entry of the state tables: the flows, the switch's
// connections, and the entries of handlers that implement handler.Stater. It does not allocate.
func (p *Program) States(visit func(table string, entry uint32, state string)) {
	p.track.States(visit)
	if o := p.cfg.Own; o != nil {
		o.dialer.States(visit)
	}
	for _, h := range p.parts.all {
		if s, ok := h.(handler.Stater); ok {
			s.States(visit)
		}
	}
}

// Widths in bits of the fields of tables and registers.
const (
	addrBits  = 128
	qpnBits   = 24
	psnBits   = 24
	macBits   = 48
	portBits  = 8 // number of a port of the switch
	timeBits  = 32
	flowKey   = 2*addrBits + qpnBits
	ruleValue = 8 + 1 + 6 + 8 // number of the rule, mode, shard bits, depth
)

// Spec declares the state of connection tracking and of the handlers, and what they need of a chip.
// A tracked flow is a table entry, which gives the flow's number, and registers with this number as
// index.
func (p *Program) Spec() pipeline.Spec {
	s := pipeline.Spec{
		Name: Name, Doc: "tracks connections and serialises the requests that rules select",
		Modes: []string{rules.Published.String(), rules.Hardened.String()},
		Parts: []pipeline.Part{p.tracking()},
	}
	for _, h := range p.parts.all {
		part, kind := h.Spec(), h.Kind()
		part.Name, part.Mode = kind.Name, kind.Mode.String()
		s.Parts = append(s.Parts, part)
	}
	return s
}

// tracking declares the state of connection tracking, which the program needs in all modes.
func (p *Program) tracking() pipeline.Part {
	flows, learning := p.track.MaxFlows(), p.track.MaxLearning()
	t := pipeline.Part{
		Name: "tracking",
		Tables: []pipeline.TableSpec{
			{Name: "flows", KeyBits: flowKey, ValueBits: 16, Entries: flows, Learned: true},
			// The address of a host, and the port at which its packets must arrive.
			{Name: "hosts", KeyBits: addrBits, ValueBits: portBits + 1, Entries: p.track.MaxHosts(pipeline.MaxPorts), Learned: true},
			// Server, R_Key, and the range as two numbers, for a ternary or range match.
			{Name: "rules", KeyBits: addrBits + 32 + 2*64, ValueBits: ruleValue, Entries: rules.MaxRules},
		},
		Registers: []pipeline.RegisterSpec{
			// Expected, acknowledged, first and highest PSN.
			{Name: "flow psn", Width: 4 * psnBits, Entries: flows},
			// State, flags, MTU, peer, generation.
			{Name: "flow state", Width: 3 + 8 + 3 + 14 + 32, Entries: flows},
			// How to reach the responder: MAC addresses, UDP source port, P_Key, ingress port.
			{Name: "flow path", Width: 2*macBits + 16 + 16 + portBits, Entries: flows},
			{Name: "flow last", Width: timeBits, Entries: flows},
			// For a flow whose other direction is not known: 32 runs of requests (PSN, length,
			// kind), and a bit for each flow that cannot be the other direction. A chip would leave
			// this to its control plane.
			{Name: "learning", Width: 32*(psnBits+24+2) + learning, Entries: learning},
		},
		Needs: []pipeline.Need{{Kind: pipeline.NeedTimer, What: "connections that are forgotten, or kept from being reused", Count: flows}},
	}
	if p.cfg.Own != nil {
		t.Registers = append(t.Registers, pipeline.RegisterSpec{Name: "record", Width: 2*addrBits + 2*qpnBits + psnBits, Entries: flows / 2})
	}
	return t
}
