package device

import (
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
)

// core is the engine with what one thread at a time steps: the second NIC, batches, timers and waiters. A thread has exclusive use of it
// between enter and leave (lock.go), and step.go has what it does meanwhile.
type core struct {
	clock  *real.Clock
	link   link
	inside bool // the link ends in this process

	mu      sync.Mutex // guards the fields below
	e       *engine.Engine
	second  secondNIC // the other NIC at the port
	costs   costs
	egress  egress
	rx, out packetio.Batch
	waiters waiters
	empty   emptyPolls
	armed   clock.Time // when the progress goroutine wakes up without being notified
	entered clock.Time // time of the last enter
	trace   tracing
	ending  ending
}

// link is the device's port and what belongs to it.
type link struct {
	port   packetio.Port
	waiter packetio.Waiter
	// carrier is the port if it has no thread that moves its frames, else nil.
	carrier packetio.Carrier
}

// carry handles frames that have come at a carrier while this thread was inside the device.
func (l *link) carry() {
	if l.carrier != nil {
		l.carrier.Carry()
	}
}

// emptyPolls counts the polls of applications that found nothing.
type emptyPolls struct {
	n    int  // consecutive ones, since the last wait of an application
	idle bool // the last step found nothing to do, and its thread must pause
}

// deadline returns when one of the two NICs must be called next.
func (c *core) deadline() clock.Time {
	at := clock.Min(clock.Min(c.e.Deadline(), c.costs.deadline()), c.egress.deadline())
	if c.second.nic != nil {
		at = clock.Min(at, c.second.nic.Deadline())
	}
	return at
}

// mark records that a step has reached point p now, if a recording runs (Device.StartTrace).
func (c *core) mark(p pathtrace.Point) {
	if c.trace.ring != nil {
		c.trace.record(c.clock, c.clock.Now(), p)
	}
}
