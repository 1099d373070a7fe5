package insim

import (
	"math"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

func lentModel(t *testing.T) *Sim {
	t.Helper()
	return &Sim{Cost: model(t, "connectx3-40g")}
}

// near fails the test if a number differs from the expected one by more than a share.
func near(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if t.Logf("%s: %.4g, expected %.4g", what, got, want); math.Abs(got/want-1) > share || math.IsNaN(got) {
		t.Errorf("%s: %.4g, want %.4g within %g %%", what, got, want, 100*share)
	}
}

// With several READs in flight, store and load take the whole link: 1,500 of the bytes that a frame's
// WRITE, or its entry's response, has on the wire. The
// published rule does so, too, but a response has one entry. With one in flight the published rule has
// a frame a round trip, and the hardened one two.
func TestBufferRates(t *testing.T) {
	const (
		rate    = 40e9
		headers = 14 + 20 + 8 + 12 + 4 + 24 // Ethernet, IPv4, UDP, BTH, ICRC, and what the wire adds
		head    = 32                        // of an entry
	)
	for _, c := range []struct {
		load experiment.BufferRate
		wire float64 // bytes on the wire for a frame or message
	}{
		{experiment.BufferRate{Direction: experiment.Store, Mode: experiment.Hardened, Bytes: 1500, Entry: 1552, Depth: 16}, 1500 + head + headers + 16},
		{experiment.BufferRate{Direction: experiment.Store, Mode: experiment.Published, Bytes: 1500, Entry: 1552, Depth: 16}, 1500 + head + headers + 16},
		{experiment.BufferRate{Direction: experiment.Load, Mode: experiment.Hardened, Bytes: 1500, Entry: 1552, Depth: 16}, 1552 + (headers+4)/2}, // a response has two entries
		{experiment.BufferRate{Direction: experiment.Load, Mode: experiment.Published, Bytes: 1500, Entry: 1552, Depth: 5}, 1552 + headers + 4},
		{experiment.BufferRate{Direction: experiment.Load, Mode: experiment.Hardened, Bytes: 1500, Entry: 2048, Depth: 16}, 2048 + (headers+4)/2},
		{experiment.BufferRate{Direction: experiment.Store, Native: true, Bytes: 1500}, 1500 + headers + 16},
		{experiment.BufferRate{Direction: experiment.Load, Native: true, Bytes: 1500}, 1500 + headers + 4},
	} {
		got, err := lentModel(t).BufferRate(t.Context(), c.load)
		if err != nil {
			t.Error(err)
		}
		near(t, c.load.Direction+" "+c.load.Mode, got, rate*float64(c.load.Bytes)/c.wire, 0.01)
	}
	one := experiment.BufferRate{Direction: experiment.Load, Mode: experiment.Published, Bytes: 1500, Entry: 1552, Depth: 1}
	published, err := lentModel(t).BufferRate(t.Context(), one)
	if err != nil {
		t.Error(err)
	}
	one.Mode, one.Depth = experiment.Hardened, 1
	hardened, err := lentModel(t).BufferRate(t.Context(), one)
	if err != nil {
		t.Error(err)
	}
	const bits = 8 * 1500
	second := (head + 1500 + 20) * 8 / rate // the time of another entry on the link
	near(t, "one READ in flight", hardened, 2*bits/(bits/published+second), 0.02)
	near(t, "one READ in flight, of the link", published, rate/4.5, 0.2)
}

// Eight senders fill 12 MB at 280 Gb/s. Without a ring the rest is dropped, with one on eight servers
// all frames arrive in their order.
func TestIncast(t *testing.T) {
	l := experiment.Incast{Senders: 8, Bytes: 20e6, Frame: 1500, Room: 2000, Mode: experiment.Hardened}
	plain, err := lentModel(t).Incast(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "first loss", plain.Loss.Seconds(), 3e6*8/280e9, 0.1)
	near(t, "most in the switch", float64(plain.Peak), 3e6, 0.02)
	if float64(plain.Arrived) > 0.5*20e6 || plain.Arrived < 3e6 {
		t.Errorf("%d bytes arrive without a ring", plain.Arrived)
	}
	l.Servers = 8
	ring, err := lentModel(t).Incast(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if ring.Arrived != l.Bytes/l.Senders/l.Frame*l.Senders*l.Frame || ring.Loss != 0 || ring.Disorder != 0 || ring.Peak > 3e6 {
		t.Errorf("with a ring: %+v", ring)
	}
	near(t, "last frame", ring.Last.Seconds(), float64(ring.Arrived)*1524/1500*8/40e9, 0.02)
}

// A lookup adds one or two microseconds, nothing if the entry is in the cache, and no packet is lost
// or meets no entry. Several servers answer more lookups.
func TestLookups(t *testing.T) {
	at := func(l experiment.Lookups) experiment.LookupsResult {
		t.Helper()
		out, err := lentModel(t).Lookups(t.Context(), l)
		if err != nil || out.Wrong != 0 || out.Lost != 0 {
			t.Errorf("%+v: %+v: %v", l, out, err)
		}
		return out
	}
	for _, bytes := range []int{64, 1024} {
		l := experiment.Lookups{Where: experiment.LookupNone, Bytes: bytes, Window: 1, Flows: 16, Servers: 1}
		plain := at(l).Median
		for _, m := range []string{experiment.Hardened, experiment.Published} {
			l.Where, l.Mode = experiment.LookupRemote, m
			if added := at(l).Median - plain; added < time.Microsecond || added > 2*time.Microsecond {
				t.Errorf("%d bytes, %s: %v more", bytes, m, added)
			}
		}
		l.Where, l.Mode = experiment.LookupCached, experiment.Hardened
		if got := at(l).Median; got != plain {
			t.Errorf("%d bytes in the cache: %v, not %v", bytes, got, plain)
		}
	}
	l := experiment.Lookups{Where: experiment.LookupRemote, Mode: experiment.Hardened, Bytes: 64, Window: 64, Flows: 1024, Servers: 1}
	one := at(l).Rate
	near(t, "a server, of the requests of a queue pair", one, 18.6e6/3, 0.1) // WRITE, READ of slots, READ of 96 bytes
	l.Window, l.Servers = 8*64, 8
	near(t, "eight servers", at(l).Rate, 8*one, 0.15)
}

// The counter has each WRITE of the client, whatever may be in flight, and the client is not slower.
func TestCounting(t *testing.T) {
	plain, err := lentModel(t).Counting(t.Context(), experiment.Counting{Bytes: 1500})
	if err != nil || plain.Adds != 0 || plain.Counted != 0 {
		t.Fatalf("%+v: %v", plain, err)
	}
	for _, depth := range []int{1, 4, 16} {
		got, err := lentModel(t).Counting(t.Context(), experiment.Counting{Mode: experiment.Hardened, Depth: depth, Bytes: 1500})
		if err != nil || got.Counted != got.Sent || got.Sent < 1000 || got.Adds == 0 {
			t.Errorf("%d in flight: %+v: %v", depth, got, err)
		}
		near(t, "client", got.Client, plain.Client, 0.001)
	}
	published, err := lentModel(t).Counting(t.Context(), experiment.Counting{Mode: experiment.Published, Depth: 1, Bytes: 1500})
	if err != nil || published.Counted == 0 || published.Counted > published.Sent {
		t.Errorf("published: %+v: %v", published, err)
	}
}

// A switch that begins to load when one frame waits leaves the port idle in the time of a READ. From a few
// frames on it does not, and more only wait in the switch.
func TestWhenToLoad(t *testing.T) {
	at := func(low int) experiment.IncastResult {
		t.Helper()
		out, err := lentModel(t).Incast(t.Context(), experiment.Incast{Senders: 8, Bytes: 5e6, Frame: 1500, Room: 1600, Servers: 8, Low: low, Mode: experiment.Hardened})
		if err != nil || out.Loss != 0 || out.Disorder != 0 {
			t.Fatalf("%d frames: %+v: %v", low, out, err)
		}
		return out
	}
	late, enough, early := at(1), at(16), at(512)
	near(t, "last frame, full port", enough.Last.Seconds(), float64(enough.Arrived)*1524/1500*8/40e9, 0.01)
	if late.Last < enough.Last+3*time.Microsecond || early.Last > enough.Last+time.Microsecond {
		t.Errorf("last frames after %v, %v and %v", late.Last, enough.Last, early.Last)
	}
	if late.Held > enough.Held || early.Held < 2*enough.Held {
		t.Errorf("%.0f, %.0f and %.0f bytes in the switch", late.Held, enough.Held, early.Held)
	}
}

// A ring in servers' memory, PFC and DCQCN lose nothing where a port without them does. PFC holds back what a
// paused host sends to an idle server; the others do not.
func TestRelief(t *testing.T) {
	at := func(way string) experiment.ReliefResult {
		t.Helper()
		out, err := lentModel(t).Relief(t.Context(), experiment.Relief{Way: way, Senders: 8, Bytes: 2_500_000, Room: 12_000_000})
		if err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		return out
	}
	drop, ring, pfc, dcqcn := at(experiment.ReliefDrop), at(experiment.ReliefRing), at(experiment.ReliefPFC), at(experiment.ReliefDCQCN)
	full := 20e6 * (1024 + 58 + 24) / 1024 * 8 / 40e9 // the time of all WRITEs at the port
	near(t, "ring, the port is full", ring.Slowest.Seconds(), full, 0.05)
	near(t, "PFC, the port is full", pfc.Slowest.Seconds(), full, 0.05)
	if drop.Resent == 0 || ring.Resent != 0 || pfc.Resent != 0 || dcqcn.Resent != 0 {
		t.Errorf("sent again: dropped %d, ring %d, PFC %d, DCQCN %d", drop.Resent, ring.Resent, pfc.Resent, dcqcn.Resent)
	}
	if pfc.Victim < 2*ring.Victim || dcqcn.Victim > ring.Victim*11/10 {
		t.Errorf("to the idle server: dropped %v, ring %v, PFC %v, DCQCN %v", drop.Victim, ring.Victim, pfc.Victim, dcqcn.Victim)
	}
}
