package serialize

import (
	"math/rand/v2"
	"net/netip"
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
