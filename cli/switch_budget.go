package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/swordbox/chipcost"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

func switchBudgetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "budget",
		Short: "Estimate how much of a programmable switching chip the program would use",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listing(cmd, "/budget", func(out io.Writer, _ rackfile.Names, b chipcost.Budget) error { return printBudget(out, &b) })
		},
	}
	listFlags(cmd)
	return cmd
}

func printBudget(out io.Writer, b *chipcost.Budget) error {
	state := false
	for i := range b.Modes {
		state = state || len(b.Modes[i].Items) > 0
	}
	if !state {
		_, err := fmt.Fprintf(out, "program %s declares no state\n", b.Program)
		return err
	}
	c := &b.Chip
	fmt.Fprintf(out, "%s chip: %d stages of %d blocks of %s,\n%d stateful units and %d logical tables each\n",
		c.Name, c.Stages, c.Blocks, bitsText(c.BlockWords*c.WordBits), c.Units, c.Tables)
	for i := range b.Modes {
		r := &b.Modes[i]
		if r.Mode != "" {
			fmt.Fprintf(out, "\nMode %s\n\n", r.Mode)
		}
		if err := printItems(out, r); err != nil {
			return err
		}
		if err := printMisfits(out, r, c); err != nil {
			return err
		}
	}
	return printUses(out, b)
}

func printItems(out io.Writer, r *chipcost.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ENTRIES\tBITS\tSIZE\tBLOCKS\tBEYOND\tUNITS\tSTAGES\t NAME") // Flush reports errors
	for _, i := range r.Items {
		stages := fmt.Sprint(i.First)
		switch {
		case i.First == 0:
			stages = "-"
		case i.Last != i.First:
			stages = fmt.Sprintf("%d-%d", i.First, i.Last)
		}
		fmt.Fprintf(w, "%d\t%d\t%s\t%d\t%d\t%d\t%s\t %s\n", i.Entries, i.EntryBits, bitsText(i.Bits), i.Blocks, i.Beyond, i.Units, stages, i.Name)
	}
	return w.Flush()
}

func printMisfits(out io.Writer, r *chipcost.Report, c *chipcost.Chip) error {
	fmt.Fprintf(out, "\nin the stages: %d of %d blocks\n", r.Blocks-r.Beyond, c.Stages*c.Blocks) // the last line reports errors
	if r.Fits {
		_, err := fmt.Fprintln(out, "it fits")
		return err
	}
	fmt.Fprintln(out, "what does not fit:")
	if r.Beyond > 0 {
		fmt.Fprintf(out, "  blocks beyond stage %d: %d, to stage %d\n", c.Stages, r.Beyond, r.Stages)
	}
	if n := r.Learned; n.Items > 0 {
		fmt.Fprintf(out, "  tables that packets fill: %d, with %d entries\n", n.Items, n.Entries)
	}
	if n := r.Rings; n.Items > 0 {
		fmt.Fprintf(out, "  rings of each connection: %d, %s, %d blocks, %d of them beyond\n", n.Items, bitsText(n.Bits), n.Blocks, n.Beyond)
	}
	if r.Outside > 0 {
		fmt.Fprintf(out, "  wider than a packet can write: %s\n", bitsText(r.Outside))
		for _, i := range r.Items {
			if i.Note != "" {
				fmt.Fprintf(out, "    %s: %d bits\n", i.Name, i.EntryBits)
			}
		}
	}
	for _, k := range pipeline.NeedKinds {
		if err := printNeed(out, r, k); err != nil {
			return err
		}
	}
	return nil
}

func printNeed(out io.Writer, r *chipcost.Report, k pipeline.NeedKind) error {
	list, count, bits := r.Need(k)
	if len(list) == 0 {
		return nil
	}
	fmt.Fprintf(out, "  %s", k)
	switch {
	case k == pipeline.NeedPackets:
		fmt.Fprintf(out, ": up to %d for one that arrives", count)
	case bits > 0:
		fmt.Fprintf(out, ": %d, %s", count, bitsText(bits))
	case count > 0:
		fmt.Fprintf(out, ": %d", count)
	}
	fmt.Fprintln(out)
	for _, n := range list {
		number := either(n.Count > 0 && k != pipeline.NeedPackets, fmt.Sprint(n.Count, " "), "")
		if _, err := fmt.Fprintf(out, "    %s%s\n", number, n.What); err != nil {
			return err
		}
	}
	return nil
}

func printUses(out io.Writer, b *chipcost.Budget) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nPERCENT OF THE CHIP\tSRAM\tSTATEFUL UNITS\tLOGICAL TABLES") // Flush reports errors
	seen := map[string]bool{}
	for i := range b.Modes {
		for _, u := range b.Modes[i].Uses {
			if !seen[u.Part] {
				fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%.2f\n", u.Part, u.SRAM, u.Units, u.Tables)
			}
			seen[u.Part] = true
		}
	}
	fmt.Fprintln(w, "the authors' P4 (Figure 8)\t\t\t")
	for _, f := range b.Authors {
		fmt.Fprintf(w, "  %s\t%.2f\t%.2f\t%.2f\n", f.Part, f.SRAM, f.Units, f.Tables)
	}
	return w.Flush()
}
