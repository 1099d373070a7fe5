package why

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Decision is a packet that the program of a switch has dropped, or a negative acknowledgment that it has
// made.
type Decision struct {
	At time.Time
	// Switch runs Program, which handled the packet under the rule with ID Rule; "" if there is none.
	Switch, Program, Rule string
	// Reason is why the packet was dropped; "" for an acknowledgment.
	Reason string
	// Opcode is the packet's, or the name of the acknowledgment's syndrome.
	Opcode       string
	PSN, DestQPN uint32
	// Last is the PSN of the last of several equal decisions, and Times how many they are; 0 means one.
	Last  uint32
	Times int
	// From is the host whose packet it is, or is answered; "" if a timer made the acknowledgment.
	From    string
	Packets int // of a super-frame; of others 1
}

// by names the program and the rule.
func (d *Decision) by() string {
	if d.Rule == "" {
		return fmt.Sprintf("program %s of %s", d.Program, d.Switch)
	}
	return fmt.Sprintf("program %s of %s, by rule %s,", d.Program, d.Switch, d.Rule)
}

func (d *Decision) String() string {
	what := fmt.Sprintf("%s with PSN %d", d.Opcode, d.PSN)
	switch {
	case d.Reason != "" && d.Packets > 1:
		what = fmt.Sprintf("%d packets, %s with PSN %d to PSN %d,", d.Packets, d.Opcode, d.PSN, d.end())
	case d.Times > 1 && d.end() != d.PSN:
		what = fmt.Sprintf("%s with PSN %d to PSN %d, %d times", d.Opcode, d.PSN, d.end(), d.Times)
	case d.Times > 1:
		what += fmt.Sprintf(", %d times", d.Times)
	}
	switch {
	case d.Reason != "":
		return fmt.Sprintf("%s drops %s from %s: %s", d.by(), what, orTimer(d.From), d.Reason)
	case d.From == "":
		return fmt.Sprintf("%s sends %s", d.by(), what)
	}
	return fmt.Sprintf("%s answers %s with %s", d.by(), d.From, what)
}

// end is the PSN of the last packet.
func (d *Decision) end() uint32 {
	if d.Times > 1 {
		return d.Last
	}
	return (d.PSN + uint32(max(d.Packets, 1)) - 1) & 0xffffff
}

// soon is the longest time between equal decisions that are told as one.
const soon = 10 * time.Millisecond

// together makes one of equal decisions that follow each other soon. Between its first and its last PSN
// may be packets that were not decided on: it is for texts.
func together(list []Decision) (out []Decision) {
	type kind struct {
		node, program, rule, reason, opcode, from string
		qpn                                       uint32
	}
	open := map[kind]int{} // the place in out
	at := map[kind]time.Time{}
	for i := range list {
		d := list[i]
		k := kind{d.Switch, d.Program, d.Rule, d.Reason, d.Opcode, d.From, d.DestQPN}
		d.Last, d.Times = d.end(), max(d.Times, 1)
		if j, ok := open[k]; ok && d.At.Sub(at[k]) <= soon && diff(d.PSN, out[j].PSN) >= 0 {
			out[j].Packets += d.Packets
			out[j].Times += d.Times
			if diff(d.Last, out[j].Last) > 0 {
				out[j].Last = d.Last
			}
		} else {
			open[k] = len(out)
			out = append(out, d)
		}
		at[k] = d.At
	}
	return out
}

func orTimer(host string) string {
	if host == "" {
		return "a timer"
	}
	return host
}

// look is what to look at because of a decision.
func (d *Decision) look() string {
	if d.Rule != "" {
		return "`rdmalab switch rules`, `rdmalab switch counters`"
	}
	return "`rdmalab switch program`, `rdmalab switch counters`"
}

// on reports whether the packet can have been on the way.
func (d *Decision) on(w way, v *View) bool {
	switch {
	case w == anyWay:
		return true
	case d.From == v.Own.Host && v.Own.Host != v.Peer.Host:
		return w == toPeer
	case d.From == v.Peer.Host && v.Own.Host != v.Peer.Host:
		return w == fromPeer
	}
	return w.leadsTo(d.DestQPN, v) // it came from another switch
}

// decidedOn tells which packets of PSNs first to last the program of a switch has dropped on a way, and reports whether
// it has dropped the first one, so that nothing else needs to have.
func decidedOn(v *View, first, last uint32, w way, add adder) bool {
	var drops, behind []Decision
	for _, d := range v.Decided {
		switch {
		case d.Reason == "" || diff(d.PSN, last) > 0 || diff(d.end(), first) < 0 || !d.on(w, v):
			continue
		case len(drops) > 0 || between(first, d.PSN, d.end()):
			drops = append(drops, d)
		}
		behind = append(behind, d)
	}
	switch {
	case len(drops) > 0:
		d := &together(drops)[0]
		add(d.look(), "The switch did that: %s.", d)
	case len(behind) > 0:
		d := &together(behind)[0]
		add(d.look(), "The switch dropped packets behind it: %s.", d)
	}
	return len(drops) > 0
}

// answered returns the newest negative acknowledgment of PSNs first to last that came from the program of a switch; nil
// if there is none.
func answered(v *View, first, last uint32) *Decision {
	for i := len(v.Decided) - 1; i >= 0; i-- {
		if d := &v.Decided[i]; d.Reason == "" && d.DestQPN == v.Own.QP.QPN && between(d.PSN, first, last) {
			return d
		}
	}
	return nil
}

// answeredFor tells that a negative acknowledgment of PSNs first to last came from the program of a switch.
func answeredFor(v *View, first, last uint32, add adder) {
	if d := answered(v, first, last); d != nil {
		add(d.look(), "The answer %s with PSN %d came from the switch, not from %s: %s.", d.Opcode, d.PSN, v.Peer.Host, d)
	}
}

// untold leaves out the packets that the switch has kept whose drop a decision tells.
func untold(v *View) []Packet {
	return slices.DeleteFunc(slices.Clone(v.Packets), func(p Packet) bool {
		return slices.ContainsFunc(v.Decided, func(d Decision) bool {
			return d.Reason != "" && d.DestQPN == p.DestQPN && between(p.PSN, d.PSN, d.end()) && strings.Contains(p.Comment, ": "+d.Reason)
		})
	})
}
