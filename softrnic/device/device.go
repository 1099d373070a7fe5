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
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
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
	clock *real.Clock
	link  link
	spin  time.Duration
	seed  atomic.Uint64 // seed of the next context

	mu      sync.Mutex // guards the fields up to ending, except pace and the atomics of polls
	e       *engine.Engine
	second  secondNIC // the other NIC at the port
	costs   costs
	egress  egress
	rx, out packetio.Batch
	waits
	polls
	armed clock.Time // when the progress goroutine wakes up without being notified
	tracing
	ending

	kick  signal        // ends the pause in which the progress goroutine leaves the port to an application
	done  chan struct{} // closed when the progress goroutine has returned
	close func() error
}

// link is the device's port and what belongs to it.
type link struct {
	port   packetio.Port
	waiter packetio.Waiter
	// carrier is the port if it has no thread that moves its frames, else nil.
	carrier packetio.Carrier
}

// release unlocks mu, the lock of the device, after a step that has sent nothing. Frames that came
// meanwhile at a carrier are left to the thread that was inside.
func (l *link) release(mu *sync.Mutex) {
	mu.Unlock()
	if l.carrier != nil {
		l.carrier.Carry()
	}
}

// waits has the application threads that are blocked in the device.
type waits struct {
	seen    uint64 // the engine's Activity when the conditions of the waiters were last checked
	waiting []*waiter
	free    []*waiter // for reuse
}

// polls says which threads poll the port.
type polls struct {
	spinner    bool             // an application thread polls in await
	pace       pollpace.Spinner // pace of the thread that polls in await, which alone uses it
	idle       bool             // the last step found nothing to do, and its thread must pause
	emptyPolls int              // consecutive polls that found nothing, since the last wait of an application
	// polled counts the polls of completion queues by applications. polling is a copy of spinner that
	// the progress goroutine reads without the lock.
	polled  atomic.Uint64
	polling atomic.Bool
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
		clock: cfg.Clock, link: link{port: cfg.Port, waiter: cfg.Waiter}, spin: cfg.Spin, e: e, second: secondNIC{nic: cfg.Second}, waits: waits{seen: e.Activity()},
		kick: make(signal, 1), done: make(chan struct{}), ending: ending{tell: cfg.Broken},
	}
	if err := d.egress.start(cfg.Queues); err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	d.costs.start(d.e, cfg.Costs, cfg.Seed)
	_, d.pace.Inside = cfg.Port.(interface{ InProcess() })
	d.seed.Store(cfg.Seed)
	d.close = sync.OnceValue(d.shutDown)
	if d.link.carrier, _ = cfg.Port.(packetio.Carrier); d.link.carrier != nil {
		d.link.carrier.Serve(d.serve, cfg.Waiter.Wake)
	}
	go d.run()
	return d, nil
}

// Close crashes the NIC, ends every wait with ErrClosed, waits for the progress goroutine, and
// closes the port and the waiter. A second Close returns the same result.
func (d *Device) Close() error { return d.close() }

func (d *Device) shutDown() error {
	d.With(func(*engine.Engine) { end(d, d.entered) })
	d.link.waiter.Wake()
	d.kick.raise()
	<-d.done
	return errors.Join(d.link.port.Close(), d.link.waiter.Close())
}

// Context opens the device for an application of this process. Each context has its own random
// numbers.
func (d *Device) Context() verbs.Context { return d.HangingContext(nil) }

// HangingContext is like Context, but the application of the new context can be stopped by h.
func (d *Device) HangingContext(h *Hang) verbs.Context {
	rt := NewRuntime(d.clock, d.seed.Add(1))
	rt.hang = h
	return verbsengine.New(&shell{Runtime: rt, d: d})
}

// Down crashes the NIC; see engine.Engine.Down. The link stays.
func (d *Device) Down() {
	d.With(func(e *engine.Engine) {
		e.Down(d.entered)
		d.egress.clear(d.entered)
	})
}

// Up starts the NIC again, with empty tables.
func (d *Device) Up() {
	d.With(func(e *engine.Engine) {
		if !d.dead {
			e.Up()
			d.costs.restart(e)
		}
	})
}

func (d *Device) SetLink(up bool) { d.With(func(e *engine.Engine) { e.SetLink(up) }) }

// With calls f with exclusive use of the engine, for listings and fault plans. f must not block.
func (d *Device) With(f func(e *engine.Engine)) {
	d.enter()
	defer leaveSafely(d)
	f(d.e)
}

// end makes the NIC unusable for good, wakes all waiters, and drops frames that were not sent.
func end(d *Device, now clock.Time) {
	d.dead = true
	d.e.Down(now)
	d.second.down()
	d.egress.clear(now)
	d.e.Notify() // even if the NIC was already down
}

// Counters returns a copy of the NIC's counters.
func (d *Device) Counters() (c metrics.NIC) {
	d.With(func(e *engine.Engine) {
		c = *e.Counters()
		d.costs.count(&c)
	})
	return c
}

// Err returns why the port became unusable; nil while it works.
func (d *Device) Err() error {
	d.mu.Lock()
	defer d.link.release(&d.mu)
	return d.failure
}
