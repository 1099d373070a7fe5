package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/units"
)

type perfFlags struct {
	from, to, size, inline string
	with                   string
	breakdown              bool
	port                   uint16
	quiet, ipv6            bool
	many                   perfMany
	config                 perf.Config
}

var mtus = []string{"256", "512", "1024", "2048", "4096"}

func perfTests() []string {
	return slices.Concat(perf.Tests(), perf.OneRMATests(), []string{perf.RawBW, perf.RawLat})
}

func perfCmd() *cobra.Command {
	var f perfFlags
	cmd := &cobra.Command{
		Use:       "perf TEST --from HOST --to HOST",
		Short:     "Measure and verify the path between two hosts",
		Args:      f.arguments,
		ValidArgs: perfTests(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.many.prepare(cmd, &f); err != nil {
				return asUse(err)
			}
			if f.with != "" {
				return strictly(cmd, func() error { return runPerftest(cmd, &f) })
			}
			return strictly(cmd, func() error { return runPerf(cmd, &f) })
		},
	}
	f.define(cmd)
	outputFlag(cmd)
	return cmd
}

func (f *perfFlags) define(cmd *cobra.Command) {
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&f.from, "from", "", "host that is the client, and measures (required); with --peer and without --to it is the server")
	fs.StringVar(&f.to, "to", "", "host that is the server (required without --peer); with --peer the address of perftest's server")
	fs.StringVar(&f.with, "peer", "", "perftest: the other end is the program perftest (default: another host of the rack)")
	fs.Uint16Var(&f.port, "port", 0, "with --peer: TCP port on which the two ends exchange their parameters (default 18515)")
	fs.StringVarP(&f.size, "size", "s", "", "bytes of a message, like 8 or 64KiB; up to 64MiB, over ud up to the largest path MTU of the link, with --peer up to 8MiB (default 64KiB for bandwidth and soak, 4KiB for send_bw over ud, "+
		"16KiB for verify, 8 for latency, raw_bw and raw_lat; with --peer 2 for latency); always 8 in atomic_bw, atomic_lat, contend and locks")
	fs.IntVarP(&c.Iters, "iters", "n", 0, "number of messages or operations (default 5000 for bandwidth, 1000 for latency, 2000 of each kind for soak, "+
		"20000 CAS of all clients together for contend, 50000 for raw_bw, 5000 for raw_lat; with --peer 5000 for write_bw, otherwise 1000); no effect on verify and on locks, which runs for 1s")
	fs.IntVar(&c.Atomics, "atomics", 0, "with soak: number of CAS and FAA together; a negative number means none (default 20000)")
	fs.IntVarP(&c.Depth, "tx-depth", "t", 0, "how many work requests may be posted and not yet completed on each queue pair, 1 to 4096; over 1RMA NICs how many messages, 1 to 1024; "+
		"in raw_bw how many frames (default 128; 16 for atomic_bw and soak); fewer if more than 64 MiB of messages would be in flight (not in raw_bw and 1RMA tests); "+
		"always 1 in latency tests, contend, locks and verify")
	fs.IntVarP(&c.SignalEvery, "cq-mod", "Q", 0, "request a completion only of every n-th message (default: a quarter of --tx-depth, at most 16); used by bandwidth tests over RC, by the SENDs of soak, "+
		"and by bandwidth tests over 1RMA NICs; no effect on RoCEv2 tests if --verify is given")
	fs.StringVarP(&c.Conn, "connection", "c", "", "transport service of send_bw and send_lat: rc, uc or ud (default rc)")
	fs.IntVar(&c.QPs, "qps", 0, "with bandwidth tests: number of queue pairs, 1 to 64, also -q N (default 1); send_bw uses them in turn, the others divide the messages among connections that work at the same time")
	fs.BoolVar(&c.SRQ, "srq", false, "the server of a SEND test takes its receives from a shared receive queue")
	fs.IntVar(&c.Clients, "clients", 0, fmt.Sprintf("with contend and locks: number of clients, 1 to %d, each a queue pair with one operation in flight (default 1)", perf.MaxClients))
	fs.StringVar(&c.Type, "type", "", "with atomic_bw and atomic_lat: cas or faa (default faa)")
	fs.StringVarP(&f.inline, "inline", "I", "", "copy the bytes of WRITEs and SENDs up to this size, like 64, at most 4KiB, into the work request (inline) (default: none); no effect on READs and atomics")
	fs.BoolVar(&c.Verify, "verify", false, "compare every byte of every message (verify and soak always do); no effect on contend, locks and raw tests")
	fs.IntVarP(&c.MTU, "mtu", "m", 0, "path MTU in bytes: 256, 512, 1024, 2048 or 4096 (default: the largest that the link allows)")
	fs.Uint8Var(&c.Timeout, "timeout", 0, "ACK timeout of reliable connections as code n, 1 to 31: 4.096us * 2^n (default 15, which is 134 ms; with --peer 16)")
	fs.Uint8Var(&c.RetryCount, "retry", 0, "retries after a timeout or sequence NAK, 1 to 7 (default 7)")
	fs.Uint8Var(&c.RNRRetry, "rnr-retry", 0, "retries after an RNR NAK, 1 to 6; 7: without end (default 7)")
	fs.IntVar(&c.RdAtomic, "outs", 0, "how many of the posted READs and atomics the NIC has in flight on a queue pair, 1 to 255; with --peer 1 to 128 (default 16)")
	fs.IntVar(&c.RecvSlack, "recvs", 0, "with send_bw and soak: receives that the server keeps posted for each queue pair, 1 to 16384 (default: 512, or one more than one and a half times --tx-depth if that is more); fewer if they would need more than 256 MiB")
	fs.Uint64Var(&c.Seed, "seed", 0, "seed of the bytes of messages and of the order of atomics (default 1)")
	fs.DurationVar(&c.Patience, "op-timeout", 0, "the test fails after waiting this long for one completion (default 30s)")
	store.Renamed(fs, map[string]string{"patience": "op-timeout"})
	fs.BoolVar(&f.ipv6, "ipv6", false, "connect the hosts' IPv6 addresses (default: IPv4)")
	fs.BoolVar(&f.breakdown, "breakdown", false, "with read_lat, write_lat and atomic_lat: print where the time of an "+
		"operation goes, from its post to the next post")
	f.many.define(fs)
	quietFlag(cmd, &f.quiet)
	completeHost(cmd, "from")
	completeHost(cmd, "to")
	complete(cmd, "connection", "rc", "uc", "ud")
	complete(cmd, "type", "cas", "faa")
	complete(cmd, "peer", "perftest")
	complete(cmd, "mtu", mtus...)
	must(cmd.MarkFlagRequired("from"))
}

