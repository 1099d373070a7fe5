package executor

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// received returns the bytes that have reached a host.
func (r *rack) received(i int) uint64 { return r.hosts[i].nic.Stats().ReceivedBytes }

// share returns the part of the line rate at which bytes reach a host during d.
func (r *rack) share(i int, d time.Duration) float64 {
	before := r.received(i)
	r.run(d)
	return float64(r.received(i)-before) * 8 / d.Seconds() / rate
}

// endless starts READs that last for the whole test.
func (r *rack) endless(from, to int) {
	for range 40 {
		r.start(from, r.transfer(from, to, onerma.Read, 0, size))
	}
}

// ramp returns after how many round trips a flow from a window of first has reached 0.9 of the line
// rate, over two round trips.
func ramp(t *testing.T, first float64) int {
	r := newRack(t, 2, Config{First: first})
	r.endless(0, 1)
	for n := 2; n < 200; n += 2 {
		if r.share(0, 2*rtt) >= 0.9 {
			return n
		}
	}
	return -1
}

// Figure 15: a flow reaches the line rate without a failed operation, and keeps it. The paper needs 8
// round trips, and does not give the first window: by its own algorithm a window of 1 grows by 0.25 in
// a round trip.
func TestRamp(t *testing.T) {
	for _, c := range []struct {
		first float64
		most  int // round trips
	}{{15, 4}, {10, 30}, {1, 100}} {
		n := ramp(t, c.first)
		t.Logf("first window %g: 0.9 of the line rate after %d RTT", c.first, n)
		if n < 0 || n > c.most {
			t.Errorf("first window %g: %d RTT, want at most %d", c.first, n, c.most)
		}
	}
	r := newRack(t, 2, Config{First: 10})
	r.endless(0, 1)
	r.run(100 * rtt)
	got := r.share(0, 400*rtt)
	t.Logf("then %.3f of the line rate; ended %v", got, r.hosts[0].nic.Stats().Ended)
	if ended := r.hosts[0].nic.Stats().Ended; got < 0.9 || ended[1]+ended[2]+ended[3]+ended[4] > 0 {
		t.Errorf("%.3f of the line rate, ended %v", got, ended)
	}
}

// Figure 15: two clients of one server share its link.
func TestFairness(t *testing.T) {
	r := newRack(t, 3, Config{First: 10})
	r.endless(0, 2)
	r.run(80 * rtt)
	r.endless(1, 2)
	fair := -1
	for n := 0; n < 400 && fair < 0; n += 10 {
		a, b := r.received(0), r.received(1)
		r.run(10 * rtt)
		a, b = r.received(0)-a, r.received(1)-b
		if fair < 0 && float64(min(a, b)) >= 0.8*float64(max(a, b)) {
			fair = n + 10
		}
	}
	a, b := r.received(0), r.received(1)
	r.run(400 * rtt)
	a, b = r.received(0)-a, r.received(1)-b
	sum := float64(a+b) * 8 / (400 * rtt).Seconds() / rate
	t.Logf("fair (4:5 or better in 10 RTT) after %d RTT; then %d and %d bytes, together %.3f of the line rate", fair, a, b, sum)
	if fair < 0 || sum < 0.85 || float64(min(a, b)) < 0.7*float64(max(a, b)) {
		t.Errorf("fair after %d RTT; %d and %d bytes, %.3f of the line rate", fair, a, b, sum)
	}
}

// Many clients of one server do not make its goodput collapse.
func TestIncast(t *testing.T) {
	r := newRack(t, 9, Config{First: 15})
	for i := range 8 {
		r.endless(i, 8)
	}
	r.run(200 * rtt)
	before := r.hosts[8].nic.Stats().SentBytes
	r.run(400 * rtt)
	got := float64(r.hosts[8].nic.Stats().SentBytes-before) * 8 / (400 * rtt).Seconds() / rate
	t.Logf("%.3f of the line rate; %d NACKs", got, r.hosts[8].nic.Stats().Nacks)
	if got < 0.7 {
		t.Errorf("%.3f of the line rate", got)
	}
}

// A cut of the link and its end: the transfer goes on.
func TestCut(t *testing.T) {
	r := newRack(t, 2, Config{First: 10}, fault.Rule{Link: addr(1).String(), Kind: fault.Blackhole, For: 50 * rtt})
	got := r.one(0, r.transfer(0, 1, onerma.Write, 0, 100_000))
	t.Logf("%+v", got)
	if got.Moved != 100_000 || got.Retries == 0 {
		t.Errorf("%+v", got)
	}
}
