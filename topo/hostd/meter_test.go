package hostd

import (
	"testing"
	"time"
)

// A meter reports the operations of the last full second alone, and zero if there were none.
func TestMeter(t *testing.T) {
	var m meter
	at := func(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }
	if s := m.status(at(0)); s != nil {
		t.Errorf("no program works: %+v", s)
	}
	m.clients(3)
	if s := m.status(at(0)); s == nil || *s != (ClientsStatus{Count: 3}) {
		t.Errorf("before anything: %+v", s)
	}
	for i := range 200 {
		took := 20 * time.Microsecond
		if i%50 == 0 {
			took = 3 * time.Millisecond
		}
		m.note(at(5*i), took)
	}
	if s := m.status(at(999)); s.Rate != 0 {
		t.Errorf("the second is not over: %+v", s)
	}
	if s := m.status(at(1000)); s.Rate != 200 || s.P99 < 2900 || s.P99 > 3100 {
		t.Errorf("%+v", s)
	}
	m.note(at(1500), 0)
	m.note(at(1600), time.Hour)
	if s := m.status(at(2100)); s.Rate != 2 {
		t.Errorf("the next second: %+v", s)
	}
	if s := m.status(at(9000)); s.Rate != 0 || s.P99 != 0 {
		t.Errorf("a second without: %+v", s)
	}
	m.clients(-3)
	if s := m.status(at(9000)); s != nil {
		t.Errorf("no program works any more: %+v", s)
	}
	now := time.Now()
	if n := testing.AllocsPerRun(100, func() { m.note(now, time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations an operation", n)
	}
}