// check converts the flags that have units, and refuses values that the daemon would refuse.
func (f *perfFlags) check() error {
	c := &f.config
	if !slices.Contains(perfTests(), c.Test) {
		return fmt.Errorf("unknown test %q; %stests: %s", c.Test, testMeant(c.Test), strings.Join(perfTests(), " "))
	}
	for _, u := range []struct {
		flag, text string
		dst        *int
	}{{"size", f.size, &c.Size}, {"inline", f.inline, &c.Inline}} {
		if u.text == "" {
			continue
		}
		n, err := units.ParseSize(u.text)
		if err != nil {
			return fmt.Errorf("--%s: %w", u.flag, err)
		}
		if n < 1 || n > perf.MaxSize {
			return fmt.Errorf("--%s %s: want 1 to %d bytes", u.flag, u.text, perf.MaxSize)
		}
		*u.dst = int(n)
	}
	switch {
	case f.port != 0:
		return errors.New("--port goes with --peer perftest")
	case f.to == "":
		return errors.New("give --to, the host that is the server")
	case f.from == f.to:
		return fmt.Errorf("--from and --to are both %s; choose two hosts", f.from)
	case f.breakdown && !slices.Contains(followed, c.Test):
		return fmt.Errorf("--breakdown follows single operations: it goes with %s", strings.Join(followed, ", "))
	}
	c.To = f.to
	if err := f.many.check(c); err != nil {
		return err
	}
	if !slices.Contains(perf.Tests(), c.Test) { // the daemon checks tests of 1RMA and raw frames
		return nil
	}
	return c.Validate()
}

// valid refuses flags that were set to 0, and what check refuses, which changes some of them.
func (f *perfFlags) valid(fs *pflag.FlagSet) error { return errors.Join(refuseZeros(fs), f.check()) }

// refuseZeros refuses flags that were set to 0. For the daemon, 0 would mean the default.
func refuseZeros(fs *pflag.FlagSet) (err error) {
	fs.Visit(func(f *pflag.Flag) {
		if err == nil && (f.Value.String() == "0" || f.Value.String() == "0s") {
			err = fmt.Errorf("--%s %s: use a larger value, or leave the flag out for the default", f.Name, f.Value)
		}
	})
	return err
}

