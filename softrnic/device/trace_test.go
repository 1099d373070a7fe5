package device

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The points of an operation are recorded in order, and nothing before StartTrace and after
// EndTrace.
func TestTraceOfAWrite(t *testing.T) {
	d := openPair(t, time.Second, memcable.Config{})
	a, b := newNode(t, d[0].Context()), newNode(t, d[1].Context())
	connectPatiently(t, a, b, 20)
	write := func() {
		t.Helper()
		must(t, a.qp.PostSend(verbs.SendWR{
			Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(),
		}))
		a.one(t)
	}
	write()
	d[0].StartTrace(1000)
	write()
	events := d[0].EndTrace().Events
	write()
	if after := d[0].EndTrace(); len(after.Events) != 0 {
		t.Errorf("%d events after the end", len(after.Events))
	}
	want := []pathtrace.Point{pathtrace.Posted, pathtrace.Sending, pathtrace.Sent, pathtrace.Received, pathtrace.Handled}
	last := int64(0)
	for i, e := range events {
		if i < len(want) && e.Point != want[i] {
			t.Errorf("event %d is point %d, want %d", i, e.Point, want[i])
		}
		if e.At < last {
			t.Errorf("event %d is earlier than the one before", i)
		}
		last = e.At
	}
	if len(events) != len(want) {
		t.Errorf("%d events, want %d", len(events), len(want))
	}
	if d[0].core.clock.Monotonic(clock.Time(0)) > events[0].At {
		t.Error("the events are not of the machine's clock")
	}
}
