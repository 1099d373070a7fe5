package hostd

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/kvtest"
	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	kvcs "github.com/rdmalab/rdmalab/store/kvcs/plugin"
)

// kvcsStart starts the coordinator on cn0 and the replica on ms0, and waits until clients may use it.
func kvcsStart(t *testing.T, cn, ms *control.Client, fresh bool) {
	t.Helper()
	shape := map[string]int{"Buckets": 64, "Cells": 300, "Value": 1200}
	for _, x := range []struct {
		c  *control.Client
		in map[string]any
	}{{cn, map[string]any{"shape": shape, "fresh": fresh}}, {ms, map[string]any{"shape": shape, "coordinator": "cn0"}}} {
		if err := x.c.Call(t.Context(), http.MethodPost, kvcs.Store.Path(store.PathStart), x.in, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "ms0 is a replica", func() bool {
		var s struct {
			Coordinator struct{ Replicas []string }
		}
		if err := cn.Call(t.Context(), http.MethodPost, kvcs.Store.Path("stat"), nil, &s); err != nil {
			t.Fatal(err)
		}
		return slices.Equal(s.Coordinator.Replicas, []string{loopback(2).String()})
	})
}

// kvcs over real 1RMA NICs and UDP does what any store must do, and ends with the application.
func TestKVCS(t *testing.T) {
	r := soloRack()
	// The coordinator fences a replica after 40 RTT without progress: on a busy machine the replica may
	// not run for some time.
	r.OneRMA.RTT, r.OneRMA.Timeout = 25*time.Millisecond, 100*time.Millisecond
	dir := describe(t, r)
	a, b := memcable.Pair(memcable.Config{})
	h := start(t, dir, &r.Hosts[0], a)
	start(t, dir, &r.Hosts[1], b)
	paths := rackfile.Paths{Dir: dir}
	cn, ms := control.NewClient(paths.Socket("cn0")), control.NewClient(paths.Socket("ms0"))
	kvcsStart(t, cn, ms, false)
	open, err := h.app.stores.nodes["kvcs"].Clients(store.ClientOptions{Server: "cn0"})
	if err != nil {
		t.Fatal(err)
	}
	v := h.app.context()
	list := open(v)
	conforms := func() {
		t.Helper()
		now := v.Runtime().Now
		x, err := list.Open(now().Add(store.Patience))
		if err != nil {
			t.Fatal(err)
		}
		y, err := list.Open(now().Add(store.Patience))
		if err != nil {
			t.Fatal(err)
		}
		if err := kvtest.Check(kvtest.Env{A: x, B: y, Now: now, Largest: 1200, Exact: true}); err != nil {
			t.Error(err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if err := y.Close(); err != nil {
			t.Error(err)
		}
	}
	conforms()
	kvcsStart(t, cn, ms, true) // another store: the keys of the first one are gone
	conforms()
	c, err := list.Open(v.Runtime().Now().Add(store.Patience))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{PathCrashApp, PathStartApp} {
		if err := cn.Call(t.Context(), http.MethodPost, path, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(1, nil, v.Runtime().Now().Add(store.Patience)); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("GET of a client that has crashed: %v", err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	kvcsStart(t, cn, ms, false)
	conforms()
	if err := ms.Call(t.Context(), http.MethodPost, PathNIC, NICRequest{State: StateDown}, nil); err != nil {
		t.Fatal(err)
	}
	if st := status(t, ms); len(st.Stores) != 0 {
		t.Errorf("%+v runs without a NIC", st.Stores)
	}
	if err := v.Close(); err != nil {
		t.Error(err)
	}
}
