package hostd

import (
	"net/http"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/meta"
	clover "github.com/rdmalab/rdmalab/clover/plugin"
	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// While a store runs, the start of another one is refused and does not change it; a store that has
// failed is replaced.
func TestStartStore(t *testing.T) {
	r := testRack()
	dir := describe(t, r)
	a, b := memcable.Pair(memcable.Config{})
	h := start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	cn := control.NewClient(spec.Paths{Dir: dir}.Socket("cn0"))
	begin := func(cfg clover.Config) error {
		cfg.Servers = []string{"ms0"}
		return cn.Call(t.Context(), http.MethodPost, clover.Store.Path(store.PathStart), cfg, nil)
	}
	insert := func(key uint64) error {
		return cn.Call(t.Context(), http.MethodPost, clover.Store.Path(store.PathOp), store.OpRequest{ClientOptions: store.ClientOptions{Server: "cn0"}, Op: "insert", Key: key, Value: []byte("x")}, nil)
	}
	for _, format := range []string{"", "hardened", "sound"} { // three names of one format; the last is from an earlier version
		if err := begin(clover.Config{Keys: 64, Format: format}); err != nil {
			t.Fatal(err)
		}
	}
	if err := insert(1); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []clover.Config{{Fresh: true}, {Format: "published"}, {Format: "vanilla"}, {Keys: 65}, {Region: 4096}} {
		if err := begin(cfg); !isStatus(err, http.StatusConflict) {
			t.Errorf("%+v while a store runs: %v", cfg, err)
		}
	}
	if err := h.app.stores.nodes["clover"].(interface{ Server() *meta.Server }).Server().Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store that failed is replaced", func() bool {
		return begin(clover.Config{Keys: 64, Fresh: true, Lease: time.Millisecond}) == nil
	})
	if err := insert(1); err != nil {
		t.Errorf("the store that replaces one that has failed: %v", err)
	}
}
