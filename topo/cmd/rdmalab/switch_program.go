package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/budget"
	"github.com/rdmalab/rdmalab/swordbox/switchd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

func switchProgramCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "program [NAME]",
		Short: "Show which program the switch runs, or have it run another",
		Long: "program shows the switch program and what it declares. The rack file chooses it by `switch: {program: NAME}`; with\n" +
			"a name, the running switch gets another, with the rules of the rack file if that names it, otherwise without rules.\n" +
			"Connections that are open go on, unless requests of theirs were moved: then the switch keeps its program. A switch\n" +
			"that is restarted runs what it ran before.",
		Example: "  rdmalab switch program\n" +
			"  rdmalab switch program swordbox && rdmalab switch rules add server=ms0 action=steer\n" +
			"  rdmalab switch program forward",
		Args:      cobra.MaximumNArgs(1),
		ValidArgs: spec.Programs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if err := loadProgram(cmd, args[0]); err != nil {
					return err
				}
			}
			return listing(cmd, "/program", printProgram)
		},
	}
	outputFlag(cmd)
	return cmd
}

// loadProgram has the switch run a program with the rules of the rack's description, if they are for it.
func loadProgram(cmd *cobra.Command, name string) error {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return err
	}
	if !slices.Contains(spec.Programs(), name) {
		return badUse("program %.40q: the switch has %s", name, strings.Join(spec.Programs(), " and "))
	}
	in := switchd.ProgramText{Name: name}
	if name == rack.Switch.Program {
		for i := range rack.Switch.Rules {
			in.Rules = append(in.Rules, rack.Switch.Rules[i].String())
		}
	}
	return askBox(cmd, http.MethodPut, "/program", in, nil)
}

func printProgram(cmd *cobra.Command, p switchd.ProgramInfo) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "program\t%s\n", p.Name) // Flush reports
	fmt.Fprintf(w, "does\t%s\n", p.Doc)
	fmt.Fprintf(w, "others\t%s\n", strings.Join(p.Programs, ", "))
	fmt.Fprintf(w, "rules\t%d\n", p.Rules)
	fmt.Fprintf(w, "state\t%s declared; see `rdmalab switch budget`\n", bitsText(p.Bits))
	if len(p.Addresses) > 0 {
		fmt.Fprintf(w, "addresses\t%v at %v\n", p.Addresses, p.MAC)
	}
	return w.Flush()
}

func switchBudgetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "budget",
		Short: "Show what the program would take of a programmable switching chip",
		Long: "budget lays the tables and registers that the program declares out in the stages of a Tofino-like chip. It is a\n" +
			"rough rule and no compiler: what does not fit here would not fit there, and what does may still not.",
		Example: "  rdmalab switch budget\n" +
			"  rdmalab switch budget -o json | jq .stages",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listing(cmd, "/budget", printBudget)
		},
	}
	outputFlag(cmd)
	return cmd
}

func printBudget(cmd *cobra.Command, r budget.Report) error {
	out, c := cmd.OutOrStdout(), r.Chip
	if len(r.Items) == 0 {
		_, err := fmt.Fprintf(out, "program %s declares no state\n", r.Program)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ENTRIES\tBITS\tSIZE\tBLOCKS\tUNITS\tSTAGES\t NAME") // Flush reports
	for _, i := range r.Items {
		stages := fmt.Sprint(i.First)
		switch {
		case i.First == 0:
			stages = "-"
		case i.Last != i.First:
			stages = fmt.Sprintf("%d-%d", i.First, i.Last)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%d\t%s\t %s\n", i.Entries, i.EntryBits, bitsText(i.Bits), i.Blocks, i.Units, stages, i.Name)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	all := c.Stages * c.Blocks
	fmt.Fprintf(out, "\n%s chip: %d stages of %d blocks of %s, %d stateful units each\n", c.Name, c.Stages, c.Blocks, bitsText(c.BlockWords*c.WordBits), c.Units)
	fmt.Fprintf(out, "in the stages: %s, %d blocks (%d%% of %d), %d stages of %d\n", bitsText(r.Bits-r.Outside), r.Blocks, 100*r.Blocks/all, all, r.Stages, c.Stages)
	for _, i := range r.Items {
		if i.Note != "" {
			fmt.Fprintf(out, "%s: %s\n", i.Name, i.Note)
		}
	}
	verdict := "it fits"
	switch {
	case r.Stages > c.Stages:
		verdict = "it does not fit: too few stages"
	case r.Outside > 0:
		verdict = fmt.Sprintf("it fits only with %s of memory beside the stages", bitsText(r.Outside))
	}
	_, err := fmt.Fprintln(out, verdict)
	return err
}

// bitsText is a number of bits as bytes.
func bitsText(n int) string {
	switch b := float64(n) / 8; {
	case b >= 1<<20:
		return fmt.Sprintf("%.1f MiB", b/(1<<20))
	case b >= 1<<10:
		return fmt.Sprintf("%.1f KiB", b/(1<<10))
	default:
		return fmt.Sprintf("%.0f B", b)
	}
}
