package switchd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/paced"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/stall"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Daemon is a running switch: a loop that moves frames between ports, and the requests of
// operators. Each of its parts is a type.
type Daemon struct {
	rack  string
	watch time.Duration // interval at which the daemon checks missing ports and carriers
	armed clock.Time    // when the loop looks at the timers next; only used with exclusive

	fabric *direct.Fabric // carries packets in the threads of NICs; nil: the loop alone does

	commands *commands
	ports    *ports
	traffic  *traffic
	faults   *faultControl
	guests   *guestControl
	hosts    *hostControl
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
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	trunks := cfg.trunks()
	decided := new(pipeline.Decisions)
	homes := cfg.homes()
	sw, err := pipeline.New(pipeline.Config{
		Ports: len(cfg.Links), Program: cfg.Program, Self: cfg.Self, Homes: homes, Trunks: trunks, Decisions: decided,
	})
	if err != nil {
		return nil, err
	}
	d, err := newDaemon(cfg, sw)
	if err != nil {
		return nil, err
	}
	d.programs.decided, d.hosts.homes = decided, homes
	if d.ports.trunks = newTrunks(trunks, d.ports, d.programs.described.Load); trunks != nil {
		d.traffic.plan.Name(d.ports.trunks.name + "-") // IDs of faults differ among the switches of a rack
	}
	if err := d.faults.install(cfg.Faults.Rules); err != nil {
		d.captures.stop()
		return nil, err
	}
	d.ports.openPorts()
	if err := d.ports.renewWaiter(); err != nil {
		d.captures.stop()
		return nil, errors.Join(err, d.ports.closePorts())
	}
	return d, nil
}

