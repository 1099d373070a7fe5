package kv

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// virtual is a runtime of one thread whose time passes in Sleep alone.
type virtual struct {
	verbs.Runtime
	now  clock.Time
	rand *rand.Rand
}

func newVirtual() *virtual { return &virtual{rand: rand.New(rand.NewPCG(1, 2))} }

func (v *virtual) Now() clock.Time       { return v.now }
func (v *virtual) Sleep(d time.Duration) { v.now = v.now.Add(d) }
func (v *virtual) Rand() *rand.Rand      { return v.rand }

// table is a store in the test's memory whose operations take a time. Each operation asks fail
// first; an insert that fails with ErrTimeout is executed.
type table struct {
	rt   *virtual
	data map[uint64][]byte
	took func() time.Duration
	fail func(op Kind, key uint64) error
}

func newTable(rt *virtual, keys uint64) *table {
	t := &table{rt: rt, data: map[uint64][]byte{}, took: func() time.Duration { return 100 * time.Microsecond }}
	for k := range keys {
		t.data[k] = MakeValue(k, k, MinValue)
	}
	return t
}

func (t *table) do(op Kind, key uint64, exists error) error {
	t.rt.Sleep(t.took())
	if t.fail != nil {
		if err := t.fail(op, key); err != nil {
			return err
		}
	}
	if _, ok := t.data[key]; ok != (exists == ErrNotFound) { //nolint:errorlint // the very value of the caller below
		return exists
	}
	return nil
}

func (t *table) Get(key uint64, dst []byte, _ clock.Time) ([]byte, error) {
	err := t.do(KindRead, key, ErrNotFound)
	return append(dst[:0], t.data[key]...), err
}

func (t *table) Put(key uint64, value []byte, _ clock.Time) error {
	err := t.do(KindUpdate, key, ErrNotFound)
	if err == nil {
		t.data[key] = slices.Clone(value)
	}
	return err
}

func (t *table) Insert(key uint64, value []byte, _ clock.Time) error {
	err := t.do(KindInsert, key, ErrExists)
	if err == nil || errors.Is(err, ErrTimeout) {
		t.data[key] = slices.Clone(value)
	}
	return err
}

func (t *table) Delete(key uint64, _ clock.Time) error {
	err := t.do(kinds, key, ErrNotFound)
	if err == nil {
		delete(t.data, key)
	}
	return err
}

func (t *table) Last() Cost   { return Cost{RTTs: 1} }
func (t *table) Close() error { return nil }

