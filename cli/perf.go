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
		Use:   "perf TEST --from HOST --to HOST",
		Short: "Measure and verify the path between two hosts",
		Long: "perf runs a test between two hosts of the rack, the client (--from) and the server (--to). It prints bandwidth and\n" +
			"latency in the columns of the program perftest (bytes, iterations, MiB/s and millions of messages per second, or\n" +
			"microseconds). TEST is one of\n\n" +
			"  write_bw read_bw send_bw atomic_bw  bandwidth and message rate\n" +
			"  write_lat read_lat atomic_lat       latency: time from the post of an operation to its completion\n" +
			"  send_lat                            latency: half of the round trip of a message and its echo\n" +
			"  contend                             clients (--clients) repeat CAS on one word, the last one of the memory that\n" +
			"                                      the server shares with all clients, also those of stores; prints the rate of\n" +
			"                                      CAS, and how many changed the word\n" +
			"  locks                               clients (--clients) take and release one lock, the same word as with contend;\n" +
			"                                      prints the numbers of CAS and of locks taken, and median and 99th percentile of\n" +
			"                                      the time to get a lock\n" +
			"  verify                              WRITE, READ, CAS and FAA, one or two of each; compares the bytes; prints how\n" +
			"                                      long each took and whether it is right, and ends at the first that is wrong\n" +
			"  soak                                --iters WRITEs, as many READs and as many SENDs, then --atomics CAS and FAA;\n" +
			"                                      verifies every byte; prints how many of each, and how much the NIC's counters grew\n" +
			"  onerma_read_bw onerma_write_bw      as read_bw, write_bw, read_lat and write_lat, but over the hosts' 1RMA NICs, which\n" +
			"  onerma_read_lat onerma_write_lat    have no connections (SIGCOMM 2020) and need `onerma: {}` in the rack file; a\n" +
			"                                      message is divided into operations of at most 4 KiB, and an operation that\n" +
			"                                      fails is tried again\n" +
			"  raw_bw raw_lat                      Ethernet frames without RDMA, each as long as the packet of a WRITE of the same\n" +
			"                                      bytes, for comparison; raw_bw divides a message of --size into frames of at most\n" +
			"                                      4096 bytes of payload (less if the link's MTU is smaller), raw_lat sends only\n" +
			"                                      the first of them and waits for an answer\n\n" +
			"The names of programs of perftest are tests, too (ib_write_bw for write_bw), and its flags -s, -n, -D, -a, -b, -q N,\n" +
			"-m, -I, -t, -Q, -x, -c and --report_gbits mean what they mean there. With --all, a test runs once for each power of\n" +
			"two from 2 bytes to 8 MiB, or to --size, and prints one table. With --bidirectional both hosts send at the same\n" +
			"time; the result is the sum. With --duration a test runs for that many seconds.\n\n" +
			"Of the flags that change a test, tests over 1RMA NICs use only --size, --iters, --tx-depth, --cq-mod, --verify,\n" +
			"--seed and --op-timeout, raw_bw only --size, --iters and --tx-depth, and raw_lat only --size and --iters.\n\n" +
			"SEND tests (send_bw and send_lat) can use RC, UC or UD (-c) and a shared receive queue at the server (--srq);\n" +
			"send_bw can also use several queue pairs (--qps). The bandwidth of send_bw counts only delivered messages. contend,\n" +
			"locks and verify need a server with memory.\n\n" +
			"The exit status is 1 if an operation failed or had a wrong result. In send_bw over UC and UD, a lost message is no\n" +
			"failure, and perf prints how many were lost; send_lat fails if a message or its echo is lost. A raw test does not\n" +
			"fail because frames are lost (-o json has their number); it fails if it cannot reach the server, or has waited 20\n" +
			"times in a row without an answer. No flag takes the value 0: leave a flag out for its default.\n\n" +
			"With --peer perftest the other end is the program perftest (version 4.5), on any machine. If --to is given, it is\n" +
			"the address of perftest's server. Otherwise the host of --from waits as the server. With --peer, TEST is a bandwidth\n" +
			"or latency test of WRITE, READ, SEND or atomics, over RC on one queue pair. Of the flags that change a test, only\n" +
			"--size, --iters, --mtu, --tx-depth, --outs, --type, --ipv6, --port, --timeout and --op-timeout can be used. Their\n" +
			"defaults are then those of perftest: 5000 iterations for write_bw and 1000 for all others, 65536 bytes for\n" +
			"bandwidth, 2 bytes for latency; but --timeout is 16 (268 ms), and perftest's ACK timeout is 14 (67 ms). Both ends\n" +
			"need the same --size and --iters. perf then prints one line: the queue pairs, bytes, iterations, microseconds per\n" +
			"iteration, and MiB/s.",
		Example: "  rdmalab perf write_bw --from cn0 --to ms0 --size 64KiB --iters 2000 --verify\n" +
			"  rdmalab perf atomic_lat --from cn0 --to ms0 --type cas\n" +
			"  rdmalab perf ib_write_bw --from cn0 --to ms0 -a -n 200 --report_gbits\n" +
			"  rdmalab perf read_bw --from cn0 --to cn1 -b -D 5 -q 4\n" +
			"  rdmalab inject loss 10% --link cn0 && rdmalab perf soak --from cn0 --to ms0 --timeout 12\n" +
			"  rdmalab perf send_bw --from cn0 --to ms0 -c ud --size 1024 --qps 4 --srq --verify\n" +
			"  rdmalab perf read_lat --from cn1 --to ms1 -o json | jq .lat.p99Usec\n" +
			"  rdmalab perf write_bw --peer perftest --from cn0 --to 10.77.0.200 --iters 5000   # where `ib_write_bw` waits",
		Args:      f.arguments,
		ValidArgs: perfTests(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.many.prepare(cmd, &f); err != nil {
				return asUse(err)
			}
			if f.with != "" {
				return runPerftest(cmd, &f)
			}
			return runPerf(cmd, &f)
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
	fs.IntVar(&c.RecvSlack, "recvs", 0, "with send_bw and soak: receives that the server keeps posted for each queue pair, 1 to 16384 (default: one more than one and a half times --tx-depth); fewer if they would need more than 256 MiB")
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
