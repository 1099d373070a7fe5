package switchd

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// queuedConfig gives ports a rate that sends nothing more in a test, once a frame has left, and makes
// priority 3 lossless.
func queuedConfig(rate int64) portqueue.Config {
	cfg := portqueue.Config{Rate: rate, Lateness: time.Microsecond, Buffer: 1 << 20, Own: 1 << 16, MAC: mac(9)}
	cfg.DSCP[3] = 3
	cfg.Classes[3] = portqueue.Class{Lossless: true, XOFF: 1000, Headroom: 1 << 16, ECN: portqueue.RED{KMin: 0, KMax: 300, PMax: portqueue.Million}}
	return cfg
}

// queuedDaemon returns a switch of three hosts whose loop does not run.
func queuedDaemon(t testing.TB, q portqueue.Config, faults ...fault.Rule) (d *Daemon, hosts [3]*memcable.Port, err error) {
	t.Helper()
	var ends [3]*memcable.Port
	links := make([]Link, 3)
	for i := range hosts {
		hosts[i], ends[i] = memcable.Pair(memcable.Config{})
		links[i] = Link{Host: []string{"h0", "h1", "h2"}[i], Ifname: []string{"p0", "p1", "p2"}[i]}
	}
	d, err = New(Config{
		Program: forward.Program{}, NewWaiter: newWaiter, Links: links, Faults: Faults{Rules: faults}, Described: &rackfile.Rack{Switch: rackfile.Switch{Queues: &q}},
		Open: func(i int, _ Link) (packetio.Port, error) { return ends[i], nil },
	})
	if err != nil {
		return nil, hosts, err
	}
	t.Cleanup(func() {
		d.captures.stop()
		_ = d.ports.waiter.Close()
		_ = d.ports.closePorts()
	})
	for i := range hosts {
		sendTo(t, hosts[i], frame(i, -1))
	}
	d.traffic.round()
	for end := time.Now().Add(20 * time.Second); d.traffic.queues.Used().Total() > 0; {
		if time.Now().After(end) {
			t.Fatal("the first frames of the hosts do not leave")
		}
		d.traffic.round()
	}
	for i := range hosts {
		received(t, hosts[i])
	}
	return d, hosts, nil
}

func sendTo(t testing.TB, p *memcable.Port, frames ...[]byte) {
	t.Helper()
	var out packetio.Batch
	for _, f := range frames {
		out.Add(0, f)
	}
	if _, err := p.Send(&out); err != nil {
		t.Fatal(err)
	}
}

func received(t testing.TB, p *memcable.Port) (list [][]byte) {
	t.Helper()
	var in packetio.Batch
	for {
		n, err := p.Recv(&in)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return list
		}
		for _, f := range in.Frames {
			list = append(list, append([]byte(nil), f.Data...))
		}
	}
}

// prio3 returns a packet of priority 3 that may be marked.
func prio3(src, dst int, psn wire.PSN) []byte {
	var f wire.Frame
	if err := wire.ParseFrame(roce(src, dst, wire.RCSendOnly, psn), &f); err != nil {
		panic(err)
	}
	f.IPv4.TOS = 3<<2 | uint8(wire.ECT0)
	f.Payload = make([]byte, 400)
	return f.AppendTo(nil)
}

// A port with a rate keeps what it cannot send, pauses the host from which it comes, tells it when to go
// on, and marks packets; a pause frame of a host stops its port, and no other; pause frames are never
// forwarded.
func TestQueuesPauseAndMark(t *testing.T) {
	d, hosts, err := queuedDaemon(t, queuedConfig(8_000)) // a frame in half a second
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		sendTo(t, hosts[0], prio3(0, 1, wire.PSN(i)))
	}
	d.traffic.round()
	if n := len(received(t, hosts[1])); n > 2 {
		t.Errorf("%d frames left at once", n)
	}
	var p wire.Pause
	list := received(t, hosts[0])
	if len(list) != 1 || wire.ParsePause(list[0], &p) != nil || p.Enabled != 1<<3 || p.Time[3] != 0xffff || p.Src != mac(9) {
		t.Fatalf("host 0 got %x", list)
	}
	if list := received(t, hosts[2]); len(list) != 0 {
		t.Errorf("host 2 got %x", list)
	}
	q := d.traffic.listQueues()
	if st := q.Ports[1].Priorities[3]; st.Frames < 4 || st.Dropped != 0 {
		t.Errorf("%+v", st)
	}
	if st := q.Ports[0].Priorities[3]; !st.Pausing || st.TxPause != 1 {
		t.Errorf("%+v", st)
	}
	if q.Used.Total() == 0 || q.Rate != 8000 || len(q.Lossless) != 1 {
		t.Errorf("%+v", q)
	}
	// The link of the port is lost: the queue is empty, and host 0 may go on.
	d.ports.lost(1, memcable.ErrClosed)
	d.traffic.round()
	list = received(t, hosts[0])
	if len(list) != 1 || wire.ParsePause(list[0], &p) != nil || p.Enabled != 1<<3 || p.Time[3] != 0 {
		t.Fatalf("host 0 got %x", list)
	}
	if u := d.traffic.listQueues().Ports[0].Priorities[3].Source; u != (portqueue.Usage{}) {
		t.Errorf("at rest %+v", u)
	}
	if n := d.traffic.sw.Port(1).Drops[pipeline.ReasonPortDown]; n < 4 {
		t.Errorf("%d drops are counted", n)
	}
	// A pause frame of host 2 stops its priority 3, and reaches no other host.
	sendTo(t, hosts[2], (&wire.Pause{Enabled: 1 << 3, Time: [8]uint16{3: 0xffff}}).AppendTo(nil))
	d.traffic.round()
	if st := d.traffic.listQueues().Ports[2].Priorities[3]; !st.Paused || len(received(t, hosts[0])) != 0 {
		t.Errorf("%+v", st)
	}
}

