package fault

import (
	"fmt"
	"strconv"
	"strings"
)

// String returns the rule in the syntax of the command line, without its ID: "loss 10% --link cn0
// --dir up".
func (r Rule) String() string {
	var b strings.Builder
	b.WriteString(string(r.Kind))
	opt := func(name, format string, args ...any) {
		b.WriteString(" --" + name)
		if format != "" {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	switch {
	case r.Kind == Delay:
		b.WriteString(" " + r.Delay.String())
	case r.Kind == Rate:
		b.WriteString(" " + FormatRate(r.BitsPerSecond))
	case r.Kind == Storm:
		b.WriteString(" " + strconv.Itoa(r.Priority))
	case r.Probability != 0:
		b.WriteString(" " + percent(r.Probability))
	}
	if r.Kind == Delay && r.Probability != 0 && r.Probability != 1 {
		opt("probability", "%s", percent(r.Probability))
	}
	if r.Jitter != 0 {
		opt("jitter", "%v", r.Jitter)
	}
	if r.Kind != Delay && r.Delay != 0 {
		opt("delay", "%v", r.Delay)
	}
	r.Match.spell(opt)
	switch {
	case r.Count == 1:
		opt("once", "")
	case r.Count > 1:
		opt("next", "%d", r.Count)
	}
	if r.Kind == Tear {
		opt("host", "%s", r.Link)
	} else {
		opt("link", "%s", r.Link)
	}
	if r.Dir == Up || r.Dir == Down {
		opt("dir", "%s", r.Dir)
	}
	if r.For != 0 {
		opt("for", "%v", r.For)
	}
	if r.Seed != 0 {
		opt("seed", "%d", r.Seed)
	}
	return b.String()
}

func (m *Match) spell(opt func(name, format string, args ...any)) {
	if len(m.Opcodes) != 0 {
		names := make([]string, len(m.Opcodes))
		for i, op := range m.Opcodes {
			names[i] = fmt.Sprint(op)
		}
		opt("opcode", "%s", strings.Join(names, ","))
	}
	if m.Class != "" {
		opt("class", "%s", m.Class)
	}
	if m.QPN != nil {
		opt("qpn", "%#x", uint32(*m.QPN))
	}
	if m.PSN != nil {
		opt("psn", "%d", uint32(*m.PSN))
	}
	if m.PSNOffset != nil {
		opt("psn-offset", "%d", *m.PSNOffset)
	}
	if m.Transmission != 0 {
		opt("transmission", "%d", m.Transmission)
	}
	if m.SamePacket {
		opt("same-packet", "")
	}
}

func percent(p float64) string { return strconv.FormatFloat(p*100, 'g', 12, 64) + "%" }

// FormatRate returns bits per second in the largest unit in which the number is whole.
func FormatRate(bits int64) string {
	for _, u := range []struct {
		name string
		bits int64
	}{{"Tbit", 1e12}, {"Gbit", 1e9}, {"Mbit", 1e6}, {"Kbit", 1e3}} {
		if bits >= u.bits && bits%u.bits == 0 {
			return strconv.FormatInt(bits/u.bits, 10) + u.name
		}
	}
	return strconv.FormatInt(bits, 10) + "bit"
}
