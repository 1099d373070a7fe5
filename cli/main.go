// Package cli is the whole project as a library: the command line, the daemons that it starts, and
// tools. Most files of this package have one subcommand each; helpGroups lists them, and folder help
// has their texts. A program with extensions of its own imports their packages, which register
// themselves, and calls Main.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rdmalab/rdmalab/topo/cni"
)

// Main is the main function of rdmalab and of programs that extend it. It reads the command line,
// runs the command, and ends the process with the command's exit status. The processes of a rack are
// started from the running program, so they call Main, too, and know the same extensions.
func Main() {
	if cni.Called(os.Args) {
		os.Exit(cni.Main())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root, began := rootCmd(called(os.Args)...), time.Now()
	ownName(root)
	err := checkEnvOutputs(root, os.Args[1:])
	if err == nil {
		err = execute(ctx, root)
		err = inJUnit(root, os.Args[1:], time.Since(began), err)
	}
	stop()
	var code exitCode
	if err != nil && !errors.As(err, &code) {
		fmt.Fprintln(os.Stderr, hintsOf(root).error(err))
	}
	if status := statusFor(err); status != 0 {
		os.Exit(status)
	}
}

// statusFor returns the exit status of the program after a command that has returned err.
func statusFor(err error) int {
	var code exitCode
	var fail failure
	switch {
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &fail):
		return fail.code
	case isUse(err):
		return exitUsage
	case err != nil:
		return 1
	}
	return 0
}
