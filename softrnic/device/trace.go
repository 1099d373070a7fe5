package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
)

// tracing records the times at which packets pass points of the device, for perf --breakdown.
type tracing struct {
	ring    *pathtrace.Ring // nil means that the device does not record
	entered clock.Time      // time of the last enter
}

func (t *tracing) record(c *real.Clock, at clock.Time, p pathtrace.Point) {
	t.ring.Add(c.Monotonic(at), p, 0)
}

// mark records that a step has reached point p now, if a recording runs (see StartTrace).
func (d *Device) mark(p pathtrace.Point) {
	if d.ring != nil {
		d.tracing.record(d.clock, d.clock.Now(), p)
	}
}

// StartTrace begins to record up to n events. It ends an earlier recording.
func (d *Device) StartTrace(n int) {
	ring := pathtrace.NewRing(n)
	d.mu.Lock()
	defer d.link.release(&d.mu)
	d.ring = ring
}

// EndTrace ends the recording and returns the events.
func (d *Device) EndTrace() pathtrace.Trace {
	d.mu.Lock()
	defer d.link.release(&d.mu)
	t := d.ring.Trace()
	d.ring = nil
	return t
}
