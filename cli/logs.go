package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/container"
)

const (
	// followPoll is the interval at which logs are read with --follow.
	followPoll = 200 * time.Millisecond
	// timersLog is the log of the processes that end faults after a time.
	timersLog = "timers"
)

func logsCmd() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [HOST | switch | timers | watcher] [-f]",
		Short: "Print the logs of the daemons",
		Args:  cobra.MaximumNArgs(1),

		ValidArgsFunction: arguments(nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, paths, err := rackOf(cmd)
			if err != nil {
				return err
			}
			nodes := append(append(s.SwitchNames(), s.HostNames()...), timersLog, container.WatcherName)
			if len(args) == 1 {
				if err := checkNode(s, args[0]); err != nil && args[0] != timersLog && args[0] != container.WatcherName {
					return err
				}
				nodes = args
			}
			logs := make([]*logTail, len(nodes))
			for i, node := range nodes {
				logs[i] = &logTail{path: paths.Log(node)}
				if len(nodes) > 1 {
					logs[i].prefix = fmt.Sprintf("%-*s ", len("switch"), node)
				}
			}
			return printLogs(cmd.Context(), cmd.OutOrStdout(), logs, follow)
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing new lines until interrupted")
	return cmd
}

// logTail is a log, with the position up to which it was printed.
type logTail struct {
	path, prefix string
	offset       int64
	partial      string // a line whose end is not yet written
}

func printLogs(ctx context.Context, w io.Writer, logs []*logTail, follow bool) error {
	for {
		for _, l := range logs {
			if err := l.print(w); err != nil {
				return err
			}
		}
		if !follow {
			for _, l := range logs {
				if l.partial != "" {
					fmt.Fprintln(w, l.prefix+l.partial)
				}
			}
			return nil
		}
		if pause(ctx, followPoll) != nil {
			return nil
		}
	}
}

func (l *logTail) print(w io.Writer) error {
	f, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the log does not exist yet, or the rack is down
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	l.offset += int64(len(b))
	lines := strings.SplitAfter(l.partial+string(b), "\n")
	l.partial = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if _, err := io.WriteString(w, l.prefix+line); err != nil {
			return err
		}
	}
	return nil
}
