package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/spans"
)

// spanFlags say which operations of a run become OpenTelemetry spans, and where these go.
type spanFlags struct {
	to   string // a file, or the URL of a receiver; "": nowhere
	each int    // operations of each client
}

const (
	// spansEach is the default of --spans-each.
	spansEach = 20
	// maxSpans bounds the operations of a run that become spans.
	maxSpans = 100_000
)

func (f *spanFlags) flags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.to, "spans", "", "write operations as OpenTelemetry spans (an operation and its phases) to this `FILE`, or to a receiver of OTLP over HTTP "+
		"whose address begins with http:// or https://, like http://localhost:4318")
	fs.IntVar(&f.each, "spans-each", spansEach, "with --spans: how many operations of each client, the first ones that are counted")
	must(cmd.MarkFlagFilename("spans", "json"))
	writesFile(cmd, "spans")
}

func (f *spanFlags) receiver() bool {
	return strings.HasPrefix(f.to, "http://") || strings.HasPrefix(f.to, "https://")
}

// check checks the flags, and whether a file can be written there. It leaves no file.
func (f *spanFlags) check(clients int, loadOnly bool, typed func(flag string) bool) error {
	switch {
	case f.to == "" && typed("spans-each"):
		return errors.New("--spans-each says how many operations become spans: use it with --spans FILE or URL")
	case f.to == "":
		return nil
	case loadOnly:
		return errors.New("--spans is of the workload's operations, and --load-only has none: use one of them")
	case f.each < 1 || f.each > kv.MaxSpans:
		return fmt.Errorf("--spans-each %d: want 1 to %d", f.each, kv.MaxSpans)
	case f.each*clients > maxSpans:
		return fmt.Errorf("--spans-each %d with --clients %d: want at most %d operations in all", f.each, clients, maxSpans)
	case f.receiver():
		return nil
	}
	if info, err := os.Stat(f.to); err == nil && info.IsDir() {
		return fmt.Errorf("--spans %s: that is a directory; name a file", f.to)
	}
	file, err := newPendingFile(f.to)
	if err != nil {
		return fmt.Errorf("--spans: %w", err)
	}
	file.discard()
	return nil
}

// write replaces the file that the flag names, or leaves it as it is.
func (f *spanFlags) write(list []kv.Span, of spans.About) error {
	file, err := newPendingFile(f.to)
	if err != nil {
		return err
	}
	defer file.discard()
	var text bytes.Buffer
	if err := spans.Write(&text, list, of); err != nil {
		return err
	}
	return file.publish(text.Bytes(), 0o644)
}

// export writes the operations to where the flags say. A line on told says how many.
func (f *spanFlags) export(ctx context.Context, told io.Writer, list []kv.Span, of spans.About) (err error) {
	switch {
	case f.to == "":
		return nil
	case f.receiver():
		err = spans.Post(ctx, f.to, list, of)
	default:
		err = f.write(list, of)
	}
	if err != nil {
		return fmt.Errorf("--spans: %w", err)
	}
	_, _ = fmt.Fprintf(told, "%d operations are spans in %s\n", len(list), f.to)
	return nil
}
