package serialize

import (
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
)

// The set of open places agrees with a list of booleans, for PSNs beyond the ring's size too.
func TestSlots(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var s slots
	var want [ringSize]bool
	for range 2000 {
		at := wire.PSN(r.Uint32N(1 << 24))
		if want[at%ringSize] = r.IntN(3) == 0; want[at%ringSize] {
			s.add(at)
		} else {
			s.remove(at)
		}
		next := ringSize
		for i := ringSize - 1; i >= 0; i-- {
			if want[i] {
				next = i
			}
			if s.next(i) != next || s.has(wire.PSN(i)) != want[i] {
				t.Fatalf("from place %d: %d, want %d; %t", i, s.next(i), next, s.has(wire.PSN(i)))
			}
		}
		if s.next(ringSize) != ringSize {
			t.Fatal("a place behind the ring")
		}
	}
}

// The table of connections has maxClients places. The flow that finds none is not serialised until
// another one ends.
func TestClientsAreBounded(t *testing.T) {
	m := New()
	s := m.server(netip.MustParseAddr("10.0.0.1"))
	flows := make([]conntrack.Flow, maxClients+1)
	last := &flows[maxClients]
	for i := range flows[:maxClients] {
		if m.join(&flows[i], s, 1, 5) == nil {
			t.Fatalf("client %d does not join", i)
		}
	}
	if m.join(last, s, 1, 5) != nil || m.Stats().NoRoom != 1 || last.Pinned {
		t.Errorf("one client too many: %+v, pinned %t", m.Stats(), last.Pinned)
	}
	m.Closed(nil, &flows[3])
	if m.join(last, s, 1, 5) == nil {
		t.Error("there is room, and the client does not join")
	}
}

// Clients that have ended do not keep each other: a flow whose packets have ever new UDP source ports
// takes no more memory than its last few clients.
func TestEndedClientsAreNotKept(t *testing.T) {
	m := New()
	s := m.server(netip.MustParseAddr("10.0.0.1"))
	var flow conntrack.Flow
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const many = 2000
	var last *client
	for port := range uint16(many) {
		c := m.join(&flow, s, port, 5)
		via := s.borrow(0, 1)
		via.open(entry{from: c, psn: 5, at: wire.PSN(port), span: 1})
		last = c
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 20<<20 {
		t.Errorf("%d clients of a flow, of which %d are left, take %d bytes", many, maxPorts, grown)
	}
	runtime.KeepAlive(last)
	runtime.KeepAlive(m)
}
