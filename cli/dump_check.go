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
		if err := writeCheck(cmd.OutOrStdout(), name, &book, found); err != nil {
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

func writeCheck(w io.Writer, name string, b *flows.Book, found []conform.Violation) error {
	var err error
	printf := func(format string, args ...any) {
		_, e := fmt.Fprintf(w, format, args...)
		err = errors.Join(err, e)
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
		verdict = fmt.Sprintf("%d broken rules", len(found))
	}
	left := ""
	if b.Left > 0 {
		left = fmt.Sprintf("; %d more packets were not looked at", b.Left)
	}
	printf("%s: %d packets, %d flows: %s%s\n", name, len(b.Packets), len(b.Flows), verdict, left)
	return err
}