// The packets that leave behind others have a mark, and those that are the last of the queue have none.
func TestQueuesMark(t *testing.T) {
	d, hosts, err := queuedDaemon(t, queuedConfig(1e6)) // the pause lasts for 33 s
	if err != nil {
		t.Fatal(err)
	}
	d.traffic.queues.Pause(d.traffic.clk.Now(), 1, 3, 0xffff)
	for i := range 3 {
		sendTo(t, hosts[0], prio3(0, 1, wire.PSN(i)))
	}
	d.traffic.round()
	d.traffic.queues.Pause(d.traffic.clk.Now(), 1, 3, 0)
	var list [][]byte
	for end := time.Now().Add(20 * time.Second); len(list) < 3; {
		if time.Now().After(end) {
			t.Fatalf("%d frames", len(list))
		}
		d.traffic.round()
		list = append(list, received(t, hosts[1])...)
	}
	for i, f := range list {
		if e, _ := wire.ECNOf(f); (e == wire.CE) != (i < 2) || !wire.CheckICRC(f) {
			t.Errorf("frame %d: %v", i, e)
		}
	}
	if st := d.traffic.listQueues().Ports[1].Priorities[3]; st.Marked != 2 {
		t.Errorf("%+v", st)
	}
}

// A fault of kind rate is refused with its reason, at the start and later.
func TestRateFaultIsRefused(t *testing.T) {
	r := fault.Rule{Link: "h0", Kind: fault.Rate, BitsPerSecond: 1e6}
	if _, _, err := queuedDaemon(t, queuedConfig(1e9), r); err == nil {
		t.Error("the rack file's fault is accepted")
	}
	d, _, err := queuedDaemon(t, queuedConfig(1e9))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.faults.refuses(&r); err == nil {
		t.Error("the fault is accepted")
	}
	if r.Kind = fault.Loss; d.faults.refuses(&r) != nil {
		t.Error("a loss is refused")
	}
}

