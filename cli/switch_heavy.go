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
			r, err := heavyReading(cmd, on, rule, lasts)
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
			report := r.Report(keys, statestore.EveryOf(rule))
			if most > 0 && len(report.List) > most {
				report.List = report.List[:most]
			}
			names, err := namesOf(cmd)
			if err != nil {
				return err
			}
			return show(cmd, report, func(out io.Writer, report telemetry.Report) error { return printHeavy(out, names, rule, lasts, report) })
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
		return nil, badUse("no rule has action measure; add one: rdmalab switch rules add id=%s server=cn0 action=measure store=ms1", id)
	}
	return nil, badUse("no rule %q has action measure; those that have it: %v", id, ids)
}

// heavyReading reads the counters of a rule by a host. If lasts is not 0, it reads twice and returns
// what was counted between.
func heavyReading(cmd *cobra.Command, on string, r *rules.Rule, lasts time.Duration) (*telemetry.Reading, error) {
	first, err := readSketch(cmd, on, r)
	if err != nil || lasts == 0 {
		return first, err
	}
	if err := pause(cmd.Context(), lasts); err != nil {
		return nil, err
	}
	second, err := readSketch(cmd, on, r)
	if err != nil {
		return nil, err
	}
	return second.Since(first)
}

// readSketch reads all counters of a rule by READs of a host's NIC.
func readSketch(cmd *cobra.Command, on string, r *rules.Rule) (*telemetry.Reading, error) {
	l := statestore.LayoutOf(r)
	words, n := make([]uint64, l.Cells), len(l.Servers)
	for i, server := range l.Servers {
		for from := 0; from*n+i < l.Cells; from += hostd.MaxReadWords {
			here := min((l.Cells-i+n-1)/n-from, hostd.MaxReadWords)
			var res hostd.ReadResult
			in := hostd.ReadRequest{To: server.String(), At: l.Offset + 8*uint64(from), Words: here}
			if err := askNode(cmd, on, http.MethodPost, hostd.PathRead, in, &res); err != nil {
				return nil, err
			}
			for j, w := range res.Words[:min(here, len(res.Words))] {
				words[(from+j)*n+i] = w
			}
		}
	}
	return telemetry.Read(l.Sketch(), words)
}

func printHeavy(out io.Writer, names rackfile.Names, r *rules.Rule, lasts time.Duration, p telemetry.Report) error {
	unit, sampled := "packets", ""
	if l := statestore.LayoutOf(r); l.Bytes {
		unit = "bytes"
	}
	if p.Every > 1 {
		sampled = fmt.Sprintf(", from a sample of 1/%d", p.Every)
	}
	fmt.Fprintf(out, "%d %s by %v%s%s\n", p.Total, unit, statestore.ByOf(r), either(lasts > 0, fmt.Sprintf(" in %v", lasts), ""), sampled)
	fmt.Fprintf(out, "at most: too large by %d at most (probability %.1f %%); estimate: within %d (%.1f %%)\n\n", p.Over, 100*p.OverSure, p.Within, 100*p.WithinSure)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	header := "FLOW\tESTIMATE\tAT MOST\tSHARE"
	if lasts > 0 {
		header += "\tPER SECOND"
	}
	fmt.Fprintln(w, header) // Flush reports errors
	for i := range p.List {
		h := &p.List[i]
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f %%", h.Key.Text(func(a netip.Addr) string { return names.Of(a) }), h.Estimate, h.AtMost, 100*h.Share)
		if lasts > 0 {
			fmt.Fprintf(w, "\t%.0f", float64(h.Estimate)/lasts.Seconds())
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
