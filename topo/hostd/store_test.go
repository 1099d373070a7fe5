package hostd

import (
	"net/http"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio/memory"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// A store that runs stays as it is, and who wants another one is told; one that has failed is replaced.
func TestStartStore(t *testing.T) {
	r := testRack()
	dir := describe(t, r)
	a, b := memory.Pair(memory.Config{})
	h := start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	cn := control.NewClient(spec.Paths{Dir: dir}.Socket("cn0"))
	begin := func(cfg StoreConfig) error {
		cfg.Servers = []string{"ms0"}
		return cn.Call(t.Context(), http.MethodPost, PathStoreStart, cfg, nil)
	}
	insert := func(key uint64) error {
		return cn.Call(t.Context(), http.MethodPost, PathStoreOp, StoreOp{Meta: "cn0", Op: "insert", Key: key, Value: []byte("x")}, nil)
	}
	for range 2 {
		if err := begin(StoreConfig{Keys: 64}); err != nil {
			t.Fatal(err)
		}
	}
	if err := insert(1); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []StoreConfig{{Fresh: true}, {Format: "vanilla"}, {Keys: 65}, {Region: 4096}} {
		if err := begin(cfg); !isStatus(err, http.StatusConflict) {
			t.Errorf("%+v while a store runs: %v", cfg, err)
		}
	}
	failed := h.app.store
	if err := failed.server.Close(); err != nil {
		t.Fatal(err)
	}
	<-failed.ended
	if err := begin(StoreConfig{Keys: 64, Fresh: true, Lease: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if err := insert(1); err != nil {
		t.Errorf("the store that replaces one that has failed: %v", err)
	}
}

// However short the lease, nodes of its client rest until its NIC has sent its last.
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