// newDaemon makes the parts of a daemon. It does not open ports.
func newDaemon(cfg Config, sw *pipeline.Switch) (*Daemon, error) {
	s := &ports{
		sw: sw, opener: cfg.Open, newWaiter: cfg.NewWaiter, spin: cfg.Spin, queue: cfg.Queue, log: cfg.Log,
		links: slices.Clone(cfg.Links), list: make([]port, len(cfg.Links)),
	}
	for _, l := range cfg.Links {
		s.hosts = append(s.hosts, l.Host)
	}
	t := &traffic{
		ports: s, sw: sw, plan: fault.NewSet(cfg.Seed, s.hosts), hub: tap.NewHub(s.hosts), clk: real.NewSlow(cfg.Motion.Factor), wall: time.Now(),
	}
	t.opens = opens{sealer: new(wire.Sealer), leaves: t.takesOpen}
	var err error
	if t.queues, err = newQueues(cfg.egress(), len(s.list), t.clk); err != nil {
		return nil, err
	}
	if s.queues = t.queues; t.queues != nil {
		t.queues.OnMark = sw.Marks.Marked
	}
	s.timers.at = clock.Never
	if cfg.Motion.Costs != nil {
		t.costs = paced.NewSwitch(cfg.Motion.Costs, cfg.Queue)
	}
	if cfg.Keep > 0 {
		t.hub.Keep(cfg.Keep, keptBytes)
	}
	for i := range s.list {
		t.connect(i)
		sw.SetPort(i, false)
	}
	cmds := &commands{wake: s.wake}
	d := &Daemon{rack: cfg.Rack, watch: cfg.Watch, fabric: cfg.Fabric, commands: cmds, ports: s, traffic: t}
	d.faults = &faultControl{commands: cmds, ports: s, traffic: t}
	if rack := cfg.Described; rack != nil && cfg.Faults.Kept != "" {
		d.faults.kept = keptFaults{
			path: cfg.Faults.Kept, slow: cfg.Motion.Factor, log: cfg.Log,
			trunk: func(link string) bool { _, ok := rack.TrunkNamed(link); return ok },
		}
	}
	d.guests = &guestControl{commands: cmds, ports: s, traffic: t, faults: d.faults, opening: make(chan struct{}, 1)}
	d.programs = &programControl{
		commands: cmds, traffic: t, running: cfg.Program, self: cfg.Self, load: cfg.Load, where: cfg.Where, log: cfg.Log,
	}
	d.programs.described.Store(cfg.Described)
	s.strict = cfg.Described != nil && cfg.Described.Fabric != nil && cfg.Described.Fabric.Strict
	d.hosts = &hostControl{guests: d.guests, programs: d.programs, describe: cfg.Describe, links: cfg.HostLinks}
	d.captures = &captures{hub: t.hub, log: cfg.Log, running: make(map[string]context.CancelFunc)}
	d.captures.life, d.captures.stop = context.WithCancel(context.Background())
	return d, nil
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
	if d.fabric != nil {
		d.fabric.Switch(d.carried, d.ports.wake)
	}
	err := d.loop(ctx)
	release()
	if d.fabric != nil {
		d.fabric.Switch(nil, nil) // frames wait from now on, and are dropped when the ports are closed
	}
	d.exclusive(func() {
		d.traffic.now = d.traffic.clk.Now()
		d.programs.farewell()
	})
	stopWatch()
	d.commands.refuse()
	d.exclusive(d.runCommands) // runs the commands that still wait, so that their callers return
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

// exclusive runs f while no other thread runs the switch.
func (d *Daemon) exclusive(f func()) {
	if d.fabric == nil {
		f()
		return
	}
	d.fabric.Do(f)
}

// carried handles the frames that wait on direct links, in a thread that carries them (package
// direct). The loop handles the other ways, which only it may receive from, and the timers: it is
// woken if the next one is due before the time at which it would look.
func (d *Daemon) carried() {
	look := &d.traffic.look
	look.came = d.fabric.Came(look.came[:0])
	look.memoryOnly = true
	d.traffic.waited()
	d.traffic.round()
	look.memoryOnly = false
	if at := d.traffic.deadline(); at < d.armed {
		d.armed = at
		d.ports.wake()
	}
}

// arm returns when the loop must look again. A thread that carries frames may have set an earlier time for
// a timer that has been stopped since: then the loop looks once without result, because otherwise the next
// timer of that kind would have to wake it, with each batch of packets.
func (d *Daemon) arm() clock.Time {
	at := d.traffic.deadline()
	if d.fabric == nil || d.armed <= d.traffic.now || at < d.armed {
		d.armed = at
	}
	return d.armed
}

// late notes a stall if the present round came much later than it was due.
func (d *Daemon) late(due clock.Time) {
	t := d.traffic
	if late := t.clk.Real(t.now.Sub(due)); due != 0 && due < t.now && late >= stall.Least {
		stall.OfProcess.Took(time.Now(), late)
	}
}

// maxWaitErrors is how many times in succession waiting for frames may fail before the loop ends.
const maxWaitErrors = 100

func (d *Daemon) loop(ctx context.Context) error {
	failed, waited := 0, false
	var due clock.Time // when the next round is due: at once after a busy one, or when a timer expires
	for ctx.Err() == nil {
		var busy bool
		var wait time.Duration
		var waiter packetio.Waiter
		d.exclusive(func() {
			if waited {
				d.traffic.waited()
			}
			d.runCommands()
			busy = d.traffic.round()
			d.late(due)
			due, waiter = d.arm(), d.ports.waiter
			wait = d.traffic.clk.Until(due)
			// On direct links the threads that have sent frames carry them. If the loop went on after a busy
			// round, it would take turns with these threads for as long as frames come.
			if busy = busy && d.fabric == nil; busy {
				due = d.traffic.now
			}
		})
		if waited = !busy; busy {
			continue
		}
		err := waiter.Wait(wait)
		if err == nil {
			failed = 0
			continue
		}
		// The usual cause is that a port was closed while the waiter used it. In the next round
		// Recv fails for this port.
		if failed++; failed > maxWaitErrors {
			return fmt.Errorf("switch: wait: %w", err)
		}
		d.exclusive(func() { err = d.ports.renewWaiter() })
		if err != nil {
			return fmt.Errorf("switch: wait: %w", err)
		}
	}
	return nil
}
