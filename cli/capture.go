package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// captureFlags are the flags of capture and of switch trace.
type captureFlags struct {
	file, dir string
	count     uint64
	lasting   time.Duration
	snaplen   int
	ladder    bool
}

func captureCmd() *cobra.Command {
	var flags captureFlags
	cmd := &cobra.Command{
		Use:               "capture [HOST…]",
		Short:             "Capture links as pcapng, with a comment on each packet that a fault or the switch touched",
		ValidArgsFunction: everyArgument(linkNames),
		RunE:              func(cmd *cobra.Command, links []string) error { return runCapture(cmd, links, &flags) },
	}
	flags.define(cmd)
	addSwitchFlag(cmd)
	cmd.Flags().StringVarP(&flags.file, "write", "w", "-", "file to write; - is standard output, which must not be a terminal")
	writesFile(cmd, "write")
	cmd.Flags().BoolVar(&flags.ladder, "ladder", false, "draw a ladder of the packets instead of writing them")
	cmd.Flags().IntVar(&flags.snaplen, "snaplen", 0, "keep only this many bytes of each packet (default: all)")
	return cmd
}

func (f *captureFlags) define(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.dir, "dir", "both", "direction: up (from the host to the switch), down (from the switch to the host) or both")
	cmd.Flags().Uint64Var(&f.count, "count", 0, "end after this many packets (default: no limit)")
	cmd.Flags().DurationVar(&f.lasting, "for", 0, "end after this time, like 10s; --duration is the same (default: when it is interrupted)")
	cmd.Flags().SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "duration" { // its name in run and perf
			name = "for"
		}
		return pflag.NormalizedName(name)
	})
	completeFlag(cmd, "dir", words("up", "down", "both"))
}

func runCapture(cmd *cobra.Command, links []string, flags *captureFlags) error {
	query, err := flags.query(cmd, links)
	if err != nil {
		return err
	}
	if flags.ladder {
		if err := ladderFile(flags.file); err != nil {
			return err
		}
	} else if flags.file == "-" && isTerminal(os.Stdout) {
		return badUse("pcapng is not readable on a terminal: give -w FILE, or pipe it: rdmalab capture | rdmalab dump -")
	}
	stream, err := openCaptures(cmd, query)
	if err != nil {
		return err
	}
	defer stream.Close() // the stream was only read, so its error does not matter
	defer flags.tellWait(cmd, "capturing", links)()
	if flags.ladder {
		return flags.draw(cmd, stream)
	}
	return flags.write(cmd, stream)
}

// query returns the parameters of the request to the switch that starts a capture. It returns an
// error if the rack lacks one of the links.
func (f *captureFlags) query(cmd *cobra.Command, links []string) (url.Values, error) {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	for _, l := range links {
		if err := checkLink(rack, l); err != nil {
			return nil, err
		}
	}
	q := url.Values{"link": links}
	switch f.dir {
	case "up", "down":
		q.Set("dir", f.dir)
	case "both":
	default:
		return nil, badUse("--dir %.40q is unknown; %suse one of up, down, both", f.dir, nearest.Meant(f.dir, []string{"up", "down", "both"}, fault.OtherWords))
	}
	if f.snaplen < 0 || f.lasting < 0 {
		return nil, badUse("--snaplen and --for cannot be negative")
	}
	if f.snaplen > 0 {
		q.Set("snaplen", strconv.Itoa(f.snaplen))
	}
	if f.lasting > 0 {
		q.Set("for", f.lasting.String())
	}
	return q, nil
}

// quietWait is how long a capture says nothing where standard error is no terminal.
const quietWait = time.Minute

// waits says what the command, which is doing this, waits for; "" if it ends by itself.
func (f *captureFlags) waits(doing string, links []string) string {
	if f.lasting > 0 {
		return ""
	}
	until := "until it is interrupted (Ctrl-C)"
	if f.count > 0 {
		until = fmt.Sprintf("until it has %s, or is interrupted (Ctrl-C)", count(int(min(f.count, math.MaxInt)), "packet")) //nolint:gosec // bounded
	}
	at := "all links"
	if len(links) > 0 {
		at = strings.Join(links, ", ")
	}
	return fmt.Sprintf("%s %s %s; --for limits the time", doing, at, until)
}

// tellWait says what the capture waits for, on a terminal at once, elsewhere after a while. stop ends that.
func (f *captureFlags) tellWait(cmd *cobra.Command, doing string, links []string) (stop func()) {
	text := f.waits(doing, links)
	if text == "" {
		return func() {}
	}
	told := time.AfterFunc(either(isTerminal(os.Stderr), 0, quietWait), func() { fmt.Fprintln(cmd.ErrOrStderr(), text) })
	return func() { told.Stop() }
}

// write copies the capture from the switch's stream to the file or pipe of the flag -w. At the end
// it prints the number of packets.
func (f *captureFlags) write(cmd *cobra.Command, stream io.Reader) (err error) {
	out := cmd.OutOrStdout()
	var file *os.File
	if f.file == "-" {
		// When the reader of the pipe has ended, writing must return an error: by default, SIGPIPE
		// would end this process without a message.
		signal.Ignore(syscall.SIGPIPE)
	} else {
		if file, err = os.Create(f.file); err != nil {
			return asUse(err) // nothing was captured
		}
		defer func() {
			if cerr := file.Close(); err == nil && cerr != nil {
				err = fmt.Errorf("%s: %w", f.file, cerr)
			}
		}()
		out = file
	}
	c, err := pcapng.Copy(out, stream, f.count)
	var failed *pcapng.WriteError
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return diskFull(file)
	case errors.Is(err, syscall.EPIPE):
		return fmt.Errorf("the program that reads the capture has ended after about %d packets", c.Packets)
	case errors.As(err, &failed):
		return fmt.Errorf("%s: %w", f.file, err)
	case errors.Is(err, context.Canceled) || (err != nil && cmd.Context().Err() != nil):
		// The command was interrupted, which is the usual end.
	case err != nil:
		return fmt.Errorf("the capture broke off after %d packets: %w; did the switch stop? See `rdmalab status`", c.Packets, err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s captured, %d of them touched by a fault or the switch\n", count(int(c.Packets), "packet"), c.Commented) //nolint:gosec // a number of packets
	if c.Lost > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d packets are missing: the capture was too slow for them; try fewer links, --snaplen or --dir\n", c.Lost)
	}
	return nil
}

// diskFull is called when the disk is full. It truncates the file after its last complete block, so
// that the file can be read, and returns an error that says so.
func diskFull(file *os.File) error {
	if file == nil {
		return errors.New("standard output: the disk is full")
	}
	whole, err := file.Seek(0, io.SeekStart)
	if err == nil {
		var c pcapng.Copied
		c, _ = pcapng.Copy(io.Discard, file, 0) // the error is expected: the file ends in the middle of a block
		whole, err = c.Bytes, file.Truncate(c.Bytes)
	}
	return errors.Join(fmt.Errorf("%s: the disk is full; its first %d bytes can be read", file.Name(), whole), err)
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
