package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
)

// tracing records the times at which packets pass points of the device, for perf --breakdown.
type tracing struct {
	ring *pathtrace.Ring // nil means that the device does not record
}

func (t *tracing) record(c *real.Clock, at clock.Time, p pathtrace.Point) {
	t.ring.Add(c.Monotonic(at), p, 0)
}

// StartTrace begins to record up to n events. It ends an earlier recording.
func (d *Device) StartTrace(n int) {
	ring := pathtrace.NewRing(n)
	d.core.mu.Lock()
	defer d.core.release()
	d.core.trace.ring = ring
}

// EndTrace ends the recording and returns the events.
func (d *Device) EndTrace() pathtrace.Trace {
	d.core.mu.Lock()
	defer d.core.release()
	t := d.core.trace.ring.Trace()
	d.core.trace.ring = nil
	return t
}
