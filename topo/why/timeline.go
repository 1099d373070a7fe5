package why

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/topo/hostd"
)

// timeline merges what both sides have noted and what the switch has kept.
func timeline(v *View) (out []Event) {
	for _, side := range []Side{v.Own, v.Peer} {
		if side.QP == nil {
			continue
		}
		for i := range side.QP.Notes {
			n := &side.QP.Notes[i]
			if n.Kind == "failed" && n.Work != nil && !n.Since.IsZero() {
				out = append(out, Event{At: n.Since, Host: side.Host, Text: "posts " + work(n.Work), kind: "posts"})
			}
			rank := 3
			switch n.Kind {
			case "missed", "refused", "not ready", "repeated", "dropped": // the answer to them comes later
				rank = 2
			}
			out = append(out, Event{
				At: n.At, Host: side.Host, Text: n.Text, rank: rank, kind: fmt.Sprint(n.Kind, n.Code, n.Opcode), psn: n.First,
				ends: n.Kind == "healed" && side.QP == v.Own.QP,
			})
		}
	}
	if q := v.Own.QP; len(q.Notes) > 0 {
		if gone := q.Totals.Healed - healedIn(q); gone > 0 {
			text := fmt.Sprintf("its notes begin here: of %s before there are none any more", plural(gone, "case that healed", "cases that healed"))
			out = append(out, Event{At: q.Notes[0].At, Host: v.Own.Host, Text: text, rank: -1, kind: "begin"})
		}
	}
	for _, p := range v.Packets {
		out = append(out, Event{
			At: p.At, Host: "switch", Text: fmt.Sprintf("%s with PSN %d on %s: %s", p.Opcode, p.PSN, p.Link, p.Comment), rank: 1, kind: p.Opcode + p.Link + p.Comment,
		})
	}
	joined := together(v.Decided)
	for i := range joined {
		d := &joined[i]
		out = append(out, Event{At: d.At, Host: d.Switch, Text: d.String(), rank: 1, kind: d.Opcode + d.From + d.Reason + d.Rule, psn: d.PSN})
	}
	slices.SortStableFunc(out, func(a, b Event) int { return cmp.Or(a.At.Compare(b.At), a.rank-b.rank) })
	return out
}

// work describes a work request: what it moves, and where to.
func work(w *hostd.WorkStatus) string {
	s := fmt.Sprintf("%s %d (wr_id %#x): %d bytes", w.Op, w.Number, w.ID, w.Length)
	if w.RKey != 0 {
		s += fmt.Sprintf(" at %#x with R_Key %#x", w.Addr, w.RKey)
	}
	return s
}
