package swordbox

import (
	"reflect"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/journal"
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
	// Former lists the flows that a former incarnation of the switch has moved and whose clients
	// have not connected again.
	Former []journal.Flow `json:"former"`
}

// Report returns the state of the program at the time now.
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

// Group holds the counters of one part of the program.
type Group struct {
	Name     string            `json:"name"`
	Counters []handler.Counter `json:"counters"`
}

// Counters lists the counters of the parts of the program.
func (p *Program) Counters(now clock.Time) []Group {
	groups := []Group{{"tracking", numbers(p.track.Stats())}}
	for _, h := range p.parts.all {
		groups = append(groups, Group{h.Kind().Name, h.Info(now).Counters})
	}
	if o := p.cfg.Own; o != nil {
		groups = append(groups,
			Group{"dialing", numbers(o.dialer.Stats())},
			Group{"restart", numbers(o.former.Stats())},
			Group{"record", numbers(o.journal.Stats())})
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