func runPerf(cmd *cobra.Command, f *perfFlags) error {
	if err := asUse(f.valid(cmd.Flags())); err != nil {
		return err
	}
	asJSON := wantJSON(cmd)
	client, err := hostControl(cmd, f.from)
	if err != nil {
		return err
	}
	if f.config.To, err = f.peer(cmd); err != nil {
		return err
	}
	if err := errors.Join(awake(cmd.Context(), client, f.from), tellSlowMotion(cmd, f.quiet || asJSON)); err != nil {
		return err
	}
	var traces *tracing
	if f.breakdown {
		if traces, err = startTracing(cmd, f); err != nil {
			return err
		}
	}
	if f.many.more() {
		return f.runMany(cmd, client)
	}
	ev, runErr := followPerf(cmd.Context(), client, &f.config, progressPrinter(cmd, f.quiet || asJSON, f.config.Span))
	parts, traceErr := traces.end()
	if ev.Result != nil {
		if asJSON {
			err = printJSON(cmd, brokenDown{ev.Result, parts})
		} else {
			err = errors.Join(perf.WriteTable(cmd.OutOrStdout(), []*perf.Result{ev.Result}, f.many.unit()), parts.WriteText(cmd.OutOrStdout()))
		}
		err = errors.Join(err, traceErr)
	}
	if runErr != nil {
		if cmd.Context().Err() != nil {
			return errInterrupted
		}
		return fmt.Errorf("host %s: %w%s", f.from, runErr, f.brokenEnds(cmd))
	}
	return err
}

// brokenEnds says which end of a failed run is not up, and how to repair it; "" if both are.
func (f *perfFlags) brokenEnds(cmd *cobra.Command) string {
	r, err := openRack(cmd)
	if err != nil {
		return ""
	}
	status, err := r.Status(cmd.Context())
	if err != nil {
		return ""
	}
	text := ""
	for i := range status.Hosts {
		if n := &status.Hosts[i]; (n.Name == f.from || n.Name == f.to) && n.State != rack.StateUp {
			text += fmt.Sprintf("; %s is %s, see `rdmalab status`", n.Name, n.State)
		}
	}
	return text
}

// peer returns what the daemon connects to: with --ipv6 the IPv6 address of the host --to,
// otherwise the host's name, which stands for its IPv4 address.
func (f *perfFlags) peer(cmd *cobra.Command) (string, error) {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return "", err
	}
	if err := checkHost(rack, f.to); err != nil {
		return "", err
	}
	h, _, _ := rack.Host(f.to)
	if most := rackfile.PathMTU(rack.LinkMTU); f.config.MTU > most && slices.Contains(perf.Tests(), f.config.Test) {
		return "", badUse("--mtu %d: the links of this rack have an MTU of %d, which holds a path MTU of %d; write --mtu %d, or pathMtu: %d in the rack file",
			f.config.MTU, rack.LinkMTU, most, most, f.config.MTU)
	}
	if f.ipv6 {
		return h.IPv6.String(), nil
	}
	return h.Name, nil
}

// followPerf runs a test on a host, and reads its stream to the end. Both the event and the error
// may be set, if a result came before the error.
func followPerf(ctx context.Context, client *control.Client, c *perf.Config, progress func(perf.Progress)) (last perf.Event, err error) {
	return streamPerf(ctx, client, c, func(ev *perf.Event) error {
		if ev.Progress != nil {
			progress(*ev.Progress)
		}
		return nil
	})
}

// streamPerf is followPerf with a function that gets every event. An error of the function ends the
// run.
func streamPerf(ctx context.Context, client *control.Client, c *perf.Config, each func(*perf.Event) error) (last perf.Event, err error) {
	err = control.Items(ctx, client, http.MethodPost, "/perf", c, func(ev perf.Event) error {
		if ev.Result != nil {
			last = ev
		}
		if ev.Error != "" {
			return errors.New(ev.Error)
		}
		return each(&ev)
	})
	if err == nil && last.Result == nil {
		err = errors.New("the run ended without a result: see `rdmalab logs`")
	}
	return last, err
}

// progressPrinter returns a function that prints progress, of a test that runs for span if it is not 0.
func progressPrinter(cmd *cobra.Command, quiet bool, span time.Duration) func(perf.Progress) {
	told := newPace(cmd, quiet, progressEvery)
	return func(p perf.Progress) {
		if span > 0 {
			told.tell("%s: %d, %v left", p.Phase, p.Done, max(0, span-time.Since(told.begun)).Round(time.Second))
			return
		}
		told.done(p.Phase, p.Done, p.Total)
	}
}
