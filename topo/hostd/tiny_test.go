package hostd

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// tiny is a third store: a map in the daemon that starts it. To be usable, a store only has to be
// registered.
var tiny = store.Store{
	Name: "tiny", Title: "Tiny", Columns: []string{"GETS"},
	Node: func(store.Host) store.Node { return &tinyNode{} },
}

func init() { store.Register(tiny) }

// tinyLargest is the length of the longest value. The store has no flag that changes it.
const tinyLargest = 60

// tinyNode is a host's part of the store.
type tinyNode struct {
	mu   sync.Mutex // guards the fields below
	up   bool
	data map[uint64][]byte
	gets uint64
	// loseAt is the number of GETs after which the store loses all values; 0: never. lost has the
	// keys whose values it has lost.
	loseAt uint64
	lost   map[uint64]bool
}

func (n *tinyNode) Routes(m *control.Mux) {
	type none = struct{}
	control.Handle(m, "POST "+tiny.Path(store.PathStart), func(*http.Request, none) (none, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.up, n.data = true, map[uint64][]byte{}
		return none{}, nil
	})
	control.Handle(m, "POST "+tiny.Path("lose"), func(*http.Request, none) (none, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.loseAt, n.lost = n.gets+40, map[uint64]bool{}
		return none{}, nil
	})
	control.Handle(m, "POST "+tiny.Path(store.PathStop), func(*http.Request, none) (none, error) { return none{}, n.Crash() })
}

func (n *tinyNode) Clients(store.ClientOptions) (func(verbs.Context) store.Clients, error) {
	if !n.Status().Up {
		return nil, control.Errorf(http.StatusConflict, "%s", tiny.HowToStart())
	}
	return func(verbs.Context) store.Clients { return n }, nil
}

func (n *tinyNode) Status() store.Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return store.Status{Up: n.up, Values: []uint64{n.gets}}
}

func (n *tinyNode) Crash() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up = false
	return nil
}
func (n *tinyNode) NICGone() error                    { return nil }
func (n *tinyNode) Open(clock.Time) (kv.Store, error) { return tinyClient{n}, nil }
func (n *tinyNode) Close() error                      { return nil }
func (tinyClient) Close() error                       { return nil }
func (tinyClient) Last() kv.Cost                      { return kv.Cost{RTTs: 1} }
func (c tinyClient) Put(k uint64, v []byte, _ clock.Time) error {
	return c.set(k, v, kv.ErrNotFound, true)
}

// tinyClient is a client.
type tinyClient struct{ n *tinyNode }

