package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
)

// dial connects its input and output to the control socket of the leaf or host of this Pod: `kubectl rdmalab` runs it there.
func dial(ctx context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: rdmalab-kube dial NODE, in the Pod of a leaf or a host")
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", rackfile.Paths{Dir: stateDir}.Socket(args[0]))
	if err != nil {
		return fmt.Errorf("%s does not run in this Pod: %w", args[0], err)
	}
	conn := c.(*net.UnixConn)
	go func() {
		_, _ = io.Copy(conn, os.Stdin) // its end is what counts
		_ = conn.CloseWrite()
	}()
	_, err = io.Copy(os.Stdout, conn)
	return errors.Join(err, conn.Close())
}

// crashSignal makes a leaf or a host crash, and crashed is its exit status then: that of a process that was killed.
const (
	crashSignal = syscall.SIGUSR1
	crashed     = 137
)

// crashable lets the program crash by a signal: it ends as if it was killed, and closes nothing. As the first process of its
// container it cannot be killed from inside.
func crashable() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, crashSignal)
	go func() {
		<-c
		_ = os.WriteFile("/dev/termination-log", []byte("crashed by kubectl rdmalab crash"), 0o644) // it is for the eyes alone
		os.Exit(crashed)
	}()
}

// crash makes the leaf or the host of this Pod crash.
func crash(context.Context, []string) error { return unix.Kill(1, crashSignal) }
