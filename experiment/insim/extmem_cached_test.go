package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

// Without a cache the rate of skewed GETs is that of the busiest key-value server; with one it is higher, and the
// answers of the switch come before those of a server that is not busy at all would take twice as long. No answer is
// wrong, also if a fifth of the operations are writes.
func TestCached(t *testing.T) {
	l := experiment.Cached{Keys: 10_000, Zipf: 0.99, Servers: 4, Memory: 2, Items: 128, Serve: 2 * time.Microsecond, Window: 64, Run: 2 * time.Millisecond}
	run := func(l experiment.Cached) experiment.CachedResult {
		t.Helper()
		r, err := lentModel(t).Cached(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v", r)
		if r.Wrong+r.Lost > 0 || (r.Hits > 0) == l.Plain {
			t.Errorf("%+v: %+v", l, r)
		}
		return r
	}
	plain := l
	plain.Plain = true
	base, cached := run(plain), run(l)
	if base.Rate > 4/l.Serve.Seconds() || cached.Rate < 1.5*base.Rate {
		t.Errorf("%.3g operations a second with cache, %.3g without", cached.Rate, base.Rate)
	}
	l.Writes = 20
	if w := run(l); w.Rate >= cached.Rate || w.Hits >= cached.Hits {
		t.Errorf("%.3g operations a second with writes, %.3g without", w.Rate, cached.Rate)
	}
	l.Writes, l.Rate = 0, 0.5e6
	plain.Rate = l.Rate
	if a, b := run(l), run(plain); a.P50 <= 0 || a.P99 >= b.P99 {
		t.Errorf("p99 %v with cache, %v without", a.P99, b.P99)
	}
}