// set stores v, or deletes the key if v is nil. It returns the error otherwise if the key does not
// exist although there is true, or exists although there is false.
func (c tinyClient) set(k uint64, v []byte, otherwise error, there bool) error {
	if len(v) > tinyLargest {
		return kv.ErrTooLarge
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.n.lost[k] && there {
		return kv.ErrLost
	}
	if _, ok := c.n.data[k]; ok != there {
		return otherwise
	}
	delete(c.n.lost, k)
	if v == nil {
		delete(c.n.data, k)
	} else {
		c.n.data[k] = append([]byte{}, v...)
	}
	return nil
}

func (c tinyClient) Insert(k uint64, v []byte, _ clock.Time) error {
	return c.set(k, v, kv.ErrExists, false)
}

func (c tinyClient) Delete(k uint64, _ clock.Time) error { return c.set(k, nil, kv.ErrNotFound, true) }

func (c tinyClient) Get(k uint64, dst []byte, _ clock.Time) ([]byte, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.n.gets++; c.n.gets == c.n.loseAt {
		for key := range c.n.data {
			c.n.lost[key] = true
		}
		clear(c.n.data)
	}
	if c.n.lost[k] {
		return nil, kv.ErrLost
	}
	v, ok := c.n.data[k]
	if !ok {
		return nil, kv.ErrNotFound
	}
	return append(dst[:0], v...), nil
}

// A registered store is started, used, checked and measured by the daemon without any other change.
func TestAThirdStore(t *testing.T) {
	_, cn, _ := up(t)
	call := func(request string, in, out any) error {
		return cn.Call(t.Context(), http.MethodPost, tiny.Path(request), in, out)
	}
	if err := call(store.PathOp, store.OpRequest{Op: "get", Key: 1}, nil); !isStatus(err, http.StatusConflict) {
		t.Errorf("before it was started: %v", err)
	}
	if err := call(store.PathStart, nil, nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		op, value string
		status    int
	}{
		{"put", "x", http.StatusNotFound},
		{"insert", "x", 0},
		{"insert", "y", http.StatusConflict},
		{"put", "z", 0},
		{"get", "", 0},
		{"scan", "", http.StatusBadRequest},
		{"upsert", "x", http.StatusBadRequest},
		{"delete", "", 0},
		{"get", "", http.StatusNotFound},
	} {
		var out store.Answer
		err := call(store.PathOp, store.OpRequest{Op: c.op, Key: 1, Value: []byte(c.value), N: 1}, &out)
		if (c.status == 0) != (err == nil) || err != nil && !isStatus(err, c.status) {
			t.Errorf("%s %s: %v, want status %d", c.op, c.value, err, c.status)
		}
		if err == nil && (out.Cost != "1 round trips" || c.op == "get" && string(out.Value) != "z") {
			t.Errorf("%s: %+v", c.op, out)
		}
	}
	var v store.Verdict
	if err := call(store.PathHistory, store.HistoryRequest{Clients: 3, Rounds: 50, Keys: 2, Value: 40, Seed: 1}, &v); err != nil || !v.Linearizable || v.Operations < 150 {
		t.Errorf("check: %+v, %v", v, err)
	}
	for _, loss := range []bool{false, true} {
		if err := call("lose", nil, nil); err != nil {
			t.Fatal(err)
		}
		in := store.HistoryRequest{Clients: 3, Rounds: 50, Keys: 2, Value: 40, Seed: 1, Base: 100, Loss: loss}
		var v store.Verdict
		if err := call(store.PathHistory, in, &v); err != nil || v.Linearizable != loss || v.Lost == 0 || v.OnlyLost == loss {
			t.Errorf("check of a store that loses values, loss %v: %+v, %v", loss, v, err)
		}
		if err := call(store.PathStart, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	w, err := kv.FindWorkload("a")
	if err != nil {
		t.Fatal(err)
	}
	run := RunRequest{Store: "tiny", Count: 2, Config: kv.RunConfig{
		Workload: w, Keys: 10, Value: 40, Clients: 2, Ops: 20, Duration: time.Minute, Verify: true,
	}}
	for _, run.Load = range []bool{true, false} {
		var res *kv.Result
		done := uint64(0)
		err = control.Items(t.Context(), cn, http.MethodPost, PathRun, run, func(ev RunEvent) error {
			if done = ev.Done; ev.Result != nil {
				res = ev.Result
			}
			return nil
		})
		if err != nil || !run.Load && (res == nil || done != 40 || res.Total() != 40 || res.Wrong+res.Failed+res.NotFound > 0) {
			t.Errorf("run: %+v, %v", res, err)
		}
		if run.Load && (res == nil || res.Total()+res.Existed != 10) {
			t.Errorf("load: %+v", res)
		}
	}
	st := status(t, cn).Stores
	if len(st) != 1 || st[0].Store != "tiny" || len(st[0].Values) != 1 || st[0].Values[0] == 0 {
		t.Errorf("status: %+v", st)
	}
	if err := call(store.PathStop, nil, nil); err != nil || len(status(t, cn).Stores) != 0 {
		t.Errorf("stop: %v", err)
	}
	if hosts, err := tiny.Places(&rackfile.Rack{Hosts: []rackfile.Host{{Name: "cn0", Role: rackfile.Compute}}}); err != nil || len(hosts) != 1 {
		t.Errorf("places: %v, %v", hosts, err)
	}
}

// A value that is too large: the error names a flag that makes the store for larger ones only if
// the store has it. The error of a run names the flag of the run, too.
func TestTooLarge(t *testing.T) {
	_, cn, _ := up(t)
	w, err := kv.FindWorkload("a")
	if err != nil {
		t.Fatal(err)
	}
	type shape struct{ Value int }
	for _, c := range []struct {
		store string
		start any
		hint  bool
	}{
		{"tiny", nil, false},
		{"template", store.TableRequest[shape]{Finding: store.Finding{Servers: []string{"ms0"}, Fresh: true}, Shape: shape{60}}, true},
	} {
		s, err := store.Find(c.store)
		if err != nil {
			t.Fatal(err)
		}
		if err := cn.Call(t.Context(), http.MethodPost, s.Path(store.PathStart), c.start, nil); err != nil {
			t.Fatal(err)
		}
		check := func(what, flag string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), kv.ErrTooLarge.Error()) || !strings.Contains(err.Error(), flag) || strings.Contains(err.Error(), "start --fresh --value") != c.hint {
				t.Errorf("%s of %s: %v", what, c.store, err)
			}
		}
		check("insert", "", cn.Call(t.Context(), http.MethodPost, s.Path(store.PathOp), store.OpRequest{Op: "insert", Key: 1, Value: make([]byte, 61)}, nil))
		run := RunRequest{Store: c.store, Count: 1, Load: true, Config: kv.RunConfig{Workload: w, Keys: 10, Value: 100, Clients: 1, Ops: 1}}
		check("run", "--value-size", control.Items(t.Context(), cn, http.MethodPost, PathRun, run, func(ev RunEvent) error {
			return nil
		}))
	}
}
