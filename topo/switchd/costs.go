package switchd

import (
	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// pace lets a frame of the switch program take the time of the switch and of the link, before the
// faults of the link apply to it. comment says what the program did to the frame.
func (t *traffic) pace(f packetio.Frame, comment string) {
	if t.costs.Made(t.now, f, t.cause) {
		if comment != "" {
			t.show(f.Port, tap.Down, f, comment) // it is captured once more, without comment, when it leaves
		}
		return
	}
	t.sw.CountDrop(f.Port, pipeline.ReasonHoldFull, f.Packets())
	t.show(f.Port, tap.Down, f, join(comment, "dropped: too many frames wait"))
}

// crossed passes the frames that have spent their time to the egress queues, and reports whether there
// were any. The frames have waited for their link already: if the process was late and there are more than
// the egress queue has room for, what is in the queue is sent first.
func (t *traffic) crossed() bool {
	if t.costs == nil || t.costs.Deadline() > t.now {
		return false
	}
	start := len(t.scratch.Frames)
	t.costs.Due(t.now, &t.scratch, func(f packetio.Frame) { t.sw.CountDrop(f.Port, pipeline.ReasonQueueFull, f.Packets()) })
	t.kept = true
	defer func() { t.kept = false }()
	for k := start; k < len(t.scratch.Frames); k++ {
		f := t.scratch.Frames[k]
		if t.ports.list[f.Port].io == nil {
			t.sw.CountDrop(f.Port, pipeline.ReasonPortDown, f.Packets())
			continue
		}
		t.toHost(f.Port, f, "")
	}
	return true
}
