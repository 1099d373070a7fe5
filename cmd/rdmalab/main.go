// Command rdmalab is the whole project in one binary: the command line, the daemons that it starts,
// and tools. Most files of this package have one subcommand each; helpGroups lists them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/rdmalab/rdmalab/topo/cni"
)

func main() {
	if cni.Called(os.Args) {
		os.Exit(cni.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := execute(ctx, rootCmd(called(os.Args)...))
	stop()
	var code exitCode
	var fail failure
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case errors.As(err, &fail):
		fmt.Fprintln(os.Stderr, "rdmalab:", fail)
		os.Exit(fail.code)
	case isUse(err):
		fmt.Fprintln(os.Stderr, "rdmalab:", err)
		os.Exit(exitUsage)
	case err != nil:
		fmt.Fprintln(os.Stderr, "rdmalab:", err)
		os.Exit(1)
	}
}
