package cli

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/perftestpeer"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/units"
)

type pingpongFlags struct {
	on, size string
	port     uint16
	ipv6     bool
	config   perftestpeer.Pingpong
}

func pingpongCmd() *cobra.Command {
	var f pingpongFlags
	cmd := &cobra.Command{
		Use:       "pingpong rc|uc|ud|srq [SERVER] --on HOST",
		Short:     "Be one end of ibv_rc_pingpong, or of its variants for UC, UD and SRQ",
		Args:      cobra.RangeArgs(1, 2),
		ValidArgs: []string{"rc", "uc", "ud", "srq"},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.config.Type = args[0]
			if len(args) == 2 {
				return f.run(cmd, args[1])
			}
			return f.run(cmd, "")
		},
	}
	fs, c := cmd.Flags(), &f.config
	fs.StringVar(&f.on, "on", "", "host of the rack that is this end (required)")
	fs.StringVar(&f.size, "size", "", "bytes of a message, like 8 or 64KiB; up to 8MiB, with ud up to 4096 (default 4096, with ud 2048)")
	fs.IntVar(&c.Iters, "iters", 0, "messages in each direction, 1 to 10000000 (default 1000)")
	fs.IntVar(&c.MTU, "mtu", 0, "path MTU in bytes: 256, 512, 1024, 2048 or 4096; no effect with ud (default 1024)")
	fs.IntVar(&c.Depth, "rx-depth", 0, "how many receives are kept posted, 1 to 4096; fewer if that many messages need more than 16MiB (default 500)")
	fs.IntVar(&c.QueuePairs, "qps", 0, "with srq: number of queue pairs, 1 to 127, at most --rx-depth (default 16)")
	fs.Uint16Var(&f.port, "port", 0, "TCP port on which the ends exchange parameters (default 18515)")
	store.Renamed(fs, map[string]string{"patience": "op-timeout"})
	fs.BoolVar(&f.ipv6, "ipv6", false, "announce the IPv6 address of --on, so that RoCEv2 runs over IPv6; give it at both ends (default: IPv4)")
	fs.DurationVar(&c.Patience, "op-timeout", 0, "pingpong fails after waiting this long for one message (default 30s)")
	must(cmd.MarkFlagRequired("on"))
	completeHost(cmd, "on")
	complete(cmd, "mtu", mtus...)
	outputFlag(cmd)
	return cmd
}

func (f *pingpongFlags) run(cmd *cobra.Command, to string) error {
	if f.size != "" {
		n, err := units.ParseSize(f.size)
		if err != nil {
			return badUse("--size: %w", err)
		}
		f.config.Size = int(min(n, perftestpeer.MaxSize+1))
	}
	f.config.Source = source(f.ipv6)
	zeros := refuseZeros(cmd.Flags()) // before Validate, which puts defaults into the variables of the flags
	if err := asUse(errors.Join(f.config.Validate(), zeros)); err != nil {
		return err
	}
	return runPeer(cmd, f.on, hostd.PeerRequest{Pingpong: &f.config, To: to, Port: f.port})
}

// source returns which of a host's addresses an end announces, as an index: 1 is the host's IPv6
// address, and -1 stands for its first IPv4 address.
func source(ipv6 bool) int { return either(ipv6, 1, -1) }

// peerFlags are the flags of perf that have an effect with --peer. A test with a peer prints no
// progress, as --quiet asks for.
var peerFlags = []string{
	"from", "to", "peer", "port", "size", "iters", "mtu", "tx-depth", "outs", "type", "timeout", "ipv6", "op-timeout", "quiet", "output",
}

// withoutEffect returns the name of a flag that was set and is not in peerFlags, or "".
func withoutEffect(cmd *cobra.Command) (name string) {
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Changed && name == "" && !slices.Contains(peerFlags, f.Name) {
			name = f.Name
		}
	})
	return name
}

func runPerftest(cmd *cobra.Command, f *perfFlags) error {
	if f.with != "perftest" {
		return badUse("--peer %q: want perftest", f.with)
	}
	if name := withoutEffect(cmd); name != "" {
		return badUse("--%s has no effect with --peer perftest: leave it out", name)
	}
	c := &f.config
	p := perftestpeer.Perftest{
		Test: c.Test, Iters: c.Iters, MTU: c.MTU, Depth: c.Depth, Outs: c.RdAtomic, Type: c.Type, Source: source(f.ipv6),
		Timeout: c.Timeout, Patience: c.Patience,
	}
	if f.size != "" {
		n, err := units.ParseSize(f.size)
		if err != nil {
			return badUse("--size: %w", err)
		}
		p.Size = int(min(n, perftestpeer.MaxSize+1))
	}
	if err := asUse(errors.Join(p.Validate(), refuseZeros(cmd.Flags()))); err != nil {
		return err
	}
	return runPeer(cmd, f.from, hostd.PeerRequest{Perftest: &p, To: f.to, Port: f.port})
}

func runPeer(cmd *cobra.Command, host string, q hostd.PeerRequest) error {
	client, err := hostControl(cmd, host)
	if err != nil {
		return err
	}
	if err := awake(cmd.Context(), client, host); err != nil {
		return err
	}
	var res *perftestpeer.Result
	err = control.Items(cmd.Context(), client, http.MethodPost, hostd.PathPeer, q, func(ev hostd.PeerEvent) error {
		if ev.Listening != "" {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s waits at %s\n", host, ev.Listening) // a note for the user, which may be lost
		}
		if ev.Result != nil {
			res = ev.Result
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("host %s: %w", host, err)
	case res == nil:
		return errors.New("the run ended without a result: see `rdmalab logs`")
	case wantJSON(cmd):
		return printJSON(cmd, res)
	}
	peer := ""
	if res.PeerQPN != 0 { // srq has several
		peer = fmt.Sprintf(", peer's %#06x", res.PeerQPN)
	}
	return say(cmd, "queue pair %#06x%s: %d bytes in %d iterations, %.2f usec/iter, %.2f MiB/s", res.QPN, peer, res.Bytes, res.Iters, res.Usec, res.MiBps)
}
