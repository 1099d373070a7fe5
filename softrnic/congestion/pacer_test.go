package congestion

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A queue pair that always has something to send keeps its mean rate within 1 %, from 1 Mbit/s to 1
// Gbit/s, although its caller wakes up late by random times; no burst exceeds MaxBurst, and the
// caller wakes up once for a burst.
func TestPacerKeepsTheRate(t *testing.T) {
	for _, rate := range []int64{1_000_000, 10_000_000, 123_456_789, 1_000_000_000} {
		for _, late := range []time.Duration{0, 20 * time.Microsecond, 500 * time.Microsecond} {
			for _, size := range []int{90, 1086, 4158} {
				t.Run(fmt.Sprint(rate, late, size), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(rate), uint64(size)))
					p := Pacer{wake: 50 * time.Microsecond}
					var now clock.Time
					sent, wakes, bursts := 0, 0, 0
					end := clock.Time(10 * time.Second)
					for now < end {
						burst := 0
						for p.Ready(now, rate) {
							p.Sent(size, rate)
							burst += size
						}
						if burst > MaxBurst {
							t.Fatalf("a burst of %d bytes", burst)
						}
						if burst > 0 {
							bursts++
						}
						sent += burst
						if p.At() <= now {
							continue // to be made up for
						}
						now = p.At()
						if late > 0 {
							now = now.Add(time.Duration(r.Int64N(int64(late))))
						}
						wakes++
					}
					want := float64(rate) / 8 * now.Sub(0).Seconds()
					if err := math.Abs(float64(sent)-want) / want; err > 0.01 {
						t.Errorf("sent %d bytes instead of %.0f: %.2f %% off", sent, want, 100*err)
					}
					if float64(wakes) > 1.2*float64(bursts) {
						t.Errorf("%d wake-ups for %d bursts", wakes, bursts)
					}
				})
			}
		}
	}
}

// A queue pair that had nothing to send begins at its rate: it has no credit from the time before.
func TestPacerGivesNoCreditForIdleTime(t *testing.T) {
	const rate, size = 100_000_000, 1086
	p := Pacer{}
	var now clock.Time
	for range 100 {
		n := 0
		for until := now.Add(time.Millisecond); now < until; now = max(now, p.At()) {
			for p.Ready(now, rate) {
				p.Sent(size, rate)
				n++
			}
		}
		if most := rate/8/1000/size + 2; n > most {
			t.Fatalf("%d packets in a millisecond, at most %d", n, most)
		}
		now = now.Add(time.Second) // Ready was not asked meanwhile
		p.waits = false
	}
}

// A caller that is late by more than a millisecond makes up for a millisecond only.
func TestPacerBoundsCatchUp(t *testing.T) {
	const rate, size = 1_000_000_000, 1086
	p := Pacer{wake: 50 * time.Microsecond}
	var now clock.Time
	for p.Ready(now, rate) {
		p.Sent(size, rate)
	}
	now = clock.Time(time.Second)
	sent := 0
	for until := now.Add(10 * time.Millisecond); now < until; now = max(now, p.At()) {
		for p.Ready(now, rate) {
			p.Sent(size, rate)
			sent += size
		}
	}
	if most := rate / 8 / 1000 * 11.2; float64(sent) > most || p.Late == 0 {
		t.Errorf("%d bytes in 10 ms after a second, at most %.0f; %d late", sent, most, p.Late)
	}
}

// A rate of 0 is no limit.
func TestPacerWithoutRate(t *testing.T) {
	var p Pacer
	for range 1000 {
		if !p.Ready(0, 0) {
			t.Fatal("a packet waits without a rate")
		}
		p.Sent(4096, 0)
	}
}
