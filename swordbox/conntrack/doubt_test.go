package conntrack

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A client's host restarts: its queue pair has the same QPN and PSNs as before, and is connected to
// another queue pair of the server. The switch must not translate responses to this queue pair with
// the PSN shift of the old connection, whose requests the switch has moved.
func TestAnswersOfAReusedQueuePair(t *testing.T) {
	old, young, client := wire.QPN(0x22), wire.QPN(0x33), wire.QPN(0x11)
	for _, spoke := range []bool{false, true} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, client, old, 100)
		flow.Pinned = true
		ack := func() Reason { return r.see(packet(2, 1, client, wire.RCAck, 100)).Bad }
		if bad := ack(); bad != Fine {
			t.Fatalf("before: %v", bad)
		}
		r.now += clock.Time(2 * time.Millisecond)
		r.ask(packet(1, 2, young, wire.RCWriteOnly, 100))
		r.now += clock.Time(2 * time.Millisecond)
		want := Implausible
		if spoke { // the requester of the old connection turns out to be alive
			r.ask(packet(1, 2, old, wire.RCWriteOnly, flow.Expected))
			want = Fine
		}
		if bad := ack(); bad != want {
			t.Errorf("spoke=%v: %v, want %v", spoke, bad, want)
		}
		for _, psn := range []wire.PSN{90, 101} { // the other requester has sent no such request
			if bad := r.see(packet(2, 1, client, wire.RCAck, psn)).Bad; bad != Fine {
				t.Errorf("spoke=%v: psn %d: %v", spoke, psn, bad)
			}
		}
	}
}
