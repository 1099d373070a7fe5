package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// background is what runs at idle priority beside the other tests, until hurry.
type background struct {
	done chan struct{} // closed at the end; the fields below it may be read then
	err  error
	said []byte // of make scenarios

	mu      sync.Mutex
	hurried bool
	leader  int // process ID of the command that runs
}

// idle returns the command that runs another one at idle priority: .ci/idle, or one that does so as far as the
// machine allows it.
func idle() []string {
	if exec.Command(".ci/idle", "true").Run() == nil {
		return []string{".ci/idle"}
	}
	return []string{"setsid", "--wait", "nice", "-n", "19"}
}

// awake gives a command that idle runs the usual priority.
func awake(pid int) { _ = exec.Command(".ci/awake", strconv.Itoa(pid)).Run() } // as far as the machine allows it

// inVirtualTime begins the tests in virtual time and then the first seeds of the scenarios. Tests make a rack for
// each seed, and little of it lives long: the garbage collector runs less often than usual.
func inVirtualTime(ctx context.Context, o options, t *tally) *background {
	b := &background{done: make(chan struct{})}
	go func() {
		defer close(b.done)
		tests := goTest{under: b.under(), env: []string{"GOGC=400"}, args: append([]string{"-shuffle=on", "-timeout", "60m"}, plain()...)}
		b.err = tests.run(ctx, t, b.began)
		b.ended()
		if b.err == nil && o.few > 0 {
			b.err = b.scenarios(ctx, o.few)
		}
	}()
	return b
}

// scenarios runs the first seeds of each scenario.
func (b *background) scenarios(ctx context.Context, seeds int) error {
	under := b.under()
	args := append(under, "make", "--no-print-directory", "scenarios", fmt.Sprintf("SEEDS=%d", seeds), "SIM="+outOf+"/rdmalab sim")
	cmd := group(ctx, under == nil, append(os.Environ(), "GOGC=400", "MAKEFLAGS="), args)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Start()
	if err == nil {
		b.began(cmd)
		err = ended(ctx, cmd)
		b.ended()
	}
	b.said = said.Bytes()
	if err != nil {
		return fmt.Errorf("make scenarios: %w", errors.Join(err, ctx.Err()))
	}
	return nil
}

// under returns what runs the next command at idle priority; nil after hurry.
func (b *background) under() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hurried {
		return nil
	}
	return idle()
}

func (b *background) began(cmd *exec.Cmd) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leader = cmd.Process.Pid; b.hurried {
		awake(b.leader)
	}
}

func (b *background) ended() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leader = 0
}

// hurry gives what runs, and what comes, the usual priority: it is called before something waits for it, which
// another program could keep from the processor for hours.
func (b *background) hurry() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hurried = true; b.leader != 0 {
		awake(b.leader)
	}
}
