package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// FailQP makes a queue pair fail; see engine.Engine.FailQP.
func (d *Device) FailQP(n wire.QPN) error {
	now := d.enter()
	defer leaveSafely(d)
	return d.e.FailQP(now, n, &d.out)
}

// OverrunCQs makes the completion queues of a queue pair overrun; see engine.Engine.OverrunCQs.
func (d *Device) OverrunCQs(n wire.QPN) error {
	now := d.enter()
	defer leaveSafely(d)
	return d.e.OverrunCQs(now, n, &d.out)
}

// Step calls f with exclusive use of the engine, as With does, and with the time of the NIC.
func Step(d *Device, f func(now clock.Time, e *engine.Engine)) {
	now := d.enter()
	defer leaveSafely(d)
	f(now, d.e)
}
