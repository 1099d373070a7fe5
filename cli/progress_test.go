package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/sim/scenario"
	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// openTerminal returns a pseudo-terminal. What is written to it goes to w. end closes the terminal and
// returns when w has everything.
func openTerminal(t *testing.T, w io.Writer) (terminal *os.File, end func()) {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(w, ptmx) // ends with an error when the terminal is closed
	}()
	end = func() {
		_ = terminal.Close()
		<-read
	}
	t.Cleanup(func() {
		end()
		_ = ptmx.Close()
	})
	return terminal, end
}

// withErr runs f with a terminal as standard error, with a pipe, and with a file. It returns what f has
// written to each of them.
func withErr(t *testing.T, f func(stderr io.Writer)) (terminal, pipe, file string) {
	t.Helper()
	var shown bytes.Buffer
	tty, end := openTerminal(t, &shown)
	f(tty)
	end()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	f(w)
	_ = w.Close()
	piped, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(t.TempDir() + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	f(out)
	_ = out.Close()
	kept, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return shown.String(), string(piped), string(kept)
}

// A run that is so slow that a line of progress is due at any time writes these lines to a terminal
// alone: a pipe and a file get the same as from a fast run.
func TestProgressIsForTerminals(t *testing.T) {
	s, err := scenario.Find("rnr")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		run        func(stderr io.Writer) error
	}{
		{"sim", "3 of 4 seeds", func(stderr io.Writer) error {
			cmd := simCmd()
			cmd.SetContext(t.Context())
			cmd.SetOut(io.Discard)
			cmd.SetErr(stderr)
			return (&simFlags{first: 1, seeds: 4}).sweep(cmd, s)
		}},
		{"experiment", "2/2 CAS, host memory, 4 clients: ", func(stderr io.Writer) error {
			root := rootCmd(commands()...)
			root.SetArgs(strings.Fields("experiment cas-one-word --quick --clients 1,4 --series host"))
			root.SetOut(io.Discard)
			root.SetErr(stderr)
			return execute(t.Context(), root)
		}},
		{"a line of perf and run", "soak: 5 of 9", func(stderr io.Writer) error {
			cmd := simCmd()
			cmd.SetErr(stderr)
			newPace(cmd, false, 0).tell("%s: %d of %d", "soak", 5, 9)
			newPace(cmd, true, 0).tell("not with --quiet")
			newPace(cmd, false, time.Hour).tell("not before its time")
			progressPrinter(cmd, false, 0)(perf.Progress{Phase: "not before its time"})
			return nil
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			terminal, pipe, file := withErr(t, func(stderr io.Writer) {
				if err := c.run(stderr); err != nil {
					t.Error(err)
				}
			})
			if !strings.Contains(terminal, c.want) || strings.Contains(terminal, "not ") {
				t.Errorf("a terminal shows %q, want %q", terminal, c.want)
			}
			if pipe+file != "" {
				t.Errorf("a pipe gets %q, a file %q", pipe, file)
			}
		})
	}
}
