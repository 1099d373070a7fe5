package cli

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
)

// For commands that change tables: entriesAtATime is how many entries a request has, entriesEvery
// how often a command asks whether they are written, and entriesPatience how long it waits while
// nothing changes.
const (
	entriesAtATime  = 1024
	entriesEvery    = 10 * time.Millisecond
	entriesPatience = 10 * time.Second
)

func switchLookupCmds() []*cobra.Command {
	return []*cobra.Command{lookupAddCmd(false), lookupAddCmd(true), lookupLoadCmd(), lookupListCmd(), lookupPoolCmd()}
}

func lookupAddCmd(remove bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add RULE KEY=VALUE…",
		Short: "Write an entry into the table of a rule",
		Args:  cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeEntries(cmd, args[0], remove, []string{strings.Join(args[1:], " ")})
		},
	}
	if remove {
		cmd.Use, cmd.Short = "remove RULE KEY=VALUE…", "Remove an entry from the table of a rule"
	}
	return cmd
}

func lookupLoadCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "load RULE FILE",
		Short: "Write the entries of a file into the table of a rule",
		Args:  cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := readEntries(cmd, args[1])
			if err != nil {
				return err
			}
			return changeEntries(cmd, args[0], false, list)
		},
	}
}

// readEntries reads table entries from the lines of a file; the name "-" stands for the standard
// input.
func readEntries(cmd *cobra.Command, name string) (list []string, err error) {
	in, err := openInput(cmd, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && line[0] != '#' {
			list = append(list, line)
		}
		if len(list) > lookuptable.MaxCapacity*extmem.MaxServers {
			return nil, fmt.Errorf("%s has more than %d entries", name, lookuptable.MaxCapacity*extmem.MaxServers)
		}
	}
	return list, lines.Err()
}

// changeEntries makes the switch write entries into the table of a rule, or remove them. It sends
// as many entries as the switch takes at a time, and waits until no change of the table is in
// progress, also those of other commands. It fails if the switch refuses an entry, or if there is
// no progress for entriesPatience.
func changeEntries(cmd *cobra.Command, rule string, remove bool, list []string) error {
	var first, r handler.EntriesReport
	if err := askBox(cmd, http.MethodPost, "/entries", handler.Entries{Rule: rule}, &first); err != nil {
		return err
	}
	sent, before, last := 0, -1, time.Now()
	for {
		in := handler.Entries{Rule: rule, Remove: remove, Entries: list[sent:min(len(list), sent+entriesAtATime)]}
		r = handler.EntriesReport{}
		if err := askBox(cmd, http.MethodPost, "/entries", in, &r); err != nil {
			return err
		}
		sent += r.Taken
		left := len(list) - sent + r.Waiting
		if left == 0 {
			break
		}
		if left != before {
			before, last = left, time.Now()
		}
		if time.Since(last) > entriesPatience {
			return fmt.Errorf("%d entries are not written, and nothing has changed for %v: no connection to %s", left, entriesPatience, r.Down)
		}
		if r.Taken > 0 {
			continue
		}
		if err := pause(cmd.Context(), entriesEvery); err != nil {
			return err
		}
	}
	if err := allMade(len(list), &first, &r); err != nil {
		return err
	}
	return say(cmd, "%d %s %s", len(list), either(len(list) == 1, "entry is", "entries are"), either(remove, "removed", "written"))
}

// allMade returns nil if the switch has made n changes of entries between two reports, and has
// refused none. The counters of a table begin again when its rule is removed and added.
func allMade(n int, first, last *handler.EntriesReport) error {
	ended := func(r *handler.EntriesReport) uint64 { return r.Written + r.Removed + r.Refused }
	switch {
	case ended(last) < ended(first)+uint64(n):
		return fmt.Errorf("the rule was removed, and added again, before all of %d entries were changed; repeat the command", n)
	case last.Refused > first.Refused:
		return fmt.Errorf("%d of %d entries were refused: %s", last.Refused-first.Refused, n, last.Why)
	}
	return nil
}

func lookupListCmd() *cobra.Command {
	var most int
	cmd := &cobra.Command{
		Use:   "list RULE",
		Short: "List the entries of the table of a rule",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := listEntries(cmd, args[0], most)
			if err != nil {
				return err
			}
			return show(cmd, list, printEntries)
		},
	}
	cmd.Flags().IntVarP(&most, "most", "n", 1000, "show at most this many entries; 0 means all")
	outputFlag(cmd)
	return cmd
}

// listEntries reads the first most entries of a table; if most is 0, all.
func listEntries(cmd *cobra.Command, rule string, most int) ([]string, error) {
	list := []string{}
	at := handler.EntriesRange{Rule: rule}
	for last := time.Now(); ; {
		var p handler.EntriesPage
		if err := askBox(cmd, http.MethodPost, "/entries/page", at, &p); err != nil {
			return nil, err
		}
		if !p.Ready {
			if time.Since(last) > entriesPatience {
				return nil, fmt.Errorf("the server has not answered for %v", entriesPatience)
			}
			if err := pause(cmd.Context(), entriesEvery); err != nil {
				return nil, err
			}
			continue
		}
		last = time.Now()
		list = append(list, p.Entries...)
		if most > 0 && len(list) >= most {
			return list[:most], nil
		}
		if p.End {
			return list, nil
		}
		at.Server, at.From = p.Server, p.From
	}
}

func printEntries(out io.Writer, list []string) error {
	for _, e := range list {
		if _, err := fmt.Fprintln(out, e); err != nil {
			return err
		}
	}
	return nil
}
