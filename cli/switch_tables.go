package cli

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func switchTablesCmd() *cobra.Command {
	var clearIt bool
	cmd := &cobra.Command{
		Use:   "tables [NAME]",
		Short: "List the tables of the switch, show one, or empty one",
		Long: "Without NAME, tables lists the tables of the switch and of its program. USED is the number of entries, OF is the\n" +
			"largest possible number of entries, and CLEAR says whether --clear can empty the table. With NAME, tables shows the\n" +
			"entries of a table:\n\n" +
			"  macs    MAC addresses, and the port where each was last seen\n" +
			"  flows   counts of RoCEv2 packets and bytes by source, destination and queue pair, tracked or not\n" +
			"  groups  multicast groups and their members\n\n" +
			"With program swordbox, NAME may also be\n\n" +
			"  rows    the same as `rdmalab switch connections --all`: the two directions (flows) of the reliable connections that\n" +
			"          the program tracks, and shared connections\n" +
			"  words   words of memory on which atomics under rules work\n" +
			"  held, keys, hot, counted, slots, buffers, lookup\n" +
			"          the same as `rdmalab switch held`, `rdmalab switch keys` and so on, with all lines\n\n" +
			"The entries of other tables cannot be shown.\n\n" +
			"The table words has these columns; a shared connection is one on which the switch sends the requests of several\n" +
			"clients:\n\n" +
			"  STATE    pass: operations on the word travel on clients' connections\n" +
			"           unknown: operations travel on a shared connection, and the switch does not know the value of the word\n" +
			"           known: operations travel on a shared connection, and the switch replaces atomics by WRITEs\n" +
			"           busy: new operations wait until the operations in flight on clients' connections have ended\n" +
			"           closing: new operations wait until the operations in flight on the shared connection have ended\n" +
			"  VALUE    the value that the next operation will find, if the switch knows it\n" +
			"  EPOCH    how often the value has become unknown\n" +
			"  PENDING  number of requests for the word that are in flight\n\n" +
			"--clear empties the table NAME and prints how many entries it had; the switch fills it again from later packets. In\n" +
			"the table words, --clear makes all values unknown, and under hardened rules keeps the entries: the switch sends the\n" +
			"next atomic on each word to the server unchanged. In the table rows, --clear keeps the entries of flows with moved\n" +
			"requests (sent on a shared connection): without these entries the switch could not translate PSNs, and the\n" +
			"connections would break.",
		Example: "  rdmalab switch tables\n" +
			"  rdmalab switch tables words\n" +
			"  rdmalab switch tables words --clear",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: arguments(words(shownTables()...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case clearIt && len(args) == 0:
				return badUse("--clear needs the name of a table; `rdmalab switch tables` lists those that can be emptied")
			case clearIt:
				var d switchd.Dropped
				if err := askBox(cmd, http.MethodDelete, "/tables/"+args[0], nil, &d); err != nil {
					return err
				}
				return say(cmd, "table %s is cleared: it had %d entries", args[0], d.Entries)
			case len(args) == 0:
				return listing(cmd, "/tables", printTables)
			}
			return showTable(cmd, args[0])
		},
	}
	cmd.Flags().BoolVar(&clearIt, "clear", false, "empty the table NAME; it must have yes in column CLEAR")
	listFlags(cmd)
	return cmd
}

func shownTables() []string {
	names := []string{"words", "rows", "macs", "flows", "groups"}
	for _, l := range apps.Listings() {
		names = append(names, l.Name)
	}
	return names
}

func printTables(out io.Writer, _ rackfile.Names, list []handler.Table) error {
	return handler.WriteTable(out, list, "", "TABLE\tUSED\tOF\tCLEAR\tWHAT", func(t *handler.Table) string {
		return fmt.Sprintf("%s\t%d\t%d\t%s\t%s", t.Name, t.Used, t.Max, either(t.Clear, "yes", "-"), t.Doc)
	})
}

func showTable(cmd *cobra.Command, name string) error {
	switch name {
	case "words":
		var r swordbox.Report
		if err := askBox(cmd, http.MethodGet, "/connections", nil, &r); err != nil {
			return err
		}
		words := []handler.Word{}
		for _, m := range r.Handlers {
			words = append(words, m.Words...)
		}
		return show(cmd, words, func(io.Writer, []handler.Word) error { return printWords(cmd, words) })
	case "rows":
		return listConnections(cmd, true)
	case "macs":
		return listing(cmd, "/macs", printMACs)
	case "groups":
		return listing(cmd, "/groups", printGroups)
	case "flows":
		return listing(cmd, "/flows", printFlows)
	}
	lists := apps.Listings()
	for i := range lists {
		if lists[i].Name == name {
			return showList(cmd, &lists[i], 0)
		}
	}
	return badUse("table %.40q cannot be shown; these can: %s", name, strings.Join(shownTables(), ", "))
}

func printWords(cmd *cobra.Command, list []handler.Word) error {
	names, err := namesOf(cmd)
	if err != nil {
		return err
	}
	const (
		none   = "no word was the target of an atomic under a rule"
		header = "SERVER\tADDRESS\tSTATE\tVALUE\tEPOCH\tPENDING"
	)
	return handler.WriteTable(cmd.OutOrStdout(), list, none, header, func(x *handler.Word) string {
		value := either(strings.EqualFold(x.State, "known"), fmt.Sprintf("%#x", x.Value), "-")
		return fmt.Sprintf("%s\t%#x\t%s\t%s\t%d\t%d", names.Of(x.Server), x.VA, strings.ToLower(x.State), value, x.Epoch, x.Pending)
	})
}

func printGroups(out io.Writer, _ rackfile.Names, s switchd.Snooping) error {
	hosts := func(ports []int) string {
		var list []string
		for _, p := range ports {
			name := fmt.Sprint(p)
			if p < len(s.Hosts) && s.Hosts[p] != "" {
				name = s.Hosts[p]
			}
			list = append(list, name)
		}
		if len(list) == 0 {
			return "-"
		}
		return strings.Join(list, " ")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "snooping is %v; routers: %s\n", s.State, hosts(s.Routers)) // Flush reports errors
	if len(s.Groups) > 0 {
		fmt.Fprintln(w, "GROUP\tMEMBERS\tUNTIL")
	}
	for _, g := range s.Groups {
		fmt.Fprintf(w, "%v\t%s\tin %v\n", g.Group, hosts(g.Ports), g.Left.Round(time.Second))
	}
	return w.Flush()
}

func printMACs(out io.Writer, _ rackfile.Names, list []switchd.MAC) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PORT\tADDRESS\tLAST SEEN") // Flush reports errors
	for _, m := range list {
		fmt.Fprintf(w, "%s\t%v\t%v ago\n", m.Host, m.MAC.MAC, m.Idle.Round(time.Millisecond))
	}
	return w.Flush()
}
