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
		Use:               "tables [NAME]",
		Short:             "List the tables of the switch, show one, or empty one",
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
	return handler.WriteTable(hinted(cmd, cmd.OutOrStdout()), list, none, header, func(x *handler.Word) string {
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
