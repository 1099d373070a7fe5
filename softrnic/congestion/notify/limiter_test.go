package notify

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const interval = 50 * time.Microsecond

func addr(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

// With every packet marked, the gaps between CNPs are from the interval to the interval and one
// packet time: 19,900 to 20,000 CNPs a second at 50 µs and packets of 1086 bytes at 40 Gbit/s.
func TestIntervalOfCNPs(t *testing.T) {
	var l Limiter
	const packet = 217 // ns: 1086 bytes at 40 Gbit/s
	var last clock.Time
	n := 0
	for now := clock.Time(0); now < clock.Time(time.Second); now += packet {
		if !l.Allow(now, congestion.ScopeQP, interval, 7, addr(1)) {
			continue
		}
		if gap := now.Sub(last); n > 0 && (gap < interval || gap >= interval+packet) {
			t.Fatalf("CNP %d comes %v behind the one before", n, gap)
		}
		last = now
		n++
	}
	if n < 19_900 || n > 20_000 {
		t.Errorf("%d CNPs in a second", n)
	}
}

// Two queue pairs at each of two addresses get CNPs of their own, or share those of their address or
// of the port (Lumina, SIGCOMM 2023, finding 11).
func TestScopes(t *testing.T) {
	for scope, want := range map[string]int{congestion.ScopeQP: 4, congestion.ScopeIP: 2, congestion.ScopePort: 1} {
		var l Limiter
		for round := range 3 {
			got := 0
			for qp := range 4 {
				for range 5 {
					if l.Allow(clock.Time(round)*clock.Time(interval), scope, interval, wire.QPN(qp), addr(qp/2)) {
						got++
					}
				}
			}
			if got != want {
				t.Errorf("scope %s, interval %d: %d CNPs, want %d", scope, round, got, want)
			}
		}
	}
}

// Marked packets from ever new addresses do not make the limiter grow, and it does not allocate.
func TestLimiterIsBounded(t *testing.T) {
	var l Limiter
	now, sent := clock.Time(0), 0
	for i := range 1_000_000 {
		if i%100_000 == 0 {
			now = now.Add(interval)
		}
		if l.Allow(now, congestion.ScopeIP, interval, 0, addr(i)) {
			sent++
		}
		if l.Len() > MaxKeys || cap(l.ring) > 2*MaxKeys+2 {
			t.Fatalf("packet %d: %d scopes, room for %d", i, l.Len(), cap(l.ring))
		}
	}
	if sent != 10*MaxKeys {
		t.Errorf("%d CNPs, want %d", sent, 10*MaxKeys)
	}
	if n := testing.AllocsPerRun(20_000, func() {
		now = now.Add(interval / 100)
		l.Allow(now, congestion.ScopeQP, interval, wire.QPN(now)&0xffffff, addr(1))
	}); n != 0 {
		t.Errorf("%v allocations a call", n)
	}
	for range 2 {
		if !l.Allow(now, congestion.ScopePort, 0, 1, addr(1)) {
			t.Error("an interval of 0 limits CNPs")
		}
	}
}
