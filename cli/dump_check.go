package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/capture/conform"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
)

// runCheck holds each file against the rules of the protocol. The exit status is 1 if a packet breaks one.
func runCheck(cmd *cobra.Command, config dump.Config, files []string) error {
	if config.JSON || config.TimeOfDay || config.Filter.Other {
		return badUse("--check prints sentences about RoCEv2 packets: leave out -o json, --time-of-day and --all")
	}
	bad := false
	for _, name := range files {
		var book flows.Book
		config.Each = book.Add
		d, err := dump.New(io.Discard, config)
		if err != nil {
			return err
		}
		damaged := dumpFile(cmd, d, name)
		book.Sort()
		found := conform.Check(&book)
		if err := writeCheck(cmd.OutOrStdout(), name, checked{&book, d.Stats}, found); err != nil {
			return err
		}
		if damaged != nil {
			return damaged
		}
		bad = bad || len(found) > 0
	}
	if bad {
		return exitCode(1)
	}
	return nil
}

// checked is a capture whose packets were held against the rules.
type checked struct {
	*flows.Book
	stats dump.Stats
}

// missing says what the capture lacks, so that packets which follow the rules may look as if they broke them;
// empty if it lacks nothing that it shows.
func (c *checked) missing() (list []string) {
	add := func(n uint64, one, text string) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%s %s", count(int(n), one), text)) //nolint:gosec // a number of packets
		}
	}
	add(c.stats.Lost, "packet", "not captured: the capture was too slow for them (fewer links, --dir or --snaplen help)")
	add(uint64(c.stats.Cut), "packet", "captured in part (--snaplen), so checksums and contents behind that are not known") //nolint:gosec // not negative
	add(uint64(len(c.Middle())), "flow", "captured from the middle: requests before the first packet are not in it, or a filter left them out")
	add(uint64(c.Left), "packet", "behind those that the check keeps") //nolint:gosec // not negative
	return list
}

func writeCheck(w io.Writer, name string, b checked, found []conform.Violation) error {
	var err error
	printf := func(format string, args ...any) {
		_, e := fmt.Fprintf(w, format, args...)
		err = errors.Join(err, e)
	}
	if list := b.missing(); len(list) > 0 {
		printf("%s: the capture is not complete%s:\n", name, either(len(found) > 0, "; what follows may come from that, and not from a NIC", ""))
		for _, text := range list {
			printf("  %s\n", text)
		}
	}
	for _, v := range found {
		p := v.Packet
		link := ""
		if p.Link != "" {
			link = " [" + dump.OneLine(p.Link) + "]"
		}
		printf("%s: packet %d at %v%s: %v > %v %v\n", name, p.Number, time.Duration(p.Time-b.Packets[0].Time), link, p.Src, p.Dst, &p.Header)
		printf("  %s (%s): %s\n  %s\n", v.Rule.Name, v.Rule.Section, v.Rule.Text, v.Why)
	}
	verdict := "no packet breaks a rule"
	if len(found) > 0 {
		verdict = count(len(found), "broken rule")
	}
	printf("%s: %s, %s: %s\n", name, count(len(b.Packets), "packet"), count(len(b.Flows), "flow"), verdict)
	return err
}
