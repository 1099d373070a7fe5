package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

func switchHeavyCmd() *cobra.Command {
	var on string
	var most int
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "heavy RULE --on HOST",
		Short: "Estimate the heaviest flows from the counters in servers' memory",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: arguments(ruleIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if most < 0 || lasts < 0 {
				return badUse("-n %d, --for %v: want numbers of 0 or more", most, lasts)
			}
			rule, err := measureRule(cmd, args[0])
			if err != nil {
				return err
			}
			r, took, err := readHeavy(cmd, on, rule, lasts)
			if err != nil {
				return err
			}
			var flows []statestore.Flow
			if err := askBox(cmd, http.MethodGet, "/lists/"+statestore.FlowsHelp.Name, nil, &flows); err != nil {
				return err
			}
			var keys []telemetry.Key
			for i := range flows {
				if slices.Contains(flows[i].Rules, rule.ID) {
					keys = append(keys, flows[i].Key)
				}
			}
			report := &heavyReport{Report: r.sketch.Report(keys, statestore.EveryOf(rule)), Seconds: took.Seconds(), Missing: r.missing}
			if most > 0 && len(report.List) > most {
				report.List = report.List[:most]
			}
			names, err := namesOf(cmd)
			if err != nil {
				return err
			}
			return show(cmd, report, func(out io.Writer, report *heavyReport) error { return printHeavy(out, names, rule, report) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&on, "on", "", "host of the rack that reads the counters (required)")
	fs.IntVarP(&most, "most", "n", 20, "show at most this many flows; 0 means all that the switch remembers")
	fs.DurationVar(&lasts, "for", 0, "read twice, with this time between, and show what was counted meanwhile; 0: since the counters were 0")
	must(cmd.MarkFlagRequired("on"))
	completeHost(cmd, "on")
	listFlags(cmd)
	return cmd
}

// measureRule returns the rule of action measure with an id.
func measureRule(cmd *cobra.Command, id string) (*rules.Rule, error) {
	var list []rules.Rule
	if err := askBox(cmd, http.MethodGet, "/rules", nil, &list); err != nil {
		return nil, err
	}
	var ids []string
	for i := range list {
		if r := &list[i]; r.Action == statestore.Measure {
			if r.ID == id {
				return r, nil
			}
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return nil, badUse("no rule has action measure; add one: `rdmalab switch rules add id=%s server=cn0 action=measure store=ms1`", id)
	}
	return nil, badUse("no rule %q has action measure; those that have it: %v", id, ids)
}

// heavyReport is what switch heavy prints.
type heavyReport struct {
	telemetry.Report
	// Seconds is the time between the two readings; 0 with a single one.
	Seconds float64 `json:"seconds,omitempty"`
	Missing missing `json:"missing"`
}

// heavyReading is a reading of a sketch. at is when it began; missing is what the switch said then.
type heavyReading struct {
	sketch  *telemetry.Reading
	at      time.Time
	missing missing
}

// readHeavy reads the counters of a rule by a host. If lasts is not 0, it reads twice and returns what was
// counted between. took is the time between the beginnings of both: the reading of a counter takes its
// turn, which is the same in both, so this is the time between the two values of each.
func readHeavy(cmd *cobra.Command, on string, r *rules.Rule, lasts time.Duration) (of heavyReading, took time.Duration, err error) {
	first, err := readSketch(cmd, on, r)
	if err != nil || lasts == 0 {
		return first, 0, err
	}
	if err := pause(cmd.Context(), lasts); err != nil {
		return of, 0, err
	}
	second, err := readSketch(cmd, on, r)
	if err != nil {
		return of, 0, err
	}
	of.sketch, err = second.sketch.Since(first.sketch)
	of.missing = second.missing.since(&first.missing)
	return of, second.at.Sub(first.at), err
}

// readSketch reads all counters of a rule by READs of a host's NIC, and before them what is missing there.
func readSketch(cmd *cobra.Command, on string, r *rules.Rule) (of heavyReading, err error) {
	var groups []handler.Group
	if err := askBox(cmd, http.MethodGet, "/program/counters", nil, &groups); err != nil {
		return of, err
	}
	if of.missing, err = missingOf(groups); err != nil {
		return of, err
	}
	of.at = time.Now()
	l := statestore.LayoutOf(r)
	words, n := make([]uint64, l.Cells), len(l.Servers)
	for i, server := range l.Servers {
		for from := 0; from*n+i < l.Cells; from += hostd.MaxReadWords {
			here := min((l.Cells-i+n-1)/n-from, hostd.MaxReadWords)
			var res hostd.ReadResult
			in := hostd.ReadRequest{To: server.String(), At: l.Offset + 8*uint64(from), Words: here}
			if err := askNode(cmd, on, http.MethodPost, hostd.PathRead, in, &res); err != nil {
				return of, err
			}
			if len(res.Words) != here {
				return of, fmt.Errorf("%s has read %d counters of %v in place of %d; read them once more", on, len(res.Words), server, here)
			}
			for j, w := range res.Words {
				words[(from+j)*n+i] = w
			}
		}
	}
	of.sketch, err = telemetry.Read(l.Sketch(), words)
	return of, err
}

// missing is what the switch has counted and what is not, or perhaps not, in the counters: the sum over all rules that
// count in the memory of servers and over all rows (see statestore.Stats).
type missing struct {
	Dropped   uint64 `json:"dropped"`
	Uncertain uint64 `json:"uncertain"`
	Former    uint64 `json:"former"` // what earlier incarnations of the switch have lost at most
	Pending   uint64 `json:"pending"`
	InFlight  uint64 `json:"inFlight"`
}

// missingOf takes the amounts from the counters of the switch.
func missingOf(groups []handler.Group) (of missing, err error) {
	for name, to := range map[string]*uint64{
		"dropped": &of.Dropped, "uncertain": &of.Uncertain, "former": &of.Former, "pending": &of.Pending, "in_flight": &of.InFlight,
	} {
		found := false
		for _, g := range groups {
			for i := range g.Counters {
				if c := &g.Counters[i]; g.Name == statestore.Kind.Name && c.Name == name {
					*to, found = c.Value, true
				}
			}
		}
		if !found {
			return of, fmt.Errorf("the switch has no counter %s of group %s: it runs another version; restart it by rdmalab restart", name, statestore.Kind.Name)
		}
	}
	return of, nil
}

// since returns what is missing of the amounts after an earlier reading. A sum that is smaller than before
// has begun again.
func (m *missing) since(earlier *missing) missing {
	after := *m
	for sum, before := range map[*uint64]uint64{&after.Dropped: earlier.Dropped, &after.Uncertain: earlier.Uncertain, &after.Former: earlier.Former} {
		if before <= *sum {
			*sum -= before
		}
	}
	return after
}

func printHeavy(out io.Writer, names rackfile.Names, r *rules.Rule, p *heavyReport) error {
	unit, sampled, within := "packets", "", ""
	if l := statestore.LayoutOf(r); l.Bytes {
		unit = "bytes"
	}
	if p.Every > 1 {
		sampled = fmt.Sprintf(", from a sample of 1/%d", p.Every)
	}
	if p.Seconds > 0 {
		within = fmt.Sprintf(" in %.3g s", p.Seconds)
	}
	fmt.Fprintf(out, "%d %s by %v%s%s\n", p.Total, unit, statestore.ByOf(r), within, sampled)
	fmt.Fprintf(out, "at most: too large by %d at most (probability %.1f %%); estimate: within %d (%.1f %%)\n", p.Over, 100*p.OverSure, p.Within, 100*p.WithinSure)
	m := &p.Missing
	fmt.Fprintf(out, "not in the counters, of all rules and rows: %d dropped, %d uncertain, %d former, %d pending, %d in flight\n\n", m.Dropped, m.Uncertain, m.Former, m.Pending, m.InFlight)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	header := "FLOW\tESTIMATE\tAT MOST\tSHARE"
	if p.Seconds > 0 {
		header += "\tPER SECOND"
	}
	fmt.Fprintln(w, header) // Flush reports errors
	for i := range p.List {
		h := &p.List[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f %%", h.Key.Text(func(a netip.Addr) string { return names.Of(a) }), h.Estimate, h.AtMost, 100*h.Share)
		if p.Seconds > 0 {
			fmt.Fprintf(w, "\t%.0f", float64(h.Estimate)/p.Seconds)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
