package main

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/peer"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// pingpongFlags are the flags of pingpong as typed.
type pingpongFlags struct {
	on, size string
	port     uint16
	ipv6     bool
	config   peer.Pingpong
}

// pingpongCmd is one end of an ibv_*_pingpong.
func pingpongCmd() *cobra.Command {
	var f pingpongFlags
	cmd := &cobra.Command{
		Use:   "pingpong rc|uc|ud|srq [SERVER] --on HOST",
		Short: "Be one end of ibv_rc_pingpong, or of its sisters for uc, ud and srq",
		Long: "pingpong speaks the exchange of the programs of that name, so that the other end can be one of them, wherever it\n" +
			"runs, or another pingpong. With SERVER, an address or a host, it is the client; without, it waits for one.\n" +
			"Both ends must be told the same size, iters and mtu. Every byte that comes is compared.",
		Example: "  rdmalab pingpong rc --on ms0 &  rdmalab pingpong rc ms0 --on cn0\n" +
			"  rdmalab pingpong rc 10.77.0.200 --on cn0 --size 4096 --iters 1000",
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
	fs.StringVar(&f.on, "on", "", "host of the rack that runs it (required)")
	fs.StringVar(&f.size, "size", "", "bytes of a message, like 8 or 64KiB (default 4096, of ud 2048)")
	fs.IntVar(&c.Iters, "iters", 0, "messages each way (default 1000)")
	fs.IntVar(&c.MTU, "mtu", 0, "path MTU: 256, 512, 1024, 2048 or 4096 (default 1024)")
	fs.IntVar(&c.Depth, "rx-depth", 0, "receives posted (default 500)")
	fs.IntVar(&c.QueuePairs, "qps", 0, "queue pairs of srq (default 16)")
	fs.Uint16Var(&f.port, "port", 0, "TCP port of the exchange (default 18515)")
	fs.BoolVar(&f.ipv6, "ipv6", false, "announce the host's IPv6 address")
	fs.DurationVar(&c.Patience, "patience", 0, "how long to wait for one message (default 30s)")
	if err := errors.Join(cmd.MarkFlagRequired("on"), cmd.RegisterFlagCompletionFunc("on", completeAllHosts)); err != nil {
		panic(err) // it was defined above
	}
	complete(cmd, "mtu", mtus...)
	outputFlag(cmd)
	return cmd
}

func (f *pingpongFlags) run(cmd *cobra.Command, to string) error {
	if f.size != "" {
		n, err := spec.ParseSize(f.size)
		if err != nil {
			return badUse("--size: %w", err)
		}
		f.config.Size = int(min(n, peer.MaxSize+1))
	}
	f.config.Source = source(f.ipv6)
	if err := f.config.Validate(); err != nil {
		return asUse(err)
	}
	return runPeer(cmd, f.on, hostd.PeerRequest{Pingpong: &f.config, To: to, Port: f.port})
}

// source is the index of a host's address.
func source(ipv6 bool) int {
	if ipv6 {
		return 1
	}
	return -1
}

// runPerftest is one end of a perftest.
func runPerftest(cmd *cobra.Command, f *perfFlags) error {
	if f.with != "perftest" {
		return badUse("--peer %q: want perftest", f.with)
	}
	c := &f.config
	p := peer.Perftest{
		Test: c.Test, Iters: c.Iters, MTU: c.MTU, Depth: c.Depth, Outs: c.RdAtomic, Type: c.Type, Source: source(f.ipv6), Patience: c.Patience,
	}
	if f.size != "" {
		n, err := spec.ParseSize(f.size)
		if err != nil {
			return badUse("--size: %w", err)
		}
		p.Size = int(min(n, peer.MaxSize+1))
	}
	if err := p.Validate(); err != nil {
		return err
	}
	return runPeer(cmd, f.from, hostd.PeerRequest{Perftest: &p, To: f.to, Port: f.port})
}

// runPeer runs one end on a host and prints what it found.
func runPeer(cmd *cobra.Command, host string, q hostd.PeerRequest) error {
	asJSON, err := wantJSON(cmd)
	if err != nil {
		return err
	}
	client, err := hostControl(cmd, host)
	if err != nil {
		return err
	}
	var res *peer.Result
	err = control.Items(cmd.Context(), client, http.MethodPost, hostd.PathPeer, q, func(ev hostd.PeerEvent) error {
		if ev.Listening != "" {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s waits at %s\n", host, ev.Listening) // it is a courtesy
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
	case asJSON:
		return printJSON(cmd, res)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue pair %#06x, peer's %#06x: %d bytes in %d iterations, %.2f usec/iter, %.2f MiB/s\n",
		res.QPN, res.PeerQPN, res.Bytes, res.Iters, res.Usec, res.MiBps)
	return err
}
