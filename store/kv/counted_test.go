package kv

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// noted is a table that notes its operations, and can scan.
type noted struct {
	*table
	starts    []clock.Time
	deadlines []time.Duration // relative to the beginning of the operation
	sizes     []int           // of written values and scans
	numbers   []uint64        // of written values
	keys      []uint64
	cost      Cost
	shown     int // how many keys the scans have passed to their callers
}

func newNoted(keys uint64) *noted {
	rt := newVirtual()
	return &noted{table: newTable(rt, keys), cost: Cost{RTTs: 1}}
}

func (n *noted) note(key uint64, deadline clock.Time) {
	n.starts = append(n.starts, n.rt.now)
	n.deadlines = append(n.deadlines, deadline.Sub(n.rt.now))
	n.keys = append(n.keys, key)
}

func (n *noted) written(key uint64, value []byte) {
	n.sizes = append(n.sizes, len(value))
	number, _ := CheckValue(key, value)
	n.numbers = append(n.numbers, number)
}

func (n *noted) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	n.note(key, deadline)
	return n.table.Get(key, dst, deadline)
}

func (n *noted) Put(key uint64, value []byte, deadline clock.Time) error {
	n.note(key, deadline)
	n.written(key, value)
	return n.table.Put(key, value, deadline)
}

func (n *noted) Insert(key uint64, value []byte, deadline clock.Time) error {
	n.note(key, deadline)
	n.written(key, value)
	return n.table.Insert(key, value, deadline)
}

func (n *noted) Scan(from uint64, count int, f func(uint64, []byte) bool, deadline clock.Time) error {
	n.note(from, deadline)
	n.sizes = append(n.sizes, count)
	for range 3 {
		n.shown++
		if !f(from, nil) {
			break
		}
	}
	return n.do(KindScan, from, ErrNotFound)
}

func (n *noted) Last() Cost { return n.cost }

// What the configuration leaves out is 5 s for an operation, values of the least length, and scans
// of up to 100 keys.
func TestDefaults(t *testing.T) {
	s := newNoted(1)
	cfg := RunConfig{Workload: Workload{Update: 1}, Keys: 1, Clients: 1, Ops: 3}
	if res, err := Load(s, s.rt, cfg); err != nil || res.Existed != 1 || s.deadlines[0] != 5*time.Second || s.sizes[0] != MinValue {
		t.Errorf("load: %+v, %v; deadline %v, size %d", res, err, s.deadlines[0], s.sizes[0])
	}
	if _, err := Run(s, s.rt, cfg, nil); err != nil || s.deadlines[1] != 5*time.Second || s.sizes[1] != MinValue {
		t.Errorf("run: %v; deadline %v, size %d", err, s.deadlines[1], s.sizes[1])
	}
	cfg.Patience, cfg.Value = 1, 77
	s = newNoted(1)
	if _, err := Run(s, s.rt, cfg, nil); err != nil || s.deadlines[0] != 1 || s.sizes[0] != 77 {
		t.Errorf("run: %v; deadline %v, size %d", err, s.deadlines[0], s.sizes[0])
	}
	for n, most := range map[int]int{0: 100, 1: 1, 3: 3} {
		s := newNoted(1)
		_, err := Run(s, s.rt, RunConfig{Workload: Workload{Scan: 1}, Keys: 1, Clients: 1, Ops: 2000, ScanLen: n}, nil)
		if err != nil || slices.Min(s.sizes) != 1 || slices.Max(s.sizes) != most || s.shown != 6000 {
			t.Errorf("scans of %d: %d to %d keys; %v", n, slices.Min(s.sizes), slices.Max(s.sizes), err)
		}
	}
}

// A load refuses a number that no client has, and numbers of clients out of range.
func TestLoadRefusesAClientThatIsNone(t *testing.T) {
	for _, cfg := range []RunConfig{{Keys: 9}, {Keys: 9, Clients: 3, Client: 3}, {Keys: 9, Clients: 3, Client: -1}, {Keys: 9, Clients: MaxClients + 1}} {
		if res, err := Load(NewMap(1000), newVirtual(), cfg); err == nil {
			t.Errorf("client %d of %d: %+v", cfg.Client, cfg.Clients, res)
		}
	}
}

