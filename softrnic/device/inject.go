package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// FailQP makes a queue pair fail; see engine.Engine.FailQP.
func (d *Device) FailQP(n wire.QPN) (err error) {
	d.Step(func(now clock.Time, e *engine.Engine) { err = e.FailQP(now, n, &d.core.out) })
	return err
}

// OverrunCQs makes the completion queues of a queue pair overrun; see engine.Engine.OverrunCQs.
func (d *Device) OverrunCQs(n wire.QPN) (err error) {
	d.Step(func(now clock.Time, e *engine.Engine) { err = e.OverrunCQs(now, n, &d.core.out) })
	return err
}
