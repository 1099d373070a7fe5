package kvcs

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Clients that have gone make room for others three leases later, however many they were. A request of
// theirs that comes after that has no effect.
func TestClientsThatHaveGone(t *testing.T) {
	c, err := NewCoordinator(CoordinatorConfig{Addr: netip.AddrFrom4([4]byte{10, 0, 0, 1}), Shape: fuzzShape, Rand: rand.New(rand.NewPCG(1, 1)), RTT: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var now clock.Time = 1
	from := func(i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i >> 12)}), uint16(10_000+i&0xfff))
	}
	// call sends a request of client i, and returns the first answer.
	call := func(i int, m *message) (answer message, ok bool) {
		var out Outbox
		c.Receive(now, from(i), m.encode(), &out)
		return answer, len(out.Packets) > 0 && answer.parse(out.Packets[0].Data)
	}
	var first uint64
	for i := range 3 * maxSessions {
		if i%maxSessions == 0 {
			now = now.Add(3 * c.cfg.Lease)
		}
		view, ok := call(i, &message{kind: msgHello, region: 7, number: 1})
		if !ok || view.kind != msgView {
			t.Fatalf("client %d gets no session", i)
		}
		if i == 0 {
			first = view.id
		}
		change := message{kind: msgChange, id: view.id, number: 1, op: uint8(opUpsert), key: 1, body: []byte{byte(i)}}
		if m, ok := call(i, &change); !ok || m.kind != msgOutcome || m.op != 0 {
			t.Fatalf("client %d: %+v", i, m)
		}
	}
	changes := c.Stats().Changes
	late := message{kind: msgChange, id: first, number: 2, op: uint8(opUpsert), key: 1, body: []byte("late")}
	if m, ok := call(0, &late); !ok || m.kind != msgForgotten || c.Stats().Changes != changes {
		t.Errorf("a late request: %+v, %d changes, want %d", m, c.Stats().Changes, changes)
	}
	// Clients that live keep their sessions.
	if _, ok := call(3*maxSessions, &message{kind: msgHello, region: 7, number: 1}); ok {
		t.Error("a client that was heard lately was forgotten")
	}
}
