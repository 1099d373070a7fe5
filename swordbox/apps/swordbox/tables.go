package swordbox

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

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
	}
	shared := handler.Table{Name: "shared", Doc: "connections of the switch to memory servers"}
	o := p.cfg.Own
	if o != nil {
		shared.Used, shared.Max = len(o.dialer.List()), switchconn.MaxShared
	}
	list = append(list, shared)
	if o != nil {
		s := o.journal.Stats()
		list = append(list,
			handler.Table{Name: "stale flows", Doc: "flows that an earlier incarnation of the switch has moved, and that it refuses", Used: s.Flows, Max: journal.MaxFlows},
			handler.Table{Name: "record conns", Doc: "connections that a restarted switch ends", Used: s.Conns, Max: journal.MaxConns})
	}
	for _, h := range p.parts.all {
		if t, ok := h.(handler.Tabler); ok {
			list = append(list, t.Tables()...)
		}
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
		for _, h := range p.parts.all {
			if f, ok := h.(handler.WordForgetter); ok {
				n += f.ForgetWords()
			}
		}
		return n, true
	}
	for _, h := range p.parts.all {
		t, ok := h.(handler.Tabler)
		if !ok {
			continue
		}
		for _, mine := range t.Tables() {
			if mine.Name == name && mine.Clear {
				return t.ClearTable(name), true
			}
		}
	}
	return 0, false
}

// maxWords returns how many words the handlers can know at a time.
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
