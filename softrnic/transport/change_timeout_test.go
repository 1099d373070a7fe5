package transport

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// TestTimeoutFromNone gives a timeout to a queue pair without one that has a request in flight.
func TestTimeoutFromNone(t *testing.T) {
	l := defaultLink
	a := newSide(t, "a", 1, 1<<16, Config{QPN: 0x11})
	b := newSide(t, "b", 2, 1<<16, Config{QPN: 0x12})
	connect(t, a, b, l)
	a.qp.core.rts.Timeout = 0 // as ToRTS with Timeout 0
	post(t, a, writeTo(b))
	if d := a.qp.Deadline(); d != clock.Never {
		t.Fatalf("deadline %v without a timeout", d)
	}
	a.out.Reset() // the request is lost
	if err := a.qp.ToSQD(0, &a.out); err != nil {
		t.Fatal(err)
	}
	at := clock.Time(time.Millisecond)
	if err := a.qp.Modify(at, verbs.QPModify{Mask: verbs.ModifyTimeout, Timeout: 10}); err != nil {
		t.Fatal(err)
	}
	if d := a.qp.Deadline(); d != at.Add(AckTimeout(10)) {
		t.Errorf("deadline %v with a request in flight, want %v", d, at.Add(AckTimeout(10)))
	}
}
