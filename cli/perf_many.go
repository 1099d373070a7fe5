package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/units"
)

// perfMany are the flags of perf that make several runs of one test, and how their table is printed.
type perfMany struct {
	all, both, gbits bool
	duration         string
	gid              int
	units            string
	qps              int // connections that run at the same time; 1 in tests over lanes
}

// Sizes of --all, in bytes.
const (
	leastSwept = 2
	mostSwept  = 8 << 20
)

func (m *perfMany) define(fs *pflag.FlagSet) {
	fs.BoolVarP(&m.all, "all", "a", false, "run the test once for each power of two from 2 bytes to --size (default 8MiB; over ud 1KiB)")
	fs.BoolVarP(&m.both, "bidirectional", "b", false, "with bandwidth tests over RoCEv2: both hosts send at the same time")
	fs.StringVarP(&m.duration, "duration", "D", "", "run bandwidth and latency tests over one RC connection, and locks, for this time in place of --iters: seconds, or like 1m30s, up to 1h")
	fs.IntVarP(&m.gid, "gid-index", "x", 0, "the address to connect by its index in the list of the NIC: 0 and 2 are IPv4, 1 is IPv6, as --ipv6")
	fs.StringVar(&m.units, "units", "", "unit of bandwidth in the table: MiB, MB (10^6 bytes) or Gb (10^9 bits) a second (default MiB)")
	fs.BoolVar(&m.gbits, "report_gbits", false, "the same as --units Gb")
}

// arguments takes the name of a test. -q is --quiet; a number behind it is that of queue pairs, as in
// perftest.
func (f *perfFlags) arguments(cmd *cobra.Command, args []string) error {
	if f.quiet && len(args) == 2 {
		for i, word := range args {
			if n, err := strconv.Atoi(word); err == nil {
				f.quiet, f.config.QPs = false, n
				args = []string{args[1-i]}
				break
			}
		}
	}
	if len(args) == 3 && f.from == "" && f.to == "" {
		return badUse("hosts are given by flags; write: rdmalab perf %s --from %s --to %s (see `rdmalab perf --help`)", args[0], args[1], args[2])
	}
	if len(args) == 1 {
		f.config.Test = strings.TrimPrefix(args[0], "ib_")
	}
	return cobra.ExactArgs(1)(cmd, args)
}

// prepare reads the flags that are words.
func (m *perfMany) prepare(cmd *cobra.Command, f *perfFlags) error {
	c := &f.config
	c.Conn = strings.ToLower(c.Conn)
	if m.duration != "" {
		text := m.duration
		if _, err := strconv.Atoi(text); err == nil {
			text += "s"
		}
		d, err := units.ParseDuration(text)
		if err != nil || d == 0 {
			return fmt.Errorf("--duration %q: want seconds, or a time like 500ms or 1m30s", m.duration)
		}
		if cmd.Flags().Changed("iters") {
			return errors.New("--duration and --iters contradict each other: give one")
		}
		c.Span = d
	}
	if cmd.Flags().Changed("gid-index") {
		if m.gid < 0 || m.gid > 2 {
			return fmt.Errorf("--gid-index %d: a host has 0 and 2, IPv4, and 1, IPv6", m.gid)
		}
		f.ipv6 = m.gid == 1
		must(cmd.Flags().Lookup("gid-index").Value.Set("1")) // 0 is a value of this flag
	}
	if m.gbits && m.units != "" && !strings.EqualFold(m.units, "gb") {
		return errors.New("--report_gbits and --units contradict each other: give one")
	}
	if m.gbits {
		m.units = "Gb"
	}
	if m.units != "" && m.unitIndex() < 0 {
		return fmt.Errorf("--units %.40q: %swant MiB, MB or Gb", m.units, nearest.Meant(m.units, []string{"MiB", "MB", "Gb"}, map[string]string{"gbit": "Gb", "gbps": "Gb", "gbits": "Gb", "mbps": "MB", "mib/s": "MiB"}))
	}
	return nil
}

func (m *perfMany) unitIndex() int {
	return slices.IndexFunc(perf.Rates(), func(r perf.Rate) bool {
		return strings.EqualFold(strings.TrimSuffix(m.units, "/s"), strings.TrimSuffix(r.Name, "/sec"))
	})
}

func (m *perfMany) unit() perf.Rate { return perf.Rates()[max(0, m.unitIndex())] }

