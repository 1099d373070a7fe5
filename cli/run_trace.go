package cli

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/trace"
)

// notWithTrace are flags of run that a trace replaces.
var notWithTrace = []string{
	"workload", "mix", "distribution", "zipf", "scramble", "move", "value-size", "rate", "duration", "ops", "no-load", "load-only",
}

// readTrace reads the file of --trace, and sets the configuration that the trace decides. changed
// reports whether a flag was typed.
func (f *runFlags) readTrace(changed func(flag string) bool) error {
	for _, name := range notWithTrace {
		if changed(name) {
			return fmt.Errorf("--trace and --%s contradict each other: the trace says which operations there are", name)
		}
	}
	file, err := os.Open(f.trace)
	if err != nil {
		return fmt.Errorf("--trace: %w", err)
	}
	defer func() { _ = file.Close() }() // only read, so the error does not matter
	if f.ops, err = trace.Read(file, f.limit); err != nil {
		return fmt.Errorf("--trace %s: %w", f.trace, err)
	}
	if len(f.ops) == 0 {
		return fmt.Errorf("--trace %s: it has no operations", f.trace)
	}
	c := &f.config
	c.Workload = kv.Workload{Name: "trace " + filepath.Base(f.trace), Read: 1}
	c.Sizes = nil
	keys := map[uint64]bool{}
	for i := range f.ops {
		op := &f.ops[i]
		op.Client %= max(1, f.clients)
		keys[op.Key] = true
		switch op.Kind {
		case kv.KindScan:
			c.Workload.Scan = 1 // the store must support scans
		case kv.KindUpdate, kv.KindInsert, kv.KindReadModify:
			if c.Sizes == nil {
				c.Sizes = &kv.Sizes{Min: op.Size, Max: op.Size}
			}
			c.Sizes.Min, c.Sizes.Max = min(c.Sizes.Min, op.Size), max(c.Sizes.Max, op.Size)
		default:
		}
	}
	if c.Sizes == nil {
		c.Sizes = &kv.Sizes{Min: kv.MinValue, Max: kv.MinValue}
	}
	if f.noLoad = !changed("keys"); f.noLoad {
		c.Keys = uint64(len(keys))
	}
	if !changed("warmup") {
		c.Warmup = 0
	}
	return nil
}

// maxTrace bounds a packed trace in bytes, because it must fit into a request to a daemon.
const maxTrace = 700 << 10

// part returns the packed operations of count clients, beginning with the client `first`.
func (f *runFlags) part(host string, first, count int) ([]byte, error) {
	if f.ops == nil {
		return nil, nil
	}
	var own []kv.Op
	for _, op := range f.ops {
		if op.Client >= first && op.Client < first+count {
			own = append(own, op)
		}
	}
	packed, err := trace.Pack(own)
	if err == nil && len(packed) > maxTrace {
		err = fmt.Errorf("the trace's %d operations for host %s have %d bytes, compressed; at most %d can be sent: --limit %d replays its beginning",
			len(own), host, len(packed), maxTrace, len(f.ops)/(len(packed)/maxTrace+1))
	}
	return packed, err
}

func convertCmd() *cobra.Command {
	var from string
	var limit int
	cmd := &cobra.Command{
		Use:   "convert FILE --from FORMAT",
		Short: "Convert a public cache trace to the format of `rdmalab run ycsb --trace`",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(trace.Formats, from) {
				return badUse("--from %.20q: %suse %s", from, nearest.Meant(from, trace.Formats), strings.Join(trace.Formats, " or "))
			}
			in, err := openInput(cmd, args[0])
			if err != nil {
				return asUse(err)
			}
			defer in.Close() // only read, so the error does not matter
			c, err := trace.Convert(bufio.NewReader(in), from, limit)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			_, _ = fmt.Fprintln(cmd.ErrOrStderr(), c.Describe())
			return trace.Write(cmd.OutOrStdout(), c.Ops)
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "the format of FILE: "+strings.Join(trace.Formats, " or ")+" (required)")
	cmd.Flags().IntVar(&limit, "limit", 0, "print at most this many operations (default: all)")
	_ = cmd.MarkFlagRequired("from") // the flag exists
	complete(cmd, "from", trace.Formats...)
	return cmd
}

func generateCmd() *cobra.Command {
	f := runFlags{store: store.Default().Name}
	var n int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Print a synthetic trace for `rdmalab run ycsb --trace`",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.typed = cmd.Flags().Changed
			if err := f.checkKeys(); err != nil {
				return asUse(err)
			}
			if err := f.checkSizes(); err != nil {
				return asUse(err)
			}
			f.config.Clients, f.config.Ops = f.clients, 1
			if err := f.config.Validate(); err != nil {
				return asUse(err)
			}
			if n < 1 || n > trace.MaxOps || f.config.Rate <= 0 {
				return badUse("--operations %d, --rate %g: want 1 to %d operations and a rate above 0", n, f.config.Rate, trace.MaxOps)
			}
			ops := kv.Generate(f.config, n, seed, func() bool { return cmd.Context().Err() != nil })
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			return trace.Write(cmd.OutOrStdout(), ops)
		},
	}
	fs := cmd.Flags()
	f.keyFlags(fs)
	fs.IntVar(&f.clients, "clients", 16, "number of clients; each executes its operations one after the other")
	fs.Float64Var(&f.config.Rate, "rate", 1000, "operations that each client starts per second, 0.001 to 1e9; sets the column time_us")
	fs.IntVar(&n, "operations", 1000, fmt.Sprintf("number of operations of all clients together, 1 to %d", trace.MaxOps))
	fs.Uint64Var(&seed, "seed", 1, "seed of the operations")
	return cmd
}
