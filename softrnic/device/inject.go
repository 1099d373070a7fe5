package device

import "github.com/rdmalab/rdmalab/softrnic/wire"

// FailQP makes a queue pair fail; see engine.Engine.FailQP.
func (d *Device) FailQP(n wire.QPN) error {
	now := d.enter()
	defer d.leave()
	return d.e.FailQP(now, n, &d.out)
}

// OverrunCQs makes the completion queues of a queue pair overrun; see engine.Engine.OverrunCQs.
func (d *Device) OverrunCQs(n wire.QPN) error {
	now := d.enter()
	defer d.leave()
	return d.e.OverrunCQs(now, n, &d.out)
}
