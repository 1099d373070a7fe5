package main

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/mode"
)

const watchEvery = time.Second

// switchKeysCmd shows the keys that a steering switch finds hot.
func switchKeysCmd() *cobra.Command {
	var watch bool
	var most int
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Show the keys of a store that are asked for most, and where their newest nodes are",
		Long: "keys shows the keys that a switch with a rule of action steer has found to be asked for most: a count-min sketch,\n" +
			"whose counts are halved now and then, and a bounded table. RATE is requests a second over the last second or so,\n" +
			"STEERED the requests that were led to the newest node, TAIL where that is: server, address, length, version, and its\n" +
			"place among the nodes that were linked since the switch knows the chain. A rule with keys=hot:8 steers the first 8.",
		Example: "  rdmalab switch keys\n" +
			"  rdmalab switch keys --watch\n" +
			"  rdmalab switch keys -o json | jq '.[0]'\n" +
			"  rdmalab switch rules add server=ms0 action=steer keys=hot:8",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if most < 0 {
				return badUse("-n %d: how many keys cannot be negative; 0 means all", most)
			}
			for {
				if err := showKeys(cmd, most); err != nil || !watch {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(watchEvery):
				}
				if _, err := fmt.Fprintln(cmd.OutOrStdout()); err != nil {
					return err
				}
			}
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show them again every second")
	cmd.Flags().IntVarP(&most, "most", "n", 20, "how many keys; 0: all that the switch remembers")
	outputFlag(cmd)
	return cmd
}

// keysOf lists the keys of all machines, the hottest first; most 0: all.
func keysOf(r *serialize.Report, most int) []mode.Key {
	list := []mode.Key{}
	for _, m := range r.Machines {
		list = append(list, m.Keys...)
	}
	if most > 0 && len(list) > most {
		list = list[:most]
	}
	return list
}

func showKeys(cmd *cobra.Command, most int) error {
	asJSON, err := wantJSON(cmd)
	if err != nil {
		return err
	}
	var r serialize.Report
	if err := askBox(cmd, http.MethodGet, "/connections", nil, &r); err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, keysOf(&r, most))
	}
	names, err := newNamer(cmd)
	if err != nil {
		return err
	}
	return printKeys(cmd.OutOrStdout(), names.name, keysOf(&r, most))
}

func printKeys(out io.Writer, name func(netip.Addr) string, list []mode.Key) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no key of a store was asked for under a rule of action steer; add one: rdmalab switch rules add server=ms0 action=steer")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tRATE/s\tREADS\tAPPENDS\tSTEERED\tWAITING\tTAIL\tLENGTH\tVERSION\tSEQUENCE") // Flush reports
	for _, k := range list {
		tail := "-\t-\t-\t-"
		if t := k.Tail; t != nil {
			tail = fmt.Sprintf("%s:%#x\t%d\t%d\t%d", name(t.Server), t.VA, t.Length, t.Version, t.Sequence)
		}
		fmt.Fprintf(w, "%d\t%.0f\t%d\t%d\t%d\t%d\t%s\n", k.Key, k.Rate, k.Reads, k.Appends, k.Steered, k.Waiting, tail)
	}
	return w.Flush()
}
