package switchd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Daemon is a running switch: a loop that moves frames between ports, and the requests of
// operators. Each of its parts is a type.
type Daemon struct {
	rack  string
	watch time.Duration // interval at which the daemon checks missing ports and carriers

	commands *commands
	ports    *ports
	traffic  *traffic
	faults   *faultControl
	guests   *guestControl
	programs *programControl
	captures *captures
}

// New makes a daemon and opens the ports that exist. The caller must then call Run.
func New(cfg Config) (*Daemon, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Queue = cmp.Or(cfg.Queue, 1024)
	cfg.Watch = cmp.Or(cfg.Watch, 25*time.Millisecond)
	if cfg.Log == nil {
		cfg.Log = log.New(io.Discard, "", 0)
	}
	sw, err := pipeline.New(pipeline.Config{Ports: len(cfg.Links), Program: cfg.Program, Self: cfg.Self})
	if err != nil {
		return nil, err
	}
	d := newDaemon(cfg, sw)
	for _, r := range fault.Named(cfg.Faults) {
		if r.Kind == fault.Tear {
			continue
		}
		if _, err := d.traffic.plan.Add(0, r); err != nil {
			d.captures.stop()
			return nil, fmt.Errorf("fault of the rack file: %w", err)
		}
	}
	d.ports.openPorts()
	if err := d.ports.renewWaiter(); err != nil {
		d.captures.stop()
		return nil, errors.Join(err, d.ports.closePorts())
	}
	return d, nil
}

// newDaemon makes the parts of a daemon. It does not open ports.
func newDaemon(cfg Config, sw *pipeline.Switch) *Daemon {
	s := &ports{
		sw: sw, opener: cfg.Open, newWaiter: cfg.NewWaiter, spin: cfg.Spin, queue: cfg.Queue, log: cfg.Log,
		links: slices.Clone(cfg.Links), list: make([]port, len(cfg.Links)),
	}
	for _, l := range cfg.Links {
		s.hosts = append(s.hosts, l.Host)
	}
	t := &traffic{
		ports: s, sw: sw, plan: fault.NewSet(cfg.Seed, s.hosts), hub: tap.NewHub(s.hosts), clk: real.New(), wall: time.Now(),
	}
	if cfg.Keep > 0 {
		t.hub.Keep(cfg.Keep, keptBytes)
	}
	for i := range s.list {
		t.connect(i)
		sw.SetPort(i, false)
	}
	cmds := &commands{wake: s.wake}
	d := &Daemon{rack: cfg.Rack, watch: cfg.Watch, commands: cmds, ports: s, traffic: t}
	d.faults = &faultControl{commands: cmds, ports: s, traffic: t}
	d.guests = &guestControl{commands: cmds, ports: s, traffic: t, faults: d.faults}
	d.programs = &programControl{
		commands: cmds, traffic: t, running: cfg.Program, self: cfg.Self, load: cfg.Load, described: cfg.Described, log: cfg.Log,
	}
	d.captures = &captures{hub: t.hub, log: cfg.Log, running: make(map[string]context.CancelFunc)}
	d.captures.life, d.captures.stop = context.WithCancel(context.Background())
	return d
}

// Run forwards frames until ctx ends. Then it closes all ports, and frees the resources of a
// program that an operator has loaded. It returns an error only if the loop could not continue or
// closing failed.
func (d *Daemon) Run(ctx context.Context) error {
	watched := make(chan struct{})
	watchCtx, stopWatch := context.WithCancel(ctx)
	go func() {
		defer close(watched)
		d.watchPorts(watchCtx)
	}()
	release := context.AfterFunc(ctx, d.ports.wake)
	err := d.loop(ctx)
	release()
	d.traffic.now = d.traffic.clk.Now()
	d.programs.farewell()
	stopWatch()
	d.commands.refuse()
	d.runCommands() // runs the commands that still wait, so that their callers return
	<-watched
	d.captures.stop()
	return errors.Join(err, d.ports.waiter.Close(), d.ports.closePorts(), d.programs.close())
}

// runCommands runs the functions that other goroutines have passed to Do.
func (d *Daemon) runCommands() {
	list := d.commands.take()
	if len(list) == 0 {
		return
	}
	d.traffic.now = d.traffic.clk.Now()
	for _, f := range list {
		f()
	}
}

// maxWaitErrors is how many times in succession waiting for frames may fail before the loop ends.
const maxWaitErrors = 100

func (d *Daemon) loop(ctx context.Context) error {
	failed := 0
	for ctx.Err() == nil {
		d.runCommands()
		if d.traffic.round() {
			continue
		}
		err := d.ports.waiter.Wait(d.traffic.clk.Until(d.traffic.deadline()))
		if err == nil {
			failed = 0
			continue
		}
		// The usual cause is that a port was closed while the waiter used it. In the next round
		// Recv fails for this port.
		if failed++; failed > maxWaitErrors {
			return fmt.Errorf("switch: wait: %w", err)
		}
		if err := d.ports.renewWaiter(); err != nil {
			return fmt.Errorf("switch: wait: %w", err)
		}
	}
	return nil
}
