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
	return []*cobra.Command{lookupAddCmd(false), lookupAddCmd(true), lookupLoadCmd(), lookupListCmd()}
}

func lookupAddCmd(remove bool) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add RULE KEY=VALUE…",
		Short: "Write an entry into the table of a rule",
		Long: "add writes an entry of RULE's table into a server's memory, waits until the server has it, and prints that it is\n" +
			"written. RULE is the id of a rule with action lookup (`rdmalab switch rules`). If there is an entry with the same\n" +
			"key, its action is replaced. In mode published, add does not wait for the server, and an entry replaces any entry in\n" +
			"the same slot, also one with another key.\n\n" +
			"These arguments are the key; an entry applies to the packets that have exactly these values:\n\n" +
			"  to=ADDRESS[:PORT]    destination; if the rule has match=destination, it is the whole key and has no port\n" +
			"  from=ADDRESS[:PORT]  source\n" +
			"  proto=NAME           tcp, udp, icmp, icmpv6 or a number; only tcp and udp have ports\n\n" +
			"Without match=destination the key has all three, and a PORT that is left out is 0, not any port. An ICMP error has\n" +
			"the key of the replies to the packet that it quotes. The other arguments are the action: what the switch does with\n" +
			"such a packet. An entry without an action lets the packet pass.\n\n" +
			"  dst=ADDRESS[:PORT]   replaces the packet's destination address and, if PORT is given, its destination port\n" +
			"  src=ADDRESS[:PORT]   replaces the source address and port likewise; an entry cannot have both src and dst\n" +
			"  dscp=N               sets the DSCP, 0 to 63\n" +
			"  egress=HOST          sends the packet to the port of this host, whatever its destination is; requests that another\n" +
			"                       rule replaces or moves to a connection of the switch do not go there\n" +
			"  drop                 drops the packet\n\n" +
			"A host's name stands for its IPv4 address. Checksums of IPv4, TCP, UDP and ICMPv6 are corrected. RoCEv2\n" +
			"packets whose entry has dst or src are dropped, because their ICRC covers addresses.\n\n" +
			needsSwordBox,
		Example: "  rdmalab switch rules add id=nat server=cn0 action=lookup table=ms1 match=destination\n" +
			"  rdmalab switch lookup add nat to=cn1 dst=ms0\n" +
			"  rdmalab switch rules add id=flows server=cn2 action=lookup table=ms0\n" +
			"  rdmalab switch lookup add flows from=cn2:4000 to=cn1:80 proto=tcp dscp=46",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeEntries(cmd, args[0], remove, []string{strings.Join(args[1:], " ")})
		},
	}
	if remove {
		cmd.Use, cmd.Short = "remove RULE KEY=VALUE…", "Remove an entry from the table of a rule"
		cmd.Long = "remove removes one entry from RULE's table in a server's memory, and prints that it is removed. RULE is the id of a\n" +
			"rule with action lookup (`rdmalab switch rules`). The arguments KEY=VALUE are the key of the entry: to=ADDRESS if\n" +
			"the rule has match=destination, otherwise to=ADDRESS[:PORT], from=ADDRESS[:PORT] and proto=NAME. `rdmalab switch\n" +
			"lookup add --help` explains them. remove fails if the table has no such entry. In mode published, remove\n" +
			"does not check this: it clears the slot in which an entry with this key would be, even if the slot has the entry of\n" +
			"another key. It does not wait for the server.\n\n" + needsSwordBox
		cmd.Example = "  rdmalab switch lookup remove nat to=cn1   # rule nat has match=destination"
	}
	return cmd
}

func lookupLoadCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "load RULE FILE",
		Short: "Write the entries of a file into the table of a rule",
		Long: "load writes the entries of a file into servers' memory, one entry on a line, as in `rdmalab switch lookup add`.\n" +
			"RULE is the id of a rule with action lookup. Empty lines and lines that begin with # are ignored. If the table has an\n" +
			"entry for the same packets (the same to, from and proto), it is replaced; all other entries stay, except that in\n" +
			"mode published an entry replaces any entry in the same slot. If FILE is -, load reads standard input. When the\n" +
			"servers have all entries (in mode published, when all are sent), load prints their number. If a line is wrong, load\n" +
			"fails, and entries of earlier lines may have been written.\n\n" + needsSwordBox,
		Example: "  echo to=cn1 dst=ms0 > entries.txt\n" +
			"  rdmalab switch lookup load nat entries.txt   # rule nat has match=destination",
		Args: cobra.ExactArgs(2),
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
		Long: "list reads the table of RULE from the servers' memory and prints one entry on a line. In \"to=10.0.0.2 dst=10.0.0.3\",\n" +
			"the first part says which packets: those to 10.0.0.2. The second part says what the switch does with them: it\n" +
			"replaces their destination by 10.0.0.3 (see `rdmalab switch lookup add --help`). An entry without a second part lets\n" +
			"the packets pass. In \"egress=port3\", 3 is the number of the port of the switch that egress=HOST has named. RULE is\n" +
			"the id of a rule with action lookup. `rdmalab switch lookup load` reads this format.\n\n" +
			needsSwordBox,
		Example: "  rdmalab switch lookup list nat",
		Args:    cobra.ExactArgs(1),
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
