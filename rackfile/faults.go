package rackfile

import (
	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/units"
)

// max24 is the largest QPN and PSN, which have 24 bits.
const max24 = 1<<24 - 1

const (
	maxPSNOffset = max24
	maxCount     = 1 << 30
)

// faultEntry reads one element of the list faults. The keys are the fields of fault.Rule.
func (d *decoder) faultEntry(n ast.Node) faultEntry {
	f := faultEntry{at: n, linkAt: n}
	r := &f.rule
	f.sound = d.sound(func() { d.faultKeys(n, &f) })
	if f.sound {
		if err := r.Validate(); err != nil {
			d.errorf(n, "%v", err)
			f.sound = false
		}
	}
	return f
}

func (d *decoder) faultKeys(n ast.Node, f *faultEntry) {
	r := &f.rule
	d.mapping(n, "a fault", []entry{
		{key: "link", required: true, set: func(n ast.Node) {
			f.linkAt = n
			r.Link, _ = text(d, n, "link", func(s string) (string, error) { return s, nil })
		}},
		required(set(d, "kind", &r.Kind, word(fault.Kinds()...))),
		set(d, "dir", &r.Dir, word(fault.Up, fault.Down, fault.Both)),
		set(d, "probability", &r.Probability, units.ParseProbability),
		set(d, "delay", &r.Delay, units.ParseDuration),
		set(d, "jitter", &r.Jitter, units.ParseDuration),
		set(d, "bitsPerSecond", &r.BitsPerSecond, units.ParseRate),
		set(d, "priority", &r.Priority, number(0, portqueue.Priorities-1)),
		set(d, "count", &r.Count, number(1, maxCount)),
		set(d, "for", &r.For, units.ParseDuration),
		set(d, "seed", &r.Seed, parseSeed),
		set(d, "id", &r.ID, func(s string) (string, error) { return s, checkName("fault", s, maxRackName) }),
		d.match(&r.Match),
	})
}

func number24[T ~uint32](s string) (T, error) {
	v, err := integer(0, max24)(s)
	return T(v), err
}

func (d *decoder) match(m *fault.Match) entry {
	return d.section("match",
		entry{key: "opcodes", set: func(n ast.Node) {
			d.sequence(n, "opcodes", func(n ast.Node) {
				if op, ok := text(d, n, "opcode", wire.ParseOpcode); ok {
					m.Opcodes = append(m.Opcodes, op)
				}
			})
		}},
		set(d, "class", &m.Class, word(fault.Classes()...)),
		pointer(d, "qpn", &m.QPN, number24[wire.QPN]),
		pointer(d, "psn", &m.PSN, number24[wire.PSN]),
		pointer(d, "psnOffset", &m.PSNOffset, number(0, maxPSNOffset)),
		set(d, "transmission", &m.Transmission, number(1, maxCount)),
		set(d, "samePacket", &m.SamePacket, parseBool),
	)
}