// A round of ports with a rate allocates nothing.
func TestQueuedRoundAllocatesNothing(t *testing.T) {
	cfg := queuedConfig(portqueue.MaxRate)
	cfg.Lateness = time.Millisecond
	d, hosts, err := queuedDaemon(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out, in packetio.Batch
	for i := range 8 {
		out.Add(0, prio3(0, 1, wire.PSN(i)))
	}
	round := func() {
		if _, err := hosts[0].Send(&out); err != nil {
			t.Fatal(err)
		}
		d.traffic.round()
		for _, h := range hosts {
			for n := 1; n > 0; {
				n, _ = h.Recv(&in)
			}
		}
	}
	for range 2000 {
		round()
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// A fault of kind pause stops the switch towards a host (up), and sends pause frames to it (down); one
// of kind ecn sets CE in the packets that it selects. Where pauses have no effect the rule is refused.
func TestCongestionFaults(t *testing.T) {
	d, hosts, err := queuedDaemon(t, queuedConfig(1e6), fault.Rule{Link: "h1", Kind: fault.Storm, Priority: 3}, fault.Rule{Link: "h0", Dir: fault.Up, Kind: fault.Mark})
	if err != nil {
		t.Fatal(err)
	}
	received(t, hosts[1])
	d.traffic.queues.storm = 0 // the next pause frame is due
	d.traffic.round()
	if st := d.traffic.listQueues().Ports[1].Priorities[3]; !st.Paused {
		t.Errorf("%+v", st)
	}
	var p wire.Pause
	if list := received(t, hosts[1]); len(list) != 1 || wire.ParsePause(list[0], &p) != nil || p.Time[3] != longestPause {
		t.Errorf("host 1 got %x", list)
	}
	sendTo(t, hosts[0], prio3(0, 2, 1))
	var list [][]byte
	for end := time.Now().Add(20 * time.Second); len(list) == 0 && time.Now().Before(end); {
		d.traffic.round()
		list = received(t, hosts[2])
	}
	if len(list) != 1 {
		t.Fatalf("%d frames", len(list))
	}
	if e, _ := wire.ECNOf(list[0]); e != wire.CE || !wire.CheckICRC(list[0]) {
		t.Errorf("%v", e)
	}
	// The fault is healed: the priority goes on at once, in both directions.
	if n, err := d.faults.traffic.plan.Heal(d.traffic.now, "h1"); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	d.traffic.queues.storm = 0 // as faultControl.change does
	d.traffic.round()
	if st := d.traffic.listQueues().Ports[1].Priorities[3]; st.Paused {
		t.Errorf("the pause goes on: %+v", st)
	}
	if list := received(t, hosts[1]); len(list) != 1 || wire.ParsePause(list[0], &p) != nil || p.Enabled != 1<<3 || p.Time[3] != 0 {
		t.Errorf("host 1 got %x", list)
	}
	if d.traffic.queues.storm != clock.Never {
		t.Error("another round is due for a fault that has ended")
	}
	lossy := fault.Rule{Link: "h1", Kind: fault.Storm, Priority: 4}
	if err := d.faults.refuses(&lossy); err == nil {
		t.Error("a pause of a lossy priority is accepted")
	}
	d.traffic.queues = nil
	if err := d.faults.refuses(&fault.Rule{Link: "h1", Kind: fault.Storm, Priority: 3}); err == nil {
		t.Error("a pause of ports without queues is accepted")
	}
}

// A fault of kind pause with a time ends at it, and not when the time of its last pause frame is over.
func TestPauseFaultEndsInTime(t *testing.T) {
	const lasts = 50 * time.Millisecond // the time of a pause frame is 33 s
	d, _, err := queuedDaemon(t, queuedConfig(1e6), fault.Rule{Link: "h1", Dir: fault.Up, Kind: fault.Storm, Priority: 3, For: lasts})
	if err != nil {
		t.Fatal(err)
	}
	d.traffic.queues.storm = 0
	d.traffic.round()
	if at := d.traffic.deadline(); at > d.traffic.now.Add(lasts) {
		t.Fatalf("the next round is due %v from now", at.Sub(d.traffic.now))
	}
	for end := time.Now().Add(20 * time.Second); d.traffic.listQueues().Ports[1].Priorities[3].Paused; d.traffic.round() {
		if time.Now().After(end) {
			t.Fatal("the pause does not end")
		}
	}
}

// Pause frames are frames of their link: a fault that loses all frames of a link loses them, in both
// directions, and one that delays them keeps them for as long.
func TestFaultsHitPauseFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		r    fault.Rule
		late bool
	}{
		{"lost", fault.Rule{Kind: fault.Loss}, false},
		{"corrupt", fault.Rule{Kind: fault.Corrupt}, false},
		{"delayed", fault.Rule{Kind: fault.Delay, Delay: 100 * time.Millisecond}, true},
	} {
		d, hosts, err := queuedDaemon(t, queuedConfig(8_000))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 6 {
			sendTo(t, hosts[0], prio3(0, 1, wire.PSN(i)))
		}
		for link, dir := range map[string]fault.Dir{"h0": fault.Down, "h2": fault.Up} {
			c.r.Link, c.r.Dir = link, dir
			if _, err := d.traffic.plan.Add(d.traffic.now, c.r); err != nil {
				t.Fatal(err)
			}
		}
		sendTo(t, hosts[2], (&wire.Pause{Enabled: 1 << 3, Time: [8]uint16{3: 0xffff}}).AppendTo(nil))
		d.traffic.round()
		down, up := received(t, hosts[0]), d.traffic.listQueues().Ports[2].Priorities[3].Paused
		if len(down) != 0 || up {
			t.Errorf("%s: %d frames at host 0, host 2 has paused its port: %v", c.name, len(down), up)
		}
		if !c.late {
			if n := d.traffic.sw.Port(2).Drops[pipeline.ReasonFault]; n != 1 {
				t.Errorf("%s: %d drops are counted", c.name, n)
			}
			continue
		}
		for end := time.Now().Add(20 * time.Second); len(down) == 0 || !up; {
			if time.Now().After(end) {
				t.Fatalf("%d frames at host 0, paused %v", len(down), up)
			}
			d.traffic.round()
			down, up = append(down, received(t, hosts[0])...), d.traffic.listQueues().Ports[2].Priorities[3].Paused
		}
		var p wire.Pause
		if wire.ParsePause(down[0], &p) != nil || p.Time[3] != 0xffff {
			t.Errorf("host 0 got %x", down[0])
		}
	}
}

// A port makes up for the time in which frames may have waited because the loop was busy, and not for the
// time in which the loop waited for frames.
func TestIdleTimeIsNoCredit(t *testing.T) {
	for _, waited := range []bool{false, true} {
		cfg := queuedConfig(8_000_000) // a frame in half a millisecond
		cfg.Lateness = time.Minute
		d, hosts, err := queuedDaemon(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			sendTo(t, hosts[0], prio3(0, 1, wire.PSN(i)))
		}
		for d.traffic.clk.Now() < clock.Time(30*time.Millisecond) { // 40 frames take 21 ms
		}
		d.traffic.now = 1 // the round before was long ago
		if waited {
			d.traffic.waited()
		}
		d.traffic.round()
		n := len(received(t, hosts[1]))
		if !waited && n != 40 {
			t.Errorf("after a long round %d of 40 frames leave at once", n)
		}
		if waited && n == 40 {
			t.Errorf("after a long wait %d of 40 frames leave at once", n)
		}
	}
}