func workload(t *testing.T, name string) Workload {
	t.Helper()
	w, err := FindWorkload(name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A store that does nothing for a second makes all operations late that were due in that second:
// each counts from the instant at which it was due, and none is left out. A closed loop has one late
// operation.
func TestOpenLoopCountsWhatAStallDelays(t *testing.T) {
	run := func(rate float64) *Result {
		rt := newVirtual()
		s := newTable(rt, 10)
		s.took = func() time.Duration {
			if now := rt.now; now >= clock.Time(500*time.Millisecond) && now < clock.Time(1500*time.Millisecond) {
				return clock.Time(1500 * time.Millisecond).Sub(now)
			}
			return 100 * time.Microsecond
		}
		res, err := Run(s, rt, RunConfig{Workload: workload(t, "c"), Keys: 10, Clients: 1, Duration: 2 * time.Second, Rate: rate}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	// 1000 a second for 2 s; during the stall 1000 become due. They wait 1 s to 0 s for its end, and
	// up to 0.1 s for those before them, which the store executes at 10,000 a second.
	open := run(1000)
	if n := open.Total(); n < 1999 || n > 2000 {
		t.Errorf("%d operations, want 2000", n)
	}
	for _, c := range []struct {
		p        float64
		from, to time.Duration
	}{
		{40, 90 * time.Microsecond, 120 * time.Microsecond},
		{75, 480 * time.Millisecond, 580 * time.Millisecond},
		{99, 960 * time.Millisecond, time.Second},
	} {
		if got := open.Percentile(KindRead, c.p); got < c.from || got > c.to {
			t.Errorf("percentile %g is %v, want %v to %v", c.p, got, c.from, c.to)
		}
	}
	if closed := run(0); closed.Percentile(KindRead, 99.9) > time.Millisecond || closed.Percentile(KindRead, 100) < 900*time.Millisecond {
		t.Errorf("closed loop: p99.9 %v, longest %v", closed.Percentile(KindRead, 99.9), closed.Percentile(KindRead, 100))
	}
}

// Operations that became due before the end are counted, although they end after it, and the rate
// that a slow store reaches is its own.
func TestOpenLoopOverload(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 10)
	s.took = func() time.Duration { return 2 * time.Millisecond }
	res, err := Run(s, rt, RunConfig{Workload: workload(t, "c"), Keys: 10, Clients: 1, Duration: time.Second, Rate: 1000}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, rate := res.Total(), res.Throughput(); n < 999 || rate < 499 || rate > 502 {
		t.Errorf("%d operations, %.0f a second; want 1000 at 500", n, rate)
	}
	if p := res.Percentile(KindRead, 100); p < 990*time.Millisecond {
		t.Errorf("the last operation took %v, want about 1 s", p)
	}
}

// A key is one of the keys after its insert has succeeded, and not before: no read of YCSB D asks
// for a key whose insert has failed.
func TestFailedInsertsAreNoKeys(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 100)
	n := 0
	s.fail = func(op Kind, _ uint64) error {
		if n++; op == KindInsert && n%3 > 0 {
			return ErrFull
		}
		return nil
	}
	cfg := RunConfig{Workload: Workload{Read: 0.5, Insert: 0.5, Latest: true}, Keys: 100, Clients: 1, Duration: 2 * time.Second, Zipf: 0.99, Verify: true}
	res, err := Run(s, rt, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.NotFound+res.Wrong+res.Existed > 0 || res.Failed == 0 || int(res.Ops[KindInsert]) != len(s.data)-100 {
		t.Errorf("%d not found, %d wrong, %d existed, %d failed; %d inserts, %d keys; first: %s", res.NotFound, res.Wrong, res.Existed, res.Failed,
			res.Ops[KindInsert], len(s.data)-100, res.FirstError)
	}
}

// An insert whose outcome is unknown is tried again, and a key that it has made is one of the keys.
func TestInsertsOfUnknownOutcome(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 10)
	n := 0
	s.fail = func(op Kind, key uint64) error {
		if _, there := s.data[key]; op == KindInsert && !there {
			if n++; n%10 == 0 {
				return TimedOut(nil)
			}
		}
		return nil
	}
	res, err := Run(s, rt, RunConfig{Workload: workload(t, "d"), Keys: 10, Clients: 1, Ops: 5000, Zipf: 0.99}, nil)
	if err != nil || res.NotFound > 0 || res.Failed == 0 || res.Existed != res.Failed {
		t.Errorf("%+v, %v", res, err)
	}
}

// A second run on the same store inserts behind the keys of the first, also with another number of
// clients.
func TestInsertsGoOnBehindAnEarlierRun(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 10)
	for i, ops := range []uint64{1, 2, 3, 100, 2000, 5} {
		clients := []int{3, 1, 5, 2}[i%4]
		for client := range clients {
			res, err := Run(s, rt, RunConfig{Workload: Workload{Insert: 1}, Keys: 10, Clients: clients, Client: client, Ops: ops}, nil)
			if err != nil || res.Existed+res.Failed > 0 || res.Total() != ops {
				t.Errorf("%d inserts of client %d: %+v, %v", ops, client, res, err)
			}
		}
	}
}

// The result of a load has its inserts, and says how many keys existed.
func TestLoadIsMeasured(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 5)
	cfg := RunConfig{Workload: workload(t, "c"), Keys: 20, Clients: 2, Client: 1}
	res, err := Load(s, rt, cfg)
	if err != nil || res.Ops[KindInsert] != 8 || res.Existed != 2 || res.Span != time.Millisecond || res.Percentile(KindInsert, 50) == 0 {
		t.Errorf("%+v, %v", res, err)
	}
	s.fail = func(_ Kind, key uint64) error {
		if key == 10 {
			return ErrFull
		}
		return nil
	}
	cfg.Client = 0
	if res, err = Load(s, rt, cfg); !errors.Is(err, ErrFull) || res.Ops[KindInsert] != 2 || res.Existed != 3 {
		t.Errorf("a load that fails: %+v, %v", res, err)
	}
}
