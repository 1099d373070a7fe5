package why

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// older tells how many losses healed, how many of them the notes still have and from when on, and what there
// is of which kind.
func older(v *View, add adder) {
	q := v.Own.QP
	if q.Totals.Healed < 2 {
		return
	}
	i := slices.IndexFunc(q.Notes, func(n hostd.NoteStatus) bool { return n.Kind == "healed" })
	if i < 0 {
		return
	}
	first, kept := &q.Notes[i], healedIn(q)
	if r := retryOf(q, first); r != nil {
		first = r
	}
	text := fmt.Sprintf("This was the newest of %d that healed.", q.Totals.Healed)
	add("", "%s The notes have %d, from %s on: %s.", text, kept, first.At.Format("15:04:05.000000"), causesOf(q))
	gone := q.Totals.Healed - kept
	if gone == 0 {
		return
	}
	add("", "%s no notes any more: a NIC keeps the newest %d of a queue pair. A capture has them all, and `rdmalab why` tells each.",
		plural(gone, "older one has", "older ones have"), reason.Kept)
	add(fmt.Sprintf("`rdmalab capture %s -w x.pcapng` while the program runs, then `rdmalab why x.pcapng`", v.Own.Host), "")
	add("`RDMALAB_KEEP=64MiB rdmalab up`: the switch keeps its last packets, also the dropped ones, and `rdmalab bundle` saves them", "")
}

// healedIn counts the cases that healed among the notes, which the totals count as well.
func healedIn(q *hostd.QPObject) (n uint64) {
	for i := range q.Notes {
		if q.Notes[i].Kind == "healed" {
			n++
		}
	}
	return min(n, q.Totals.Healed)
}

// causesOf counts the kinds of the cases that healed and are in the notes.
func causesOf(q *hostd.QPObject) string {
	names := map[reason.Code]string{
		reason.Timeout: "by an ACK timeout", reason.SequenceNak: "by a sequence NAK", reason.ImpliedNak: "by an implied NAK", reason.NotReady: "after RNR NAKs",
	}
	counts := map[string]int{}
	var order []string
	for i := range q.Notes {
		n := &q.Notes[i]
		if n.Kind != "healed" {
			continue
		}
		name := "whose cause is not in the notes any more"
		if r := retryOf(q, n); r != nil {
			if known := names[reason.Code(r.Code)]; known != "" {
				name = known
			}
		}
		if counts[name]++; counts[name] == 1 {
			order = append(order, name)
		}
	}
	slices.SortStableFunc(order, func(a, b string) int { return counts[b] - counts[a] })
	for i, name := range order {
		order[i] = fmt.Sprintf("%d %s", counts[name], name)
	}
	return strings.Join(order, ", ")
}

// fold replaces equal cases that follow each other, of which each ends with a heal of the queue pair, by one
// line and the newest of them.
func fold(events []Event) (out []Event) {
	var cases [][]Event
	from := 0
	for i := range events {
		if events[i].ends {
			cases = append(cases, events[from:i+1])
			from = i + 1
		}
	}
	for i := 0; i < len(cases); {
		n := 1
		for i+n < len(cases) && alike(cases[i], cases[i+n]) {
			n++
		}
		if n > leastFolded {
			first, last := cases[i], cases[i+n-2]
			out = append(out, Event{
				At: first[0].At, Host: first[len(first)-1].Host, Times: n - 1,
				Text: fmt.Sprintf("%d cases like the next one, PSN %d to PSN %d, until %s", n-1, first[len(first)-1].psn, last[len(last)-1].psn,
					last[len(last)-1].At.Format("15:04:05.000000")),
			})
			out = append(out, cases[i+n-1]...)
		} else {
			for _, c := range cases[i : i+n] {
				out = append(out, c...)
			}
		}
		i += n
	}
	return append(out, events[from:]...)
}

// leastFolded is how many equal cases are printed one by one.
const leastFolded = 2

// alike reports whether two cases have the same kinds of events of the same nodes.
func alike(a, b []Event) bool {
	return slices.EqualFunc(a, b, func(x, y Event) bool { return x.Host == y.Host && x.kind == y.kind })
}
