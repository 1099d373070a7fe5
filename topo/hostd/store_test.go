package hostd

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/meta"
	clover "github.com/rdmalab/rdmalab/clover/plugin"
	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
)

// While a store runs, the start of another one is refused and does not change it; a store that has
// failed is replaced.
func TestStartStore(t *testing.T) {
	r := testRack()
	dir := describe(t, r)
	a, b := memcable.Pair(memcable.Config{})
	h := start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	cn := control.NewClient(rackfile.Paths{Dir: dir}.Socket("cn0"))
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
	for _, cfg := range []clover.Config{{Fresh: true}, {Format: "published"}, {Format: "vanilla"}, {Keys: 65}, {Region: 4096}, {Threads: 2}} {
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

// The metadata server of a host takes requests on several threads: clients that share few keys get
// right answers while others make calls as fast as they can, and no call is lost.
func TestThreadsOfTheMetadataServer(t *testing.T) {
	_, cn, _ := up(t)
	post := func(path string, in, out any) error {
		return cn.Call(t.Context(), http.MethodPost, clover.Store.Path(path), in, out)
	}
	cfg := clover.Config{Servers: []string{"ms0"}, Keys: 64, Threads: meta.MaxThreads + 1}
	if err := post(store.PathStart, cfg, nil); !isStatus(err, http.StatusBadRequest) {
		t.Fatalf("%d threads: %v", cfg.Threads, err)
	}
	cfg.Threads = 3
	if err := post(store.PathStart, cfg, nil); err != nil {
		t.Fatal(err)
	}
	at := store.ClientOptions{Server: "cn0"}
	over := make(chan error)
	var calls struct{ Clients, Calls int }
	go func() {
		over <- post("calls", map[string]any{"server": at.Server, "clients": 4, "durationNs": 300 * time.Millisecond}, &calls)
	}()
	var v store.Verdict
	if err := post(store.PathHistory, store.HistoryRequest{ClientOptions: at, Clients: 4, Rounds: 30, Keys: 3, Base: 1000, Value: 64, Seed: 1}, &v); err != nil {
		t.Fatal(err)
	}
	if err := <-over; err != nil {
		t.Fatal(err)
	}
	if !v.Linearizable || v.Operations < 4*30 || v.Lost > 0 || calls.Clients != 4 || calls.Calls < 8 {
		t.Errorf("history %+v, calls %+v", v, calls)
	}
	endless := store.HistoryRequest{ClientOptions: at, Clients: 2, Rounds: maxCheckRounds, Keys: 3, Base: 2000, Value: 64, Seed: 1, Every: 20 * time.Millisecond}
	go func() { over <- post(store.PathHistory, endless, &v) }()
	time.Sleep(100 * time.Millisecond) // some operations
	for ended := false; !ended; time.Sleep(10 * time.Millisecond) {
		if err := post(store.PathHistoryEnd, nil, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-over:
			if ended = true; err != nil || !v.Linearizable || v.Operations == 0 || v.Operations >= endless.Rounds {
				t.Errorf("a history that is ended: %+v, %v", v, err)
			}
		default:
		}
	}
	endless.Every = store.MaxEvery + 1
	if err := post(store.PathHistory, endless, &v); !isStatus(err, http.StatusBadRequest) {
		t.Errorf("a pause of %v: %v", endless.Every, err)
	}
	if err := post(store.PathStop, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// The answer to a start says why each size of nodes has a fixed part of the memory.
func TestStartSaysThatPartsAreFixed(t *testing.T) {
	_, cn, _ := up(t)
	var got struct{ Fixed string }
	cfg := clover.Config{Servers: []string{"ms0"}, Keys: 64, Format: "keyed"}
	if err := cn.Call(t.Context(), http.MethodPost, clover.Store.Path(store.PathStart), cfg, &got); err != nil || !strings.Contains(got.Fixed, "checksum") {
		t.Errorf("%q, %v", got.Fixed, err)
	}
}
