package switchd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/tap"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// ErrStopped says that the daemon's loop has ended.
var ErrStopped = errors.New("the switch is stopping")

// errBusy says that more commands wait than are sensible.
var errBusy = errors.New("the switch has too many commands to do; try again")

// Daemon is a running switch.
type Daemon struct {
	cfg  Config
	clk  *real.Clock
	wall time.Time // when clk was zero
	hub  *tap.Hub
	log  *log.Logger

	// Owned by the loop.
	links     []Link   // the host is "" where a guest has gone
	hosts     []string // of links
	sw        *pipeline.Switch
	plan      *fault.Set
	ports     []port
	delays    delays
	groups    [][]string // of the partition
	now       clock.Time
	observing bool
	out       packetio.Batch // what the pipeline sends in this round
	scratch   packetio.Batch // frames split, copied or changed by faults in this round
	waiter    packetio.Waiter

	// waking is waiter, for other goroutines.
	waking atomic.Pointer[packetio.Waiter]
	// open are the ports by link, nil where one is missing, for watch.
	open atomic.Pointer[[]opened]

	// loading is held while a program takes the place of another, and guards program: what the running one needs.
	loading sync.Mutex
	program io.Closer

	// pending says that commands is not empty.
	pending  atomic.Bool
	mu       sync.Mutex
	commands []func()
	stopped  bool

	// stop ends captures when the loop ends.
	stop context.CancelFunc
	life context.Context
}

// opened is a port to watch.
type opened struct {
	link Link
	io   packetio.Port // nil: missing
}

// port is one link as the loop sees it.
type port struct {
	io       packetio.Port // nil: missing
	err      error         // why it is missing
	carrier  bool
	up, down *fault.Injector
	queue    pipeline.Queue
	rx       packetio.Batch
	tx       txCounters
	rate     rate
}

// txCounters count what left, for the tables that people read.
type txCounters struct{ packets, bytes uint64 }

// New makes a daemon and opens the ports that are there. Run must follow.
func New(cfg Config) (*Daemon, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Queue == 0 {
		cfg.Queue = 1024
	}
	if cfg.Watch == 0 {
		cfg.Watch = 25 * time.Millisecond
	}
	if cfg.Log == nil {
		cfg.Log = log.New(io.Discard, "", 0)
	}
	sw, err := pipeline.New(pipeline.Config{Ports: len(cfg.Links), Program: cfg.Program, Self: cfg.Self})
	if err != nil {
		return nil, err
	}
	d := &Daemon{cfg: cfg, clk: real.New(), wall: time.Now(), log: cfg.Log, sw: sw, ports: make([]port, len(cfg.Links))}
	d.life, d.stop = context.WithCancel(context.Background())
	for _, l := range cfg.Links {
		d.hosts = append(d.hosts, l.Host)
		d.links = append(d.links, l)
	}
	d.hub = tap.NewHub(d.hosts)
	if cfg.Keep > 0 {
		d.hub.Keep(cfg.Keep, keptBytes)
	}
	d.plan = fault.NewSet(cfg.Seed, d.hosts)
	for i := range d.ports {
		p := &d.ports[i]
		p.up, p.down = d.plan.Injector(d.hosts[i], fault.Up), d.plan.Injector(d.hosts[i], fault.Down)
		p.queue = pipeline.Queue{MaxPackets: cfg.Queue, MaxBytes: maxQueueBytes}
		sw.SetPort(i, false)
	}
	for _, r := range fault.Named(cfg.Faults) {
		if r.Kind == fault.Tear {
			continue
		}
		if _, err := d.plan.Add(0, r); err != nil {
			d.stop()
			return nil, fmt.Errorf("fault of the rack file: %w", err)
		}
	}
	d.openPorts()
	if err := d.renewWaiter(); err != nil {
		d.stop()
		return nil, errors.Join(err, d.closePorts())
	}
	return d, nil
}

// openPorts opens what is there, all at once: the kernel lets each one wait for tens of milliseconds.
func (d *Daemon) openPorts() {
	type result struct {
		io  packetio.Port
		err error
	}
	results := make([]result, len(d.ports))
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i].io, results[i].err = d.cfg.Open(i, d.links[i]) })
	}
	wg.Wait()
	for i, r := range results {
		d.plug(i, r.io, r.err)
	}
}

// Run forwards until ctx ends, and then closes all ports and what programs that were loaded meanwhile need. It returns an error only if it could not go on.
func (d *Daemon) Run(ctx context.Context) error {
	watch := make(chan struct{})
	watchCtx, stopWatch := context.WithCancel(ctx)
	go func() {
		defer close(watch)
		d.watch(watchCtx)
	}()
	release := context.AfterFunc(ctx, func() { d.wake() })
	err := d.loop(ctx)
	release()
	d.farewell()
	stopWatch()
	d.refuse()
	<-watch
	d.stop()
	d.loading.Lock()
	defer d.loading.Unlock()
	return errors.Join(err, d.waiter.Close(), d.closePorts(), closeIf(d.program))
}

// step lets f act as a step of the program, and sends what it emits. Loop only.
func (d *Daemon) step(f func(c *pipeline.Ctx)) {
	start := len(d.out.Frames)
	d.sw.Step(d.now, &d.out, f)
	d.toHosts(start, d.sw.Notes())
	d.flush()
}

// farewell lets a program that has connections end them.
func (d *Daemon) farewell() {
	if p, ok := d.cfg.Program.(interface{ Close(c *pipeline.Ctx) }); ok {
		d.now = d.clk.Now()
		d.step(p.Close)
	}
}

// refuse ends the taking of commands. Those that wait are done now, so that nobody waits for ever.
func (d *Daemon) refuse() {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.runCommands()
}

// Do runs f in the loop, between two rounds, and returns when it is done. The error is ErrStopped, or says that too
// many commands wait.
func (d *Daemon) Do(f func()) error {
	done := make(chan struct{})
	d.mu.Lock()
	switch {
	case d.stopped:
		d.mu.Unlock()
		return ErrStopped
	case len(d.commands) >= maxCommands:
		d.mu.Unlock()
		return errBusy
	}
	d.commands = append(d.commands, func() {
		defer close(done)
		f()
	})
	d.pending.Store(true)
	d.mu.Unlock()
	d.wake()
	<-done
	return nil
}

// wake ends the loop's waiting.
func (d *Daemon) wake() {
	if w := d.waking.Load(); w != nil {
		(*w).Wake()
	}
}

func (d *Daemon) runCommands() {
	if !d.pending.Load() {
		return
	}
	d.mu.Lock()
	list := d.commands
	d.commands = nil
	d.pending.Store(false)
	d.mu.Unlock()
	d.now = d.clk.Now()
	for _, f := range list {
		f()
	}
}

// unixNanos is the time for captures. A round's own time would be the same for a whole burst.
func (d *Daemon) unixNanos() int64 { return d.wall.UnixNano() + int64(d.clk.Now()) }
