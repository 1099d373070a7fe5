package cli

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
	"github.com/rdmalab/rdmalab/swordbox/tracestore"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// tracedEvery is the time between two readings of a ring with --for.
const tracedEvery = 100 * time.Millisecond

func switchTracedCmd() *cobra.Command {
	var on, by, file string
	var most int
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "traced [RULE]",
		Short: "Analyse the packets that the switch has recorded in servers' memory",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: arguments(ruleIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys := slices.Index(telemetry.Names, by)
			switch {
			case most < 0 || lasts < 0:
				return badUse("-n %d, --for %v: want numbers of 0 or more", most, lasts)
			case keys < 0:
				return badUse("--by %q: %suse one of %s", by, nearest.Meant(by, telemetry.Names), strings.Join(telemetry.Names, ", "))
			}
			names, err := namesOf(cmd)
			if err != nil {
				return err
			}
			g, trace, err := readTrace(cmd, names, strings.Join(args, ""), on, lasts)
			if err != nil {
				return err
			}
			if file != "" {
				if err := writeTrace(file, trace); err != nil {
					return err
				}
			}
			report := trace.Report(telemetry.By(keys), g.Every)
			if most > 0 && len(report.Flows) > most {
				report.Flows = report.Flows[:most]
			}
			return show(cmd, &report, func(out io.Writer, report *packettrace.Report) error { return printTraced(out, names, report) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&on, "on", "", "host of the rack that reads the records; default: the first server of the ring, which reads its memory by its NIC")
	fs.StringVar(&by, "by", telemetry.Names[0], "what makes a flow: "+strings.Join(telemetry.Names, ", "))
	fs.StringVarP(&file, "write", "w", "", "write the records as packets to this `FILE`, a capture (pcapng)")
	writesFile(cmd, "write")
	fs.IntVarP(&most, "most", "n", 20, "show at most this many flows; 0 means all")
	fs.DurationVar(&lasts, "for", 0, fmt.Sprintf("read the ring again every %v for this time, and analyse all records that were seen; 0: once", tracedEvery))
	completeHost(cmd, "on")
	listFlags(cmd)
	return cmd
}

// readTrace reads the ring of a rule, again and again for a time. rule may be "" if there is one ring.
func readTrace(cmd *cobra.Command, names rackfile.Names, rule, on string, lasts time.Duration) (g *tracestore.Ring, t *packettrace.Trace, err error) {
	for end := time.Now().Add(lasts); ; {
		var list []tracestore.Ring
		if err := askBox(cmd, http.MethodGet, "/lists/"+tracestore.Help.Name, nil, &list); err != nil {
			return nil, nil, err
		}
		if g, err = ringOf(list, rule); err != nil {
			return nil, nil, err
		}
		if t == nil || !t.Of(g.Epoch) {
			t = packettrace.New(g.Epoch) // the switch was restarted, or the rule has changed
		}
		cells, err := readCells(cmd, names, g, on)
		if err != nil {
			return nil, nil, err
		}
		t.Add(cells)
		if !time.Now().Before(end) {
			return g, t, nil
		}
		if err := pause(cmd.Context(), tracedEvery); err != nil {
			return nil, nil, err
		}
	}
}

// ringOf returns the ring of a rule, or the only one if rule is "".
func ringOf(list []tracestore.Ring, rule string) (*tracestore.Ring, error) {
	var ids []string
	for i := range list {
		if slices.Contains(list[i].Rules, rule) || rule == "" && len(list) == 1 {
			return &list[i], nil
		}
		ids = append(ids, list[i].Rules...)
	}
	switch {
	case len(list) == 0:
		return nil, badUse("no rule has action trace; add one: `rdmalab switch rules add server=cn0 action=trace store=ms1`")
	case rule == "":
		return nil, badUse("there are %d rings; name a rule: %s", len(list), strings.Join(ids, ", "))
	}
	return nil, badUse("no rule %q has action trace; %sthose that have it: %s", rule, nearest.Meant(rule, ids), strings.Join(ids, ", "))
}

// readCells reads all cells of a ring by READs of a host's NIC, server by server.
func readCells(cmd *cobra.Command, names rackfile.Names, g *tracestore.Ring, on string) (cells []byte, err error) {
	const words = packettrace.Size / extmem.Align // of a cell
	n := len(g.Servers)
	for i := range g.Servers {
		server := g.Servers[i].Address
		reader := on
		if reader == "" {
			reader = names.Of(server)
		}
		here := (g.Cells - i + n - 1) / n * words
		for from := 0; from < here; from += hostd.MaxReadWords {
			var res hostd.ReadResult
			in := hostd.ReadRequest{To: server.String(), At: g.Offset + extmem.Align*uint64(from), Words: min(here-from, hostd.MaxReadWords)}
			if err := askNode(cmd, reader, http.MethodPost, hostd.PathRead, in, &res); err != nil {
				return nil, err
			}
			if len(res.Words) != in.Words {
				return nil, fmt.Errorf("%s has read %d words of %v in place of %d; read them once more", reader, len(res.Words), server, in.Words)
			}
			for _, w := range res.Words {
				cells = binary.NativeEndian.AppendUint64(cells, w)
			}
		}
	}
	return cells, nil
}

// writeTrace writes the records of a trace to a capture. Their times are those of the switch's clock.
func writeTrace(file string, t *packettrace.Trace) error {
	var b bytes.Buffer
	w, err := pcapng.NewWriter(&b)
	if err != nil {
		return err
	}
	if _, err := w.AddInterface("trace", pcapng.Ethernet); err != nil {
		return err
	}
	for _, r := range t.Records() {
		comment := ""
		if r.Packets > 1 {
			comment = fmt.Sprintf("super-frame of %d packets", r.Packets)
		}
		if err := w.WriteTruncated(0, int64(r.Time), r.Head, int(r.Length), comment); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

func printTraced(out io.Writer, names rackfile.Names, r *packettrace.Report) error {
	sampled := ""
	if r.Every > 1 {
		sampled = fmt.Sprintf(", from a sample of 1/%d", r.Every)
	}
	fmt.Fprintf(out, "%d packets of %d bytes in %.3g s%s\n", r.Packets, r.Bytes, r.Span.Seconds(), sampled)
	fmt.Fprintf(out, "%d records; %d missing between them; %d of former rings\n\n", r.Records, r.Missing, r.Others)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FLOW\tPACKETS\tBYTES\tSHARE\tNUMBERED\tLATE\tAGAIN") // Flush reports errors
	for i := range r.Flows {
		f := &r.Flows[i]
		text := f.Key.Text(func(a netip.Addr) string { return names.Of(a) })
		if f.QP != 0 {
			text += fmt.Sprintf(" QP %#x", uint32(f.QP))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.1f %%\t%d\t%d\t%d\n", text, f.Packets, f.Bytes, 100*f.Share, f.Numbered, f.Late, f.Again)
	}
	return w.Flush()
}
