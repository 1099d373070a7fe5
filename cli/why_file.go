package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/story"
)

// isCapture reports whether an argument of why names a capture and no host: "-", a name with the suffix of a
// capture, or a file. A name without a slash is that of the host, if isHost says that the rack has one.
func isCapture(arg string, isHost func(string) bool) bool {
	if arg == "-" || strings.HasSuffix(arg, ".pcap") || strings.HasSuffix(arg, ".pcapng") {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular() && (strings.Contains(arg, "/") || !isHost(arg))
}

// whyFile tells the stories of a capture. A broken file is told as far as it can be read.
func whyFile(cmd *cobra.Command, name string) error {
	var book flows.Book
	d, err := dump.New(io.Discard, dump.Config{Each: book.Add})
	if err != nil {
		return err
	}
	broken := dumpFile(cmd, d, name)
	if broken != nil && len(book.Packets) == 0 {
		return broken
	}
	told := story.Tell(&book)
	return errors.Join(show(cmd, &told, func(out io.Writer, t *story.Told) error { return printStories(out, name, t) }), broken)
}

// ended are the outcomes as why prints them.
var ended = map[story.Outcome]string{story.Healed: "healed", story.Failed: "failed", story.Open: "no end"}

func printStories(out io.Writer, name string, t *story.Told) error {
	var b strings.Builder
	for i := range t.Stories {
		s := &t.Stories[i]
		fmt.Fprintf(&b, "%s to queue pair %#x of %s: %s: %s\n", s.From, s.QPN, s.To, s.Text, ended[s.Outcome])
		for _, x := range s.Because {
			fmt.Fprintf(&b, "  %s\n", x)
		}
		fmt.Fprintln(&b)
	}
	fmt.Fprintf(&b, "%s: %s, %s, %s on reliable connections: ", name, count(t.Packets, "packet"), count(t.Flows, "flow"), count(t.Transfers, "transfer"))
	if t.Healed+t.Failed+t.Open == 0 {
		fmt.Fprintln(&b, "nothing was sent again or refused")
	} else {
		fmt.Fprintf(&b, "%d healed, %d failed, %d without an end\n", t.Healed, t.Failed, t.Open)
	}
	if n := t.Healed + t.Failed + t.Open - len(t.Stories); n > 0 {
		fmt.Fprintf(&b, "%d further stories are left out\n", n)
	}
	if t.Left > 0 {
		fmt.Fprintf(&b, "%d packets behind the first %d were not looked at\n", t.Left, flows.MaxPackets)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
