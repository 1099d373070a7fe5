package experiment

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// Cached is a load of GETs and writes of memcached's protocol over UDP to key-value servers, in front of which the
// switch may answer GETs with values in the memory of other servers. Keys are spread over the key-value servers by a
// hash. The same load runs with and without the rules of the switch.
type Cached struct {
	// Keys is the number of keys, Zipf the skew of operations on them, 0 for none. Writes is the percentage of writes.
	Keys   uint64
	Zipf   float64
	Writes float64
	// Servers is the number of key-value servers, Memory that of servers with values, and Items how many values each
	// key-value server has there at most.
	Servers, Memory, Items int
	// Serve is how long a key-value server's program takes for a request; it executes one after the other.
	Serve time.Duration
	// Rate is how many operations the clients begin in a second, at random times; 0 means that they keep Window
	// operations in flight.
	Rate   float64
	Window int
	// Run is how long operations are counted.
	Run time.Duration
	// Plain is true for the load without rules.
	Plain bool
}

// CachedResult is the outcome of a Cached.
type CachedResult struct {
	// Rate is how many operations a second were answered, and Halves how many in each half of the time.
	Rate   float64
	Halves [2]float64
	// Hits is the share of GETs that the switch has answered. P50 and P99 are percentiles of the time of GETs.
	Hits     float64
	P50, P99 time.Duration
	// Wrong counts answers with a value older than one whose write had been answered before the GET was sent, and other
	// wrong ones. Lost counts operations without an answer.
	Wrong, Lost int
}

// bad says why a result does not count; "" means that it does.
func (r *CachedResult) bad() string {
	a, b := r.Halves[0], r.Halves[1]
	switch d := math.Abs(a - b); {
	case r.Wrong+r.Lost > 0:
		return fmt.Sprintf("%d wrong answers, %d operations without one", r.Wrong, r.Lost)
	case d > halfMargin*max(a, b) && d > halfNoise(a+b):
		return fmt.Sprintf("not steady: %.0f operations in the first half, %.0f in the second", a, b)
	}
	return ""
}

func (l Cached) label() string {
	load := fmt.Sprintf("%d in flight", l.Window)
	if l.Rate > 0 {
		load = fmt.Sprintf("%.1f M/s", l.Rate/1e6)
	}
	return fmt.Sprintf("GETs of %d servers, Zipf %g, %g%% writes, %s", l.Servers, l.Zipf, l.Writes, load)
}

func (l Cached) effort() float64 {
	if l.Rate > 0 {
		return 3
	}
	return 12
}

// measure runs the load with and without rules (outcome.cached and outcome.plain).
func (l Cached) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Cached(ctx, l)
	if err != nil {
		return outcome{}, err
	}
	l.Plain = true
	plain, err := p.Cached(ctx, l)
	return outcome{cached: &res, plain: &plain}, err
}

// The setting of the figures of the cache. cachedServe is an input: the time of a key-value server's program for a
// request.
const (
	cachedServers, cachedMemory = 8, 2
	cachedKeys, cachedItems     = 100_000, 512
	cachedWindow                = 256
	cachedServe                 = 2 * time.Microsecond
	// cachedPace is the load of the figures' latencies: a quarter of what all key-value servers together can do.
	cachedPace = 0.25 * cachedServers / 2e-6
	cachedRun  = 8 * time.Millisecond
)

// cachedCells adds the cells of a point of the axis x: rate and gain under as many operations as the servers can do,
// and latencies under few.
func (f *figure) cachedCells(x string, zipf, writes float64) {
	most := Cached{Keys: cachedKeys, Zipf: zipf, Writes: writes, Servers: cachedServers, Memory: cachedMemory, Items: cachedItems, Serve: cachedServe, Window: cachedWindow, Run: cachedRun}
	few := most
	few.Rate = cachedPace
	us := func(d time.Duration) float64 { return 1e6 * d.Seconds() }
	for _, s := range []struct {
		name string
		of   func(*outcome) *CachedResult
	}{{"cache", func(o *outcome) *CachedResult { return o.cached }}, {"no cache", func(o *outcome) *CachedResult { return o.plain }}} {
		f.add(
			ours("answered, M/s", s.name, x, most, func(o *outcome) float64 { return s.of(o).Rate / 1e6 }),
			ours("p50 of GETs, us", s.name, x, few, func(o *outcome) float64 { return us(s.of(o).P50) }),
			ours("p99 of GETs, us", s.name, x, few, func(o *outcome) float64 { return us(s.of(o).P99) }),
		)
	}
	f.add(ours("GETs answered by the switch, %", "cache", x, most, func(o *outcome) float64 { return 100 * o.cached.Hits }))
	f.add(ours("rate with cache / without", "cache", x, most, func(o *outcome) float64 { return o.cached.Rate / o.plain.Rate }))
}

var cachedInputs = []string{
	"the rates without a cache: a key-value server's program takes 2 us for a request, one after the other, which is a choice; the skew of the keys does the rest",
	"the load of the latencies, a quarter of what all key-value servers can do, and the size of the cache, 4,096 values of 100,000",
}

// cachedFigure shows what the switch's cache gains by the skew of GETs.
func cachedFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("extmem/netcache"), key: "netcache", title: "GETs of 8 key-value servers, whose hottest values the switch has in the memory of 2 others, by skew", unit: "M/s, us, %", format: "%.3g",
		why: []string{
			"NetCache has its values in the switch, so a hit takes no time of a server and the time of one way; here a hit takes a READ of a server's memory. NetCache has 128 servers, over which the keys of a skewed " +
				"load spread worse, and a smaller share of its keys in the cache",
			"the authors' numbers are a range, and no number of ours stands for one of theirs",
		},
		inputs: cachedInputs,
	}
	for _, x := range few([]string{"0", "0.9", "0.95", "0.99"}, quick) {
		f.cachedCells(x, number(x), 0)
	}
	for _, s := range []struct{ name, data string }{{"authors, at least", "least"}, {"authors, at most", "most"}} {
		for _, x := range f.data.Columns {
			f.add(figureCell{panel: "rate with cache / without", series: s.name, their: s.name, x: x, theirs: f.at("", s.data, x)})
		}
	}
	return f
}

// cachedWritesFigure shows what writes leave of the gain.
func cachedWritesFigure(quick bool) figure {
	f := figure{
		key: "netcache-writes", title: "GETs and writes of these servers at skew 0.99, by the share of writes", x: "% writes", unit: "M/s, us, %", format: "%.3g",
		why: []string{
			"the authors have such a figure, whose numbers are not in their abstract",
			"while the value of a hot key is unknown, its GETs wait in the switch, for at most 2 ms; what writes cost is that the probe waits for its turn at a server under full load",
			"a write ends its key's value here until the next GET has been to the server; NetCache's server updates the value in the switch",
		},
		inputs: cachedInputs,
	}
	for _, x := range few([]string{"0", "1", "5", "10", "20", "50"}, quick) {
		f.cachedCells(x, 0.99, number(x))
	}
	return f
}
