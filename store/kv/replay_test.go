package kv

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A trace is replayed at its times, or a multiple of their speed: an operation that waits for a slow
// one before it counts from the instant at which it was due. Without a pace there are no gaps.
func TestReplayAtItsTimes(t *testing.T) {
	var ops []Op
	for i := range 1000 {
		ops = append(ops, Op{At: time.Duration(i) * time.Millisecond, Kind: KindRead, Key: uint64(i % 10)})
	}
	for _, c := range []struct {
		pace      float64
		end       clock.Time
		p25, most time.Duration
	}{
		{pace: 1, end: clock.Time(999*time.Millisecond + 100*time.Microsecond), p25: 100 * time.Microsecond, most: 300 * time.Millisecond},
		{pace: 2, end: clock.Time(499*time.Millisecond + 600*time.Microsecond), p25: 100 * time.Microsecond, most: 300 * time.Millisecond},
		{pace: 0, end: clock.Time(300*time.Millisecond + 999*100*time.Microsecond), p25: 100 * time.Microsecond, most: 300 * time.Millisecond},
	} {
		rt := newVirtual()
		s := newTable(rt, 10)
		n := 0
		s.took = func() time.Duration {
			if n++; n == 100 {
				return 300 * time.Millisecond
			}
			return 100 * time.Microsecond
		}
		res, err := Replay(s, rt, RunConfig{Clients: 1, Pace: c.pace}, ops, nil)
		if err != nil || res.Total() != 1000 || rt.now < c.end || rt.now > c.end.Add(time.Millisecond) {
			t.Errorf("pace %g: %d operations, at %v, want %v; %v", c.pace, res.Total(), rt.now, c.end, err)
		}
		// At its times the stall of 300 ms delays about 330 operations by up to 300 ms.
		late := res.Percentile(KindRead, 80) > 50*time.Millisecond
		if late != (c.pace > 0) || res.Percentile(KindRead, 25) > 110*time.Microsecond || res.Percentile(KindRead, 100) < 295*time.Millisecond {
			t.Errorf("pace %g: p25 %v, p80 %v, longest %v", c.pace, res.Percentile(KindRead, 25), res.Percentile(KindRead, 80), res.Percentile(KindRead, 100))
		}
	}
}

// What finds no key, and an insert that finds its key, are operations of the trace like the others, and
// an update makes the key.
func TestReplayFindsNoKey(t *testing.T) {
	rt := newVirtual()
	s := newTable(rt, 0)
	res, err := Replay(s, rt, RunConfig{Clients: 1, Verify: true}, []Op{
		{Kind: KindRead, Key: 7},
		{Kind: KindUpdate, Key: 7, Size: 30},
		{Kind: KindRead, Key: 7},
		{Kind: KindInsert, Key: 7, Size: 30},
		{Kind: KindDelete, Key: 7},
		{Kind: KindDelete, Key: 7},
		{Kind: KindReadModify, Key: 7, Size: 40},
		{Kind: KindInsert, Key: 1 << 63},
	}, nil)
	if err != nil || res.Total() != 8 || res.NotFound != 2 || res.Existed != 1 || res.Failed > 0 || len(s.data[7]) != 40 || len(s.data[1<<63]) != MinValue {
		t.Errorf("%+v, %v; the value has %d bytes", res, err, len(s.data[7]))
	}
	if res, err := Replay(s, rt, RunConfig{Clients: 1}, make([]Op, 5), func() bool { return true }); err != nil || res.Total() != 0 {
		t.Errorf("a replay that is stopped: %+v, %v", res, err)
	}
}
