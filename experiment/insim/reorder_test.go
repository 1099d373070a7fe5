package insim

import (
	"context"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// The server's NIC changes the order of answers, further if requests stall. A shared connection keeps
// the order. Only losses give the distance 0.
func TestOrder(t *testing.T) {
	measure := func(change func(l *experiment.Order)) map[int]float64 {
		l := experiment.Order{Clients: 32, Words: 1024, Zipf: 0.99, Rate: 1e6}
		change(&l)
		shares, err := (&Sim{Cost: model(t, "connectx5-dpdk")}).Order(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		return shares
	}
	far := func(shares map[int]float64) (sum float64) {
		for d, s := range shares {
			if d > 5 {
				sum += s
			}
		}
		return sum
	}
	plain := measure(func(*experiment.Order) {})
	if s := plain[1]; s < 0.85 || s > 0.98 || plain[0] > 0 || far(plain) > 0 {
		t.Errorf("without stalls: %v", plain)
	}
	if s := measure(func(l *experiment.Order) { l.Stall = cost.Stall{Share: 0.005, Mean: 2 * time.Microsecond} }); s[1] >= plain[1] || far(s) < 0.0003 || s[0] > 0 {
		t.Errorf("with stalls: %v", s)
	}
	if s := measure(func(l *experiment.Order) { l.Loss = 1e-4 }); s[0] < 1e-4 || s[0] > 4e-4 {
		t.Errorf("with losses: %v", s)
	}
	if s := measure(func(l *experiment.Order) {
		l.Mapped, l.Stall = true, cost.Stall{Share: 0.05, Mean: 2 * time.Microsecond}
	}); s[1] < 0.999 {
		t.Errorf("on one connection: %v", s)
	}
}

// Published steering loses nothing to a NIC that works on a fifth of its requests out of order: each
// append goes to another node than the one before, whose WRITE its client has seen completed.
func TestPublishedSteeringWithStalls(t *testing.T) {
	m := *model(t, "connectx5").AtLineRate()
	m.NIC.Stall = cost.Stall{Share: 0.2, Mean: 5 * time.Microsecond}
	for _, mode := range []string{experiment.Published, experiment.Hardened} {
		l := experiment.Clover{Clients: 64, Writes: 50, Zipf: 0.99, Warm: 2 * time.Millisecond, Run: 4 * time.Millisecond}
		l.Switch = experiment.Switch{Action: experiment.Steer, Steer: "both", Mode: mode}
		res, err := (&Sim{Cost: &m}).Clover(context.Background(), l)
		if err != nil {
			t.Fatal(err)
		}
		if res.Failed+res.Wrong+res.NotFound > 0 || res.FirstTryShare() < 1 || res.Total() < 10_000 {
			t.Errorf("%s: %d operations, %d failed, share %.4f of the writes at their first attempt", mode, res.Total(), res.Failed+res.Wrong+res.NotFound, res.FirstTryShare())
		}
	}
}
