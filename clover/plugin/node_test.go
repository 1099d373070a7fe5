package plugin

import (
	"testing"
	"time"
)

// However short the lease is, a dead client's nodes are not given out before the client's NIC has
// sent its last retry.
func TestGraceOutlivesRequests(t *testing.T) {
	const ack = 4096 * time.Nanosecond << 14 // rdmacm.Params
	for _, lease := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, time.Minute} {
		if got := graceOf(lease); got < 8*ack || got < lease {
			t.Errorf("lease %v: grace %v", lease, got)
		}
	}
	if got := graceOf(0); got != 0 {
		t.Errorf("usual lease: grace %v", got)
	}
}
