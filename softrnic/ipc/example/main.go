// Command example is a program that uses the NIC of the host on which it runs: it measures or
// verifies the path to another host.
//
//	rdmalab exec cn0 -- ./example 10.77.0.11 verify
package main

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run executes one test of package perf. args are ADDRESS TEST [ITERATIONS].
func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: example ADDRESS TEST [ITERATIONS]")
	}
	to, err := netip.ParseAddr(args[0])
	if err != nil {
		return err
	}
	cfg := perf.Config{Test: args[1]}
	if len(args) > 2 {
		if cfg.Iters, err = strconv.Atoi(args[2]); err != nil {
			return err
		}
	}
	if cfg.OneSided() {
		cfg.Service = memservice.Service
	}
	ctx, err := ipc.Open(ipc.Config{})
	if err != nil {
		return err
	}
	defer ctx.Close() // the end of the program would close it, too
	tell := func(p perf.Progress) { fmt.Println(p.Phase, p.Done, "of", p.Total) }
	res, err := perf.Run(ctx, ctx.Manager(), to, cfg, tell)
	if err != nil {
		return err
	}
	return res.WriteText(os.Stdout)
}
