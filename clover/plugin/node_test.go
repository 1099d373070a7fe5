package plugin

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/meta"
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

// A store that runs is not started again with other settings: the caller is told.
func TestRunningStoreDiffers(t *testing.T) {
	if err := (&server{}).differs(Config{Keys: meta.DefaultKeys, Replicas: 1, Lease: meta.DefaultLease}, "md0"); err != nil {
		t.Errorf("a store with the defaults, and the same values given: %v", err)
	}
	if err := (&server{}).differs(Config{Keys: meta.DefaultKeys + 1}, "md0"); err == nil {
		t.Error("a store with the default number of keys has another number")
	}
	running := &server{cfg: Config{Keys: 1000, Threads: 2}}
	for cfg, differs := range map[*Config]bool{
		{}:                                       false,
		{Keys: 1000, Threads: 2}:                 false,
		{Format: "hardened"}:                     false,
		{Lease: meta.DefaultLease}:               false,
		{Lease: meta.DefaultLease + time.Second}: true,
		{Keys: 2000}:                             true,
		{Threads: 1}:                             true,
		{Region: 1 << 20}:                        true,
		{Format: "published"}:                    true,
		{Fresh: true}:                            true,
	} {
		if err := running.differs(*cfg, "md0"); (err != nil) != differs {
			t.Errorf("%+v: %v", *cfg, err)
		}
	}
}
