package serialize

import (
	"reflect"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/record"
)

// Report is the state of the program for an operator.
type Report struct {
	// Rows are the half-connections that the switch follows.
	Rows []conntrack.Info `json:"rows"`
	// Machines are those of the modes.
	Machines []mode.Info `json:"machines"`
	// Dialed are the switch's own connections.
	Dialed []dial.Info `json:"dialed"`
	// Former are rows that a former life of the switch has moved, and whose clients have not connected anew.
	Former []record.Row `json:"former"`
}

// Report describes the program now.
func (p *Program) Report(now clock.Time) Report {
	r := Report{Rows: p.track.List(now), Machines: []mode.Info{}, Dialed: []dial.Info{}, Former: []record.Row{}}
	for _, m := range p.machines {
		r.Machines = append(r.Machines, m.Info(now))
	}
	if o := p.cfg.Own; o != nil {
		r.Dialed = append(r.Dialed, o.dialer.List()...)
		r.Former = append(r.Former, o.former.Rows()...)
	}
	return r
}

// Group is the counters of one part of the program.
type Group struct {
	Name     string         `json:"name"`
	Counters []mode.Counter `json:"counters"`
}

// Counters lists what the parts of the program counted, by part.
func (p *Program) Counters(now clock.Time) []Group {
	groups := []Group{{"tracking", numbers(p.track.Stats())}}
	for _, m := range p.machines {
		info := m.Info(now)
		name := info.Mode.String()
		if n, ok := m.(interface{ Name() string }); ok {
			name = n.Name()
		}
		groups = append(groups, Group{name, info.Counters})
	}
	if o := p.cfg.Own; o != nil {
		groups = append(groups,
			Group{"dialing", numbers(o.dialer.Stats())},
			Group{"restart", numbers(o.former.Stats())},
			Group{"record", numbers(o.record.Stats())})
	}
	return groups
}

// numbers lists the fields of a struct of counters by their names, as JSON has them or as they are in Go.
func numbers(stats any) []mode.Counter {
	v := reflect.ValueOf(stats)
	var list []mode.Counter
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, help := f.Tag.Get("json"), f.Tag.Get("help")
		if name == "" {
			name = string(f.Name[0]|0x20) + f.Name[1:]
		}
		switch n := v.Field(i); {
		case n.CanUint():
			list = append(list, mode.Counter{Name: name, Value: n.Uint(), Help: help})
		case n.CanInt():
			list = append(list, mode.Counter{Name: name, Value: uint64(n.Int()), Help: help})
		}
	}
	return list
}

// ForgetWords takes the values of all cached words as unknown: the next atomic of each asks memory. It returns how many
// words there were.
func (p *Program) ForgetWords() int {
	n := 0
	for _, m := range p.machines {
		if f, ok := m.(interface{ ForgetWords() int }); ok {
			n += f.ForgetWords()
		}
	}
	return n
}

// ForgetRows forgets the connections of which nothing was moved. They are learnt anew from their packets. It returns how
// many rows there were.
func (p *Program) ForgetRows() int {
	p.forget = true // in the next Tick: machines that are told need a Ctx
	return p.track.Clearable()
}

// MaxWords bounds the words that are known at a time.
func (p *Program) MaxWords() int {
	for _, m := range p.machines {
		tables, _ := m.Spec()
		for _, t := range tables {
			if t.Name == "words" {
				return t.Entries
			}
		}
	}
	return 0
}

// MaxShared bounds the switch's own connections.
func (p *Program) MaxShared() int {
	if p.cfg.Own == nil {
		return 0
	}
	return dial.MaxShared
}
