package rackfile

import "testing"

// A rack in slow motion has a cost model; nothing polls, and each packet is a frame.
func TestSlowMotion(t *testing.T) {
	r, err := Parse([]byte(small + "slow: 400\n"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Slow != 400 || r.Factor() != 400 || r.Cost != "connectx5" || r.Switch.Spin != 0 {
		t.Errorf("slow %d, cost %q, spin of the switch %v", r.Slow, r.Cost, r.Switch.Spin)
	}
	for _, h := range r.Hosts {
		if h.Spin != 0 || h.GSO {
			t.Errorf("%s: spin %v, gso %v", h.Name, h.Spin, h.GSO)
		}
	}
	if g, err := r.NewGuest("g", "g", 0); err != nil || g.Spin != 0 || g.GSO {
		t.Errorf("guest: spin %v, gso %v, %v", g.Spin, g.GSO, err)
	}
	if r, err = Parse([]byte(small + "slow: 40\ncost: connectx3\n")); err != nil || r.Cost != "connectx3" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, order := range []string{"slow: 40\ndaemons: shared\n", "daemons: shared\nslow: 40\n"} {
		if _, err := Parse([]byte(small + order)); err == nil {
			t.Errorf("%q was accepted", order)
		}
	}
	if r, err = Parse([]byte(small)); err != nil || r.Factor() != 1 || r.Cost != "" || !r.Hosts[0].GSO {
		t.Errorf("%+v, %v", r, err)
	}
	if err := r.SlowDown(1); err == nil {
		t.Error("a factor of 1 was accepted")
	}
}

// In slow motion, frames of a queue wait for the time that a process needs to wake up, and not for so much of the rack's
// clock: with that, a port of 40 Gbit/s would send 250 KB at once.
func TestQueuesOfSlowRacksWakeInTime(t *testing.T) {
	const file = small + "slow: 400\nswitch:\n  ports: {rate: 40Gbit}\n  queues:\n    3: {lossless: true}\n"
	r, err := Parse([]byte(file))
	if err != nil {
		t.Fatal(err)
	}
	nic, ok := r.NICQueue(&r.Hosts[0])
	if q := r.Switch.PortQueues(r.Factor()); q == nil || q.Wake != queueWake/400 || q.Rate != 40_000_000_000 || !ok || nic.Wake != q.Wake {
		t.Errorf("ports %+v, NIC %+v", q, nic)
	}
	if err := r.SlowDown(40); err != nil || r.Switch.PortQueues(r.Factor()).Wake != queueWake/40 {
		t.Errorf("by 40: %v, %v", r.Switch.PortQueues(r.Factor()).Wake, err)
	}
	if r, err = Parse([]byte(small)); err != nil || r.Switch.PortQueues(r.Factor()) != nil {
		t.Errorf("without rates %+v, %v", r.Switch.PortQueues(r.Factor()), err)
	}
}