// check refuses what does not go together, and takes the queue pairs of tests that have one each.
func (m *perfMany) check(c *perf.Config) error {
	bandwidth, known := strings.HasSuffix(c.Test, "_bw"), slices.Contains(perf.Tests(), c.Test)
	m.qps = 1
	switch {
	case m.all && !known || m.all && (!bandwidth && !strings.HasSuffix(c.Test, "_lat") || strings.HasPrefix(c.Test, "atomic")):
		return errors.New("--all is for bandwidth and latency tests of WRITE, READ and SEND")
	case m.all && c.Size != 0 && c.Size < leastSwept:
		return fmt.Errorf("--size %d: with --all it is the largest size, and the least is %d", c.Size, leastSwept)
	case m.both && (!bandwidth || !known):
		return errors.New("--bidirectional is for write_bw, read_bw, send_bw and atomic_bw")
	case c.QPs < 0 || c.QPs > perf.MaxQPs:
		return fmt.Errorf("--qps %d: want 1 to %d", c.QPs, perf.MaxQPs)
	case c.QPs > 1 && (!bandwidth || !known):
		return errors.New("several queue pairs are for write_bw, read_bw, send_bw and atomic_bw")
	case c.Test != perf.SendBW && c.QPs > 1:
		m.qps, c.QPs = c.QPs, 0
		if c.Iters > 0 {
			c.Iters = max(1, c.Iters/m.qps)
		}
	}
	return nil
}

// more reports whether the command makes more than one run.
func (m *perfMany) more() bool { return m.all || m.both || m.qps > 1 }

// sizes returns the sizes of messages, one of each run.
func (m *perfMany) sizes(c *perf.Config) (list []int) {
	if !m.all {
		return []int{c.Size}
	}
	most := c.Size
	switch {
	case most == 0 && c.Conn == perf.ConnUD:
		most = 1024
	case most == 0:
		most = mostSwept
	}
	for n := leastSwept; n <= most; n *= 2 {
		list = append(list, n)
	}
	return list
}

// runMany makes the runs of --all, --bidirectional and --qps one size after the other, and prints one table.
func (f *perfFlags) runMany(cmd *cobra.Command, client *control.Client) (err error) {
	if f.breakdown {
		return badUse("--breakdown follows one run: leave out --all, --bidirectional and --qps")
	}
	ends := []*perfEnd{{client: client, host: f.from, config: f.config}}
	if f.many.both {
		back := f.config
		back.To = f.from
		if f.ipv6 {
			spec, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			h, _, _ := spec.Host(f.from)
			back.To = h.IPv6.String()
		}
		other, err := hostControl(cmd, f.to)
		if err != nil {
			return err
		}
		ends = append(ends, &perfEnd{client: other, host: f.to, config: back})
	}
	results := []*perf.Result{}
	asJSON := wantJSON(cmd)
	told := newPace(cmd, f.quiet || asJSON, progressEvery)
	sizes := f.many.sizes(&f.config)
	for i, size := range sizes {
		told.done("sizes", i, len(sizes))
		var parts []*perf.Result
		if parts, err = runAtOnce(cmd.Context(), ends, f.many.qps, size); err != nil {
			break
		}
		sum := perf.Sum(parts)
		sum.Both = f.many.both
		if f.many.qps > 1 {
			sum.Config.QPs = f.many.qps
		}
		results = append(results, sum)
	}
	switch {
	case asJSON:
		return errors.Join(printJSON(cmd, results), err)
	case len(results) > 0:
		return errors.Join(perf.WriteTable(cmd.OutOrStdout(), results, f.many.unit()), err)
	}
	return err
}

// perfEnd is a host that runs a test, as a client of another host.
type perfEnd struct {
	client *control.Client
	host   string
	config perf.Config
}

// runAtOnce makes n runs of each end at the same time, with messages of size bytes, and waits for all.
func runAtOnce(ctx context.Context, ends []*perfEnd, n, size int) ([]*perf.Result, error) {
	results, errs := make([]*perf.Result, n*len(ends)), make([]error, n*len(ends))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wait sync.WaitGroup
	for i := range results {
		end := ends[i%len(ends)]
		config := end.config
		config.Size = size
		wait.Go(func() {
			ev, err := followPerf(ctx, end.client, &config, func(perf.Progress) {})
			if results[i] = ev.Result; err != nil {
				errs[i] = fmt.Errorf("host %s: %w", end.host, err)
				stop() // the other runs are of no use
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	return results, nil
}

// progressEvery is the interval between lines of progress.
const progressEvery = 3 * time.Second
