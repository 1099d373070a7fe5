package cli

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/hostd"
)

func readCmd() *cobra.Command {
	var on, at string
	var words int
	var all bool
	cmd := &cobra.Command{
		Use:               "read SERVER --on HOST",
		Short:             "Read words of a server's memory by a READ, for example counters of the switch",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			offset, err := strconv.ParseUint(at, 0, 48)
			if err != nil || offset%8 != 0 {
				return badUse("--at %q: want a multiple of 8, like 0x1000", at)
			}
			if words < 1 || words > hostd.MaxReadWords {
				return badUse("--words %d: want 1 to %d", words, hostd.MaxReadWords)
			}
			rack, _, err := rackOf(cmd)
			if err == nil {
				err = checkHost(rack, args[0])
			}
			if err != nil {
				return err
			}
			var res hostd.ReadResult
			in := hostd.ReadRequest{To: args[0], At: offset, Words: words}
			if err := askNode(cmd, on, http.MethodPost, hostd.PathRead, in, &res); err != nil {
				return err
			}
			return show(cmd, res, func(out io.Writer, res hostd.ReadResult) error { return printRead(out, offset, res.Words, all) })
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&on, "on", "", "host of the rack that reads (required)")
	fs.StringVar(&at, "at", "0", "offset of the first word in the region of the server's memory service, in bytes; a multiple of 8, decimal or 0x…")
	fs.IntVar(&words, "words", 64, fmt.Sprintf("how many words of 8 bytes, 1 to %d", hostd.MaxReadWords))
	fs.BoolVar(&all, "all", false, "print words that are 0, too; no effect with -o json")
	must(cmd.MarkFlagRequired("on"))
	completeHost(cmd, "on")
	listFlags(cmd)
	return cmd
}

func printRead(out io.Writer, at uint64, words []uint64, all bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WORD\tOFFSET\tVALUE") // Flush reports errors
	for i, v := range words {
		if v != 0 || all {
			fmt.Fprintf(w, "%d\t%#x\t%d\n", i, at+8*uint64(i), v)
		}
	}
	return w.Flush()
}
