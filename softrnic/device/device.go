package device

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// Config describes a device.
type Config struct {
	// Engine is the configuration of the NIC.
	Engine engine.Config
	// Port is the port to the NIC's link, and Waiter waits for that port; both required. After Open
	// they belong to the device; Close closes them.
	Port   packetio.Port
	Waiter packetio.Waiter
	// Clock is the clock of the device, which several devices can share; nil means a new clock.
	Clock *real.Clock
	// Spin is how long a waiting application polls before it blocks. It should be twice the
	// round-trip time. 0 means 50 µs; a negative value means no polling.
	Spin time.Duration
	// Seed seeds the random numbers of applications.
	Seed uint64
	// Second is another NIC at the same port; nil means that there is none.
	Second Second
	// Broken is called in a goroutine of its own when the NIC panics: then only the NIC ends, as if its
	// port had failed. nil means that the panic ends the process.
	Broken func(*Panic)
	// Costs make the NIC and its link to the switch take the times of this cost model, by Clock; nil
	// means that they take no time. They do not apply to Second. Frames must be single packets.
	Costs *cost.Model
	// Queues describes the egress queues of both NICs; nil means that frames leave at once. With Queues,
	// the NIC obeys pause frames, which Port must pass on.
	Queues *portqueue.Config
}

// defaultSpin is long enough for a round trip between three processes on two cores.
const defaultSpin = 50 * time.Microsecond

// Device is a running NIC.
type Device struct {
	core  core
	turns turns
	seed  atomic.Uint64 // seed of the next context

	done  chan struct{} // closed when the progress goroutine has returned
	close func() error
}

// Open starts a NIC. On error the caller still owns the port and the waiter.
func Open(cfg Config) (*Device, error) {
	if cfg.Port == nil || cfg.Waiter == nil {
		return nil, errors.New("device: Port and Waiter are required")
	}
	if o, ok := cfg.Port.(packetio.Opener); ok && cfg.Second == nil && cfg.Costs == nil && cfg.Queues == nil && cfg.Engine.Congestion == nil {
		cfg.Engine.Open = true
		o.TakeOpen()
	}
	e, err := engine.New(cfg.Engine)
	if err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	if cfg.Clock == nil {
		cfg.Clock = real.New()
	}
	cfg.Spin = cmp.Or(cfg.Spin, defaultSpin)
	d := &Device{
		core: core{
			clock: cfg.Clock, link: link{port: cfg.Port, waiter: cfg.Waiter}, e: e, second: secondNIC{nic: cfg.Second},
			waiters: waiters{seen: e.Events.Activity()}, ending: ending{tell: cfg.Broken},
		},
		done: make(chan struct{}),
	}
	c := &d.core
	d.turns = turns{core: c, spin: cfg.Spin, kick: make(signal, 1)}
	if err := c.egress.start(cfg.Queues); err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	c.costs.start(c.e, cfg.Costs, cfg.Seed)
	_, c.inside = cfg.Port.(interface{ InProcess() })
	d.turns.pace.Inside = c.inside
	d.seed.Store(cfg.Seed)
	d.close = sync.OnceValue(d.shutDown)
	if c.link.carrier, _ = cfg.Port.(packetio.Carrier); c.link.carrier != nil {
		c.link.carrier.Serve(c.serve, cfg.Waiter.Wake)
	}
	go d.run()
	return d, nil
}

// Close crashes the NIC, ends every wait with ErrClosed, waits for the progress goroutine, and
// closes the port and the waiter. A second Close returns the same result.
func (d *Device) Close() error { return d.close() }

func (d *Device) shutDown() error {
	c := &d.core
	d.Step(func(now clock.Time, _ *engine.Engine) { c.end(now) })
	c.link.waiter.Wake()
	d.turns.kick.raise()
	<-d.done
	return errors.Join(c.link.port.Close(), c.link.waiter.Close())
}

// Context opens the device for an application of this process. Each context has its own random
// numbers.
func (d *Device) Context() verbs.Context { return d.HangingContext(nil) }

// HangingContext is like Context, but the application of the new context can be stopped by h.
func (d *Device) HangingContext(h *Hang) verbs.Context {
	rt := NewRuntime(d.core.clock, d.seed.Add(1))
	rt.hang = h
	return verbsengine.New(&shell{Runtime: rt, core: &d.core, turns: &d.turns})
}

// Down crashes the NIC; see engine.Engine.Down. The link stays.
func (d *Device) Down() {
	d.Step(func(now clock.Time, e *engine.Engine) {
		e.Down(now)
		d.core.egress.clear(now)
	})
}

// Up starts the NIC again, with empty tables.
func (d *Device) Up() {
	d.With(func(e *engine.Engine) {
		if !d.core.ending.dead {
			e.Up()
			d.core.costs.restart(e)
		}
	})
}

func (d *Device) SetLink(up bool) { d.With(func(e *engine.Engine) { e.SetLink(up) }) }

// With calls f with exclusive use of the engine, for listings and fault plans. f must not block.
func (d *Device) With(f func(e *engine.Engine)) {
	d.Step(func(_ clock.Time, e *engine.Engine) { f(e) })
}

// Step is With, and passes the time of the NIC, too.
func (d *Device) Step(f func(now clock.Time, e *engine.Engine)) {
	now := d.core.enter()
	defer d.core.leaveSafely()
	f(now, d.core.e)
}

// Counters returns a copy of the NIC's counters.
func (d *Device) Counters() (c metrics.NIC) {
	d.With(func(e *engine.Engine) {
		c = *e.Counters()
		d.core.costs.count(&c)
	})
	return c
}

// QueueSamples returns the counters of the NIC's egress queues, by the names of the mlx5 driver; nil if it
// has none. Priorities that have sent nothing and were not paused are left out.
func (d *Device) QueueSamples() (list []metrics.Sample) {
	d.Step(func(now clock.Time, _ *engine.Engine) { list = d.core.egress.samples(now) })
	return list
}

// Err returns why the port became unusable; nil while it works.
func (d *Device) Err() error {
	d.core.mu.Lock()
	defer d.core.release()
	return d.core.ending.failure
}
