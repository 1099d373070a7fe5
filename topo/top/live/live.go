package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/rdmalab/rdmalab/topo/top"
)

const (
	// every is the time between two samples.
	every = time.Second
	// stopWait is how long a command that was interrupted may take to end.
	stopWait = 5 * time.Second
	// maxOutput bounds the bytes that are kept of a command's output.
	maxOutput = 4 << 10
)

// Config describes a view of a rack.
type Config struct {
	Rack string
	// Program is the path of this program, with which commands are run.
	Program string
	// RackFlag is the flag and its value by which commands find the rack. It is empty if they need
	// none.
	RackFlag []string
	Style    top.Style
	// ReadOnly is why no key changes the rack, which is shown in place of what a command says; "" if keys do.
	ReadOnly string
	// Sample takes a sample of a rack; nil means the function Sample of this package.
	Sample func(ctx context.Context, name string) top.Sample
	// In and Out are the terminal.
	In  io.Reader
	Out io.Writer
	// Options are further options of the library's program. Only tests set them.
	Options []tea.ProgramOption
}

// Run shows the rack until the user quits or ctx ends. When it returns, the terminal is restored,
// and no command runs any more.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Sample == nil {
		cfg.Sample = Sample
	}
	ctx, cancel := context.WithCancel(ctx)
	d := &doer{ctx: ctx, cfg: &cfg, running: make(map[int]context.CancelFunc)}
	defer func() {
		d.mu.Lock() // while it is held, no command can begin
		cancel()
		d.mu.Unlock()
		d.work.Wait()
	}()
	// A signal ends ctx, so the tea.Program does not get ctx: at the end of its context, package
	// tea kills the program, and the goroutine that reads the terminal goes on. After p.Quit, the
	// program waits for this goroutine.
	options := append([]tea.ProgramOption{
		tea.WithInput(cfg.In), tea.WithOutput(cfg.Out), tea.WithoutSignalHandler(),
	}, cfg.Options...)
	p := tea.NewProgram(top.New(d, cfg.Style, cfg.RackFlag...), options...)
	stop := context.AfterFunc(ctx, p.Quit)
	defer stop()
	_, err := p.Run()
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(err, d.panicked)
}

// doer executes the requests of the model. Each method that returns a tea.Cmd returns a function
// that the terminal library (tea.Program) calls in a goroutine of its own; work counts these calls.
type doer struct {
	ctx  context.Context
	cfg  *Config
	work sync.WaitGroup

	mu       sync.Mutex                 // guards the fields below
	running  map[int]context.CancelFunc // by ID: interrupts a running command
	last     time.Time                  // when the last sample was taken
	panicked error                      // the panic of a command, which has ended the view
}

var _ top.Doer = (*doer)(nil)

func (d *doer) Sample() tea.Cmd {
	return d.counted(func() tea.Msg {
		d.mu.Lock()
		wait := time.Until(d.last.Add(every))
		d.mu.Unlock()
		t := time.NewTimer(max(0, wait))
		defer t.Stop()
		select {
		case <-d.ctx.Done():
			return nil
		case <-t.C:
		}
		d.mu.Lock()
		d.last = time.Now()
		d.mu.Unlock()
		return d.cfg.Sample(d.ctx, d.cfg.Rack)
	})
}

// counted makes a command for which Run waits. A command that begins after the view has ended does
// nothing. A command that panics ends the view, so that Run restores the terminal before it reports
// the panic.
func (d *doer) counted(f func() tea.Msg) tea.Cmd {
	return func() (msg tea.Msg) {
		d.mu.Lock()
		if d.ctx.Err() != nil {
			d.mu.Unlock()
			return nil
		}
		d.work.Add(1)
		d.mu.Unlock()
		defer d.work.Done()
		defer func() {
			if r := recover(); r != nil {
				d.mu.Lock()
				d.panicked = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
				d.mu.Unlock()
				msg = tea.Quit()
			}
		}()
		return f()
	}
}

func (d *doer) Do(id int, args []string) tea.Cmd {
	return d.counted(func() tea.Msg {
		if d.cfg.ReadOnly != "" {
			return top.Done{ID: id, Output: d.cfg.ReadOnly, Failed: true}
		}
		ctx, cancel := context.WithCancel(d.ctx)
		defer cancel()
		d.mu.Lock()
		d.running[id] = cancel
		d.mu.Unlock()
		defer func() {
			d.mu.Lock()
			delete(d.running, id)
			d.mu.Unlock()
		}()
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, d.cfg.Program, args...)
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = stopWait
		err := cmd.Run()
		text := strings.TrimSpace(string(out.Bytes()[:min(out.Len(), maxOutput)]))
		if err != nil && text == "" {
			text = err.Error()
		}
		// A command that exits with 0 after an interrupt has not failed, although exec's Run
		// returns the error of the context.
		failed := err != nil && (cmd.ProcessState == nil || !cmd.ProcessState.Success())
		return top.Done{ID: id, Output: text, Failed: failed}
	})
}

func (d *doer) Stop(id int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if cancel := d.running[id]; cancel != nil {
		cancel()
	}
}