// A load inserts all keys once, and no others.
func TestLoadAllKeys(t *testing.T) {
	s := newNoted(0)
	for client := range 3 {
		if res, err := Load(s, s.rt, RunConfig{Keys: 9, Clients: 3, Client: client}); err != nil || res.Clients != 1 || res.Ops[KindInsert] != 3 {
			t.Errorf("%+v, %v", res, err)
		}
	}
	if slices.Sort(s.keys); !slices.Equal(s.keys, []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
		t.Errorf("keys %v", s.keys)
	}
}

// No two writes have the same value: those of the load, and of all clients of a run.
func TestValuesOfARunDiffer(t *testing.T) {
	s := newNoted(0)
	cfg := RunConfig{Workload: Workload{Update: 0.5, ReadModify: 0.5}, Keys: 20, Clients: 3}
	for cfg.Client = range cfg.Clients {
		if _, err := Load(s, s.rt, cfg); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Ops = 30
	for cfg.Client = range cfg.Clients {
		if _, err := Run(s, s.rt, cfg, nil); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Sort(s.numbers); len(s.numbers) != 20+3*30 || len(slices.Compact(s.numbers)) != 20+3*30 {
		t.Errorf("%d writes: %x", len(s.numbers), s.numbers)
	}
}

// A closed loop begins operations until its time is over: an operation that would begin at the end
// does not. Operations of the warmup are not counted, and are not in the span; Observe sees them.
func TestTimeOfARun(t *testing.T) {
	for _, c := range []struct {
		warmup, duration time.Duration
		counted          uint64
	}{{0, time.Millisecond, 10}, {0, 1, 1}, {0, 100*time.Microsecond + 1, 2}, {450 * time.Microsecond, time.Millisecond, 10}} {
		s := newNoted(1)
		seen := uint64(0)
		cfg := RunConfig{Workload: Workload{Read: 1}, Keys: 1, Clients: 1, Warmup: c.warmup, Duration: c.duration, Observe: func(d time.Duration) {
			if seen++; d != 100*time.Microsecond {
				t.Errorf("an operation took %v", d)
			}
		}}
		res, err := Run(s, s.rt, cfg, nil)
		if err != nil || res.Clients != 1 || res.Total() != c.counted || res.Span != time.Duration(c.counted)*100*time.Microsecond || seen != uint64(len(s.starts)) {
			t.Errorf("%v after %v: %d operations in %v, %d seen of %d; %v", c.duration, c.warmup, res.Total(), res.Span, seen, len(s.starts), err)
		}
		if rows := res.Summary().Latencies; len(rows) != 1 {
			t.Errorf("a closed loop has no queue: %+v", rows)
		}
	}
	s := newNoted(1)
	if res, err := Run(s, s.rt, RunConfig{Workload: Workload{Read: 1}, Keys: 1, Clients: 1, Ops: 5}, func() bool { return true }); err != nil || res.Span != 0 || res.Total() != 0 {
		t.Errorf("a run that is stopped: %+v, %v", res, err)
	}
}

// The clients of an open loop do not begin all at once, but within the time between two operations.
// From then on each operation is due that time after the last. Their waits are in the row queue.
func TestOpenLoopBeginsAnywhere(t *testing.T) {
	const period = 2 * time.Second
	var first []clock.Time
	s := newNoted(1)
	for range 20 {
		begin := s.rt.now
		s.starts = nil
		res, err := Run(s, s.rt, RunConfig{Workload: Workload{Read: 1}, Keys: 1, Clients: 1, Ops: 3, Rate: 0.5}, nil)
		if err != nil || len(s.starts) != 3 || s.starts[1].Sub(s.starts[0]) != period || s.starts[2].Sub(s.starts[1]) != period {
			t.Fatalf("at %v; %v", s.starts, err)
		}
		if rows := res.Summary().Latencies; len(rows) != 2 || rows[1].Kind != "queue" || rows[1].Ops != 3 {
			t.Errorf("an open loop has a queue: %+v", rows)
		}
		first = append(first, clock.Time(s.starts[0].Sub(begin)))
	}
	if slices.Sort(first); first[0] > clock.Time(period/2) || first[19] < clock.Time(period/2) || first[19] > clock.Time(period) || len(slices.Compact(first)) < 20 {
		t.Errorf("clients begin after %v", first)
	}
}

// Wrong values count only if they are checked. An operation that fails counts by its kind of
// failure, and is no part of the span. The first error is kept.
func TestFailuresOfARun(t *testing.T) {
	s := newNoted(2)
	for key := range s.data {
		s.data[key] = MakeValue(key+1, 5, MinValue)
	}
	cfg := RunConfig{Workload: Workload{Read: 1}, Keys: 2, Clients: 1, Ops: 4}
	if res, err := Run(s, s.rt, cfg, nil); err != nil || res.Wrong != 0 || res.Total() != 4 {
		t.Errorf("unchecked: %+v, %v", res, err)
	}
	cfg.Verify = true
	n, ended := 0, 0
	stop := func() bool { n++; return n > 6 }
	cfg.Ended = func() { ended++ } // also of operations that fail
	if res, err := Run(s, s.rt, cfg, stop); err != nil || res.Wrong != 6 || res.Total() != 0 || res.Span != 0 || !strings.Contains(res.FirstError, "read: "+ErrValue.Error()) {
		t.Errorf("checked: %+v, %v", res, err)
	}
	n = 0
	s.fail = func(Kind, uint64) error { return fmt.Errorf("failure %d", n) }
	if res, err := Run(s, s.rt, cfg, stop); err != nil || res.Failed != 6 || res.Span != 0 || res.FirstError != "read: failure 1" {
		t.Errorf("%+v, %v", res, err)
	}
	s.fail, s.data = nil, nil
	n = 0
	if res, err := Run(s, s.rt, cfg, stop); err != nil || res.NotFound != 6 || res.Failed+res.Wrong != 0 || !strings.HasPrefix(res.FirstError, "read: ") {
		t.Errorf("%+v, %v", res, err)
	}
	if ended != 18 {
		t.Errorf("%d operations have ended, want 18", ended)
	}
	plain := struct{ Store }{s}
	n = 0
	if res, err := Run(plain, s.rt, RunConfig{Workload: Workload{Scan: 1}, Keys: 2, Clients: 1, Ops: 4}, stop); err != nil || res.Failed != 6 || !strings.Contains(res.FirstError, "cannot scan") {
		t.Errorf("%+v, %v", res, err)
	}
}

// A read-modify-write has the round trips of both parts, and the retries of its write. If the key
// may be absent, the write inserts it; another error of the read ends it.
func TestReadModifyWrite(t *testing.T) {
	s := newNoted(1)
	s.cost = Cost{RTTs: 1, RPCs: 10, Retries: 100}
	cfg := RunConfig{Workload: Workload{ReadModify: 1}, Keys: 1, Clients: 1, Ops: 1}
	if res, err := Run(s, s.rt, cfg, nil); err != nil || res.RTTs != 2 || res.RPCs != 20 || res.Retries != 100 {
		t.Errorf("%+v, %v", res, err)
	}
	s.fail = func(op Kind, _ uint64) error {
		if op == KindRead {
			return ErrLost
		}
		return nil
	}
	once := func() func() bool {
		n := 0
		return func() bool { n++; return n > 1 }
	}
	writes := len(s.sizes)
	for _, deletes := range []float64{0, 1e-9} {
		cfg.Workload.Delete = deletes
		if res, err := Run(s, s.rt, cfg, once()); err != nil || res.Failed != 1 || len(s.sizes) != writes {
			t.Errorf("a read that fails: %+v, %v, %d writes", res, err, len(s.sizes)-writes)
		}
	}
	s.fail = nil
	for _, absent := range []bool{false, true} {
		s.data = map[uint64][]byte{}
		cfg.Workload.Delete = map[bool]float64{false: 0, true: 1e-9}[absent]
		res, err := Run(s, s.rt, cfg, once())
		if err != nil || (len(s.data) == 1) != absent || (res.Total() == 1) != absent || (res.NotFound == 0) != absent {
			t.Errorf("a key that may be absent, %v: %+v, %v; %d keys", absent, res, err, len(s.data))
		}
	}
}

// An update of a key that other clients insert and delete meanwhile has the cost of all attempts,
// and each key that others have inserted first is a retry. It ends after some attempts.
func TestCostsOfAnUpdate(t *testing.T) {
	s := newNoted(0)
	s.cost = Cost{RTTs: 1, RPCs: 10}
	var answers []error
	s.fail = func(Kind, uint64) error {
		err := answers[0]
		answers = answers[1:]
		return err
	}
	for _, list := range [][]error{{ErrFull}, {ErrNotFound, ErrFull}, slices.Repeat([]error{ErrNotFound, ErrExists}, maxSet)} {
		answers = list
		res, err := Replay(s, s.rt, RunConfig{Clients: 1}, []Op{{Kind: KindUpdate, Key: 3}}, nil)
		if err != nil || len(answers) != 0 || res.Failed != 1 {
			t.Errorf("%v: %+v, %v; %d are left", list, res, err, len(answers))
		}
	}
	// The table's own answers: the key is absent for PUT, exists for INSERT, and exists at last.
	n := 0
	s.fail = func(op Kind, key uint64) error {
		switch n++; {
		case op == KindUpdate && n < 5:
			delete(s.data, key)
		default:
			s.data[key] = MakeValue(key, 1, MinValue)
		}
		return nil
	}
	res, err := Replay(s, s.rt, RunConfig{Clients: 1}, []Op{{Kind: KindUpdate, Key: 3}}, nil)
	if err != nil || res.RTTs != 5 || res.RPCs != 50 || res.Retries != 2 || res.FirstTry != 0 || res.Total() != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	s.fail, s.data = nil, map[uint64][]byte{}
	res, err = Replay(s, s.rt, RunConfig{Clients: 1}, []Op{{Kind: KindUpdate, Key: 3}}, nil)
	if err != nil || res.RTTs != 2 || res.RPCs != 20 || res.Retries != 0 || res.FirstTry != 1 || res.Total() != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

// A later run inserts behind the keys of the earlier ones without a gap, and all clients' keys are
// behind the loaded ones.
func TestInsertedKeysHaveNoGaps(t *testing.T) {
	s := newNoted(10)
	cfg := RunConfig{Workload: Workload{Insert: 1}, Keys: 10, Clients: 3}
	for _, cfg.Ops = range []uint64{1, 4, 2, 9, 1, 30, 3} {
		for cfg.Client = range cfg.Clients {
			if _, err := Run(s, s.rt, cfg, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for client := range uint64(3) {
		for n := range uint64(50) {
			if s.data[10+n*MaxClients+client] == nil {
				t.Errorf("client %d has left out its key %d", client, n)
			}
		}
	}
	if len(s.data) != 10+3*50 {
		t.Errorf("%d keys", len(s.data))
	}
}

// Without inserted keys the newest keys are the last loaded ones, and behind the inserted keys come
// these.
func TestLatestOfTheLoadedKeys(t *testing.T) {
	for _, insert := range []float64{0, 0.01} {
		s := newNoted(100)
		cfg := RunConfig{Workload: Workload{Read: 1 - insert, Insert: insert, Latest: true}, Keys: 100, Clients: 1, Ops: 3000, Zipf: 0.99}
		res, err := Run(s, s.rt, cfg, nil)
		if err != nil || res.NotFound+res.Failed > 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		var newest, oldest int
		for _, key := range s.keys {
			switch {
			case key >= 90 && key < 100:
				newest++
			case key < 50:
				oldest++
			}
		}
		if newest < oldest {
			t.Errorf("with %g inserts, the last ten loaded keys are read %d times, the older half %d times", insert, newest, oldest)
		}
		if first := slices.Index(s.keys, 99); insert == 0 && (first < 0 || first > 30) {
			t.Errorf("the newest key is read first as operation %d", first)
		}
	}
}

// A client of ShapeOwn with one key uses it.
func TestOneOwnKey(t *testing.T) {
	s := newNoted(1)
	cfg := RunConfig{Workload: Workload{Read: 1}, Keys: 1, Clients: 1, Ops: 5, Popularity: Popularity{Shape: ShapeOwn}}
	if res, err := Run(s, s.rt, cfg, nil); err != nil || res.NotFound != 0 || slices.Max(s.keys) != 0 {
		t.Errorf("%+v, %v; keys %v", res, err, s.keys)
	}
}
