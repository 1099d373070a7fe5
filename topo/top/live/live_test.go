package live

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/topo/top"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each wait of a test.
const patience = 20 * time.Second

// terminal is a pseudo-terminal whose output is recorded.
type terminal struct {
	t           *testing.T
	keys, slave *os.File
	mu          sync.Mutex
	seen        strings.Builder
	read        chan struct{}
}

func openTerminal(t *testing.T) *terminal {
	t.Helper()
	ptmx, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	n, err := unix.IoctlGetInt(int(ptmx.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ptmx.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(ptmx.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{t: t, keys: ptmx, slave: slave, read: make(chan struct{})}
	go func() {
		defer close(term.read)
		b := make([]byte, 4096)
		for {
			n, err := ptmx.Read(b)
			if err != nil {
				return // the other end is closed
			}
			term.mu.Lock()
			term.seen.Write(b[:n])
			term.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = slave.Close() // closing it ends the reader
		<-term.read
		_ = ptmx.Close()
	})
	return term
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.seen.String()
}

func (term *terminal) await(what string) {
	term.t.Helper()
	for end := time.Now().Add(patience); !strings.Contains(term.text(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			term.t.Fatalf("no %q on the terminal:\n%q", what, term.text())
		}
	}
}

func (term *terminal) typed(keys string) {
	term.t.Helper()
	if _, err := io.WriteString(term.keys, keys); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) modes() unix.Termios {
	term.t.Helper()
	m, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
	if err != nil {
		term.t.Fatal(err)
	}
	return *m
}

// fakeSample returns a sample of a rack of one host.
func fakeSample(context.Context, string) top.Sample {
	return top.Sample{
		At: time.Now(), Rack: "fake", State: "up", Program: "forward",
		Nodes: []top.Node{{Name: "cn0", State: "up", Link: "up"}, {Name: "switch", State: "up"}},
	}
}

// start runs the view on a terminal; the channel receives the result of Run.
func start(ctx context.Context, term *terminal, cfg Config) <-chan error {
	cfg.Rack, cfg.In, cfg.Out = "fake", term.slave, term.slave
	cfg.Options = append(cfg.Options, tea.WithEnvironment([]string{"TERM=xterm-256color", "LANG=C.UTF-8"}))
	if cfg.Sample == nil {
		cfg.Sample = fakeSample
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg) }()
	return ended
}

func wait(t *testing.T, ended <-chan error) error {
	t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(patience):
		t.Fatal("Run has not ended")
		return nil
	}
}

// leaveAlternate is the sequence that restores the terminal's normal screen.
const leaveAlternate = "\x1b[?1049l"

func TestTerminalIsAsBefore(t *testing.T) {
	for name, c := range map[string]struct {
		end     func(term *terminal, cancel func(), boom *atomic.Bool)
		wantErr string
	}{
		"after q":        {func(term *terminal, _ func(), _ *atomic.Bool) { term.typed("q") }, ""},
		"after ctrl-c":   {func(term *terminal, _ func(), _ *atomic.Bool) { term.typed("\x03") }, ""},
		"after a signal": {func(_ *terminal, cancel func(), _ *atomic.Bool) { cancel() }, ""},
		"after a panic":  {func(_ *terminal, _ func(), boom *atomic.Bool) { boom.Store(true) }, "panic"},
	} {
		t.Run(name, func(t *testing.T) {
			term := openTerminal(t)
			before := term.modes()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var boom atomic.Bool
			ended := start(ctx, term, Config{Sample: func(ctx context.Context, name string) top.Sample {
				if boom.Load() {
					panic("planted by the test")
				}
				return fakeSample(ctx, name)
			}})
			term.await("cn0")
			if term.modes() == before {
				t.Error("the terminal's modes did not change: the test cannot fail")
			}
			c.end(term, cancel, &boom)
			err := wait(t, ended)
			if c.wantErr == "" && err != nil || c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)) {
				t.Errorf("Run: %v, want %q", err, c.wantErr)
			}
			term.await(leaveAlternate)
			if after := term.modes(); after != before {
				t.Errorf("modes of the terminal: %+v, were %+v", after, before)
			}
		})
	}
}

func TestRackThatGoesAwayIsShownAndComesBack(t *testing.T) {
	term := openTerminal(t)
	var gone atomic.Bool
	ended := start(t.Context(), term, Config{Sample: func(ctx context.Context, name string) top.Sample {
		if gone.Load() {
			return top.Sample{At: time.Now(), Gone: "it was taken down"}
		}
		return fakeSample(ctx, name)
	}})
	term.await("cn0")
	gone.Store(true)
	term.await("it was taken down")
	gone.Store(false)
	term.mu.Lock()
	term.seen.Reset()
	term.mu.Unlock()
	term.await("links") // the line with the panes is shown again
	term.typed("q")
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
}

// program makes a shell script that is run instead of rdmalab.
func program(t *testing.T, script string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rdmalab")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestKeysRunTheProgramAndShowWhatItSaid(t *testing.T) {
	term := openTerminal(t)
	ended := start(t.Context(), term, Config{Program: program(t, `echo "said of $*"; [ "$1" != crash ]`), RackFlag: []string{"--rack", "fake"}})
	term.await("cn0")
	term.typed("l")
	term.await("said of inject loss 10% --link cn0 --rack fake")
	term.typed("c")
	term.await("said of crash cn0 --rack fake")
	term.typed("q")
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
}

func TestCaptureEndsByItsKeyAndWithTheView(t *testing.T) {
	const script = `trap 'echo "packets captured"; echo "$3" >> "$(dirname "$0")/ended"; exit 0' INT; echo $$ > "$(dirname "$0")/pid"; while :; do sleep 0.05; done`
	term := openTerminal(t)
	file := program(t, script)
	started := func() bool { _, err := os.Stat(filepath.Join(filepath.Dir(file), "pid")); return err == nil }
	await := func() {
		t.Helper()
		for end := time.Now().Add(patience); !started(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the capture has not begun")
			}
		}
	}
	ended := start(t.Context(), term, Config{Program: file})
	term.await("cn0")
	term.typed("p")
	await()
	term.typed("p")
	term.await("packets captured")
	if err := os.Remove(filepath.Join(filepath.Dir(file), "pid")); err != nil {
		t.Fatal(err)
	}
	term.typed("p")
	await()
	term.typed("q")
	if err := wait(t, ended); err != nil {
		t.Error(err)
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(file), "ended"))
	if n := strings.Count(string(b), "\n"); err != nil || n != 2 {
		t.Errorf("%d captures have ended in order, want 2 (%v)", n, err)
	}
}

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d := &doer{ctx: ctx, cfg: &Config{Program: "/nonexistent", Sample: func(context.Context, string) top.Sample {
		t.Error("a sample was taken")
		return top.Sample{}
	}}, running: map[int]context.CancelFunc{}}
	if msg := d.Do(1, []string{"x"})(); msg != nil {
		t.Errorf("a command ran: %v", msg)
	}
	if msg := d.Sample()(); msg != nil {
		t.Errorf("%v", msg)
	}
	d.Stop(1)
}

func TestMissingRackIsGone(t *testing.T) {
	s := Sample(t.Context(), "there-is-no-such-rack")
	if s.Gone == "" || s.At.IsZero() {
		t.Errorf("%+v", s)
	}
}
