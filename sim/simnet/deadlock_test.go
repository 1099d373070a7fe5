package simnet

import (
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	loopRate  = 1_000_000_000
	loopFrame = 1500
)

// hop forwards a frame to the port that its route names for the port at which it came in, and takes 1
// from its TTL; -1 and a TTL of 0 end the frame.
type hop struct {
	route []int
	got   int
}

func (h *hop) Frame(_ clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	const ttlAt = 14 + 8
	to := h.route[port]
	if to < 0 || f.Data[ttlAt] <= 1 {
		h.got++
		return
	}
	f.Data[ttlAt]--
	out.Frames = append(out.Frames, packetio.Frame{Data: append(out.Alloc(len(f.Data)), f.Data...), Port: to, Origin: int16(port + 1)})
}

func (h *hop) Tick(clock.Time, *packetio.Batch) {}
func (h *hop) Deadline() clock.Time             { return clock.Never }

// source sends a frame at a rate in bits a second. It is a host whose NIC has a lossless queue.
type source struct {
	frame []byte
	every time.Duration
	at    clock.Time
	left  int // frames to send; 0: without end
	sunk  int
}

func (s *source) Frame(clock.Time, int, packetio.Frame, *packetio.Batch) { s.sunk++ }
func (s *source) Tick(now clock.Time, out *packetio.Batch) {
	s.at = s.at.Add(s.every)
	if s.left--; s.left == 0 {
		s.at = clock.Never
	}
	out.Add(0, append(out.Alloc(len(s.frame)), s.frame...))
}
func (s *source) Deadline() clock.Time { return s.at }

func newSource(rate float64, ttl uint8) *source {
	f := wire.Frame{
		Eth:  wire.Ethernet{Dst: wire.MAC{2, 0, 0, 0, 0, 1}, Src: wire.MAC{2, 0, 0, 0, 0, 2}},
		IPv4: wire.IPv4{TOS: 3 << 2, TTL: ttl, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}},
	}
	f.BTH.Opcode = wire.RCWriteOnly
	f.Payload = make([]byte, loopFrame-14-20-8-12-16-4)
	s := &source{frame: f.AppendTo(nil)}
	s.every = time.Duration(float64(len(s.frame)) * 8 / rate * 1e9)
	return s
}

// losslessBank has the queues of a machine whose priority 3 pauses its peers at 40 KB.
func losslessBank(t *testing.T, ports int) *portqueue.Bank {
	t.Helper()
	c := portqueue.Config{Rate: loopRate, Buffer: 64 << 20, Own: 16 << 20}
	c.DSCP[3] = 3
	c.Classes[3] = portqueue.Class{Lossless: true, XOFF: 40_000, XON: 2 * loopFrame, Headroom: 20_000}
	b, err := portqueue.New(c, ports)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// join connects ports of two nodes by a link of the rate of the queues.
func join(n *Net, name string, a NodeID, pa int, b NodeID, pb int) {
	n.Connect(LinkConfig{Name: name, A: End{a, pa}, B: End{b, pb}, Delay: time.Microsecond, Rate: loopRate})
}

// looped runs loops of two switches, each with a host that sends into it, and returns the deadlock.
func looped(t *testing.T, loops int, rate float64, d time.Duration) string {
	t.Helper()
	n := New(Config{MaxTime: clock.Time(time.Hour)})
	for range loops {
		host := n.Add("host", newSource(rate, 16))
		a, b := n.Add("a", &hop{route: []int{1, 1}}), n.Add("b", &hop{route: []int{0}})
		join(n, "host", host, 0, a, 0)
		join(n, "trunk", a, 1, b, 0)
		n.SetQueues(host, losslessBank(t, 1))
		n.SetQueues(a, losslessBank(t, 2))
		n.SetQueues(b, losslessBank(t, 1))
	}
	for at := time.Duration(0); at < d && n.Deadlock() == ""; at += 100 * time.Millisecond {
		if err := n.RunUntil(clock.Time(at)); err != nil {
			t.Fatal(err)
		}
	}
	return n.Deadlock()
}

// F9: a loop of n switches, in which a frame lives for TTL hops, holds a load of n·B/TTL: with 0.8 of it
// there is no deadlock, with 1.2 there is one, and the graph of waiting shows it ("Deadlocks in Datacenter
// Networks", HotNets 2016).
func TestDeadlockOfALoop(t *testing.T) {
	const switches, ttl = 2, 16
	const most = switches * float64(loopRate) / ttl
	d := 5 * time.Second
	if os.Getenv("RDMALAB_LONG") != "" {
		d = time.Minute
	}
	if found := looped(t, 1, 0.8*most, d); found != "" {
		t.Error(found)
	}
	found := looped(t, 1, 1.2*most, d)
	t.Log(found)
	if !strings.Contains(found, "a port 1, b port 0") && !strings.Contains(found, "b port 0, a port 1") {
		t.Errorf("%q is not the deadlock of the loop", found)
	}
}

// Two deadlocks of one priority, whose pauses come in turn, do not hide each other.
func TestTwoDeadlocks(t *testing.T) {
	found := looped(t, 2, float64(loopRate)/4, 5*time.Second)
	t.Log(found)
	if !strings.Contains(found, "port") {
		t.Errorf("%q is not the deadlock of a loop", found)
	}
}

// ringed runs three switches in a ring, each with a host. Host i sends to host i+hops, at the line rate.
func ringed(t *testing.T, hops int, d time.Duration) (found string, sunk int) {
	t.Helper()
	const size = 3
	n := New(Config{MaxTime: clock.Time(time.Hour)})
	var hosts [size]*source
	var ids, switches [size]NodeID
	for i := range size {
		// Port 0 is the host's, 1 leads to the next switch, 2 comes from the one before. TTLs tell where a
		// frame gets off: it has 64 when it comes from the host.
		hosts[i] = newSource(loopRate, 64)
		ids[i] = n.Add("host", hosts[i])
		switches[i] = n.Add("abc"[i:i+1], &roundabout{off: uint8(64 - hops)})
		join(n, "host", ids[i], 0, switches[i], 0)
		n.SetQueues(ids[i], losslessBank(t, 1))
	}
	for i := range size {
		join(n, "trunk", switches[i], 1, switches[(i+1)%size], 2)
	}
	for i := range size {
		n.SetQueues(switches[i], losslessBank(t, 3))
	}
	for at := time.Duration(0); at < d && n.Deadlock() == ""; at += 100 * time.Millisecond {
		if err := n.RunUntil(clock.Time(at)); err != nil {
			t.Fatal(err)
		}
	}
	for _, h := range hosts {
		sunk += h.sunk
	}
	return n.Deadlock(), sunk
}

// roundabout is a switch of a ring: a frame with the TTL off gets off at the host of port 0, any other goes
// on by port 1.
type roundabout struct {
	hop
	off uint8
}

func (r *roundabout) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	const ttlAt = 14 + 8
	to := 1
	if f.Data[ttlAt] == r.off {
		to = 0
	}
	r.route = []int{to, to, to}
	r.hop.Frame(now, port, f, out)
}

// F9: in a ring of three switches whose flows go over two trunks each, all trunks pause each other for
// ever. Flows over one trunk form no ring, and there is no alarm.
func TestDeadlockOfARing(t *testing.T) {
	found, _ := ringed(t, 2, time.Second)
	t.Log(found)
	for _, name := range []string{"a port 1", "b port 1", "c port 1"} {
		if !strings.Contains(found, name) {
			t.Errorf("%q does not name %s", found, name)
		}
	}
	found, sunk := ringed(t, 1, time.Second) // it ends after 0.9 s
	if want := 3 * loopRate / 8 / loopFrame * 9 / 10 * 99 / 100; found != "" || sunk < want {
		t.Errorf("flows over one trunk: %q, %d frames arrived, want %d", found, sunk, want)
	}
}

// branch is a switch of a tree: the last byte of a frame's destination address names a host, and route has
// the port to each.
type branch struct{ hop }

func (b *branch) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	const destAt = 14 + 19
	to := b.route[f.Data[destAt]]
	out.Frames = append(out.Frames, packetio.Frame{Data: append(out.Alloc(len(f.Data)), f.Data...), Port: to, Origin: int16(port + 1)})
}

// tree runs hosts on a random tree of switches, some of which send to others, and returns the deadlock, how
// many frames were sent and arrived, and how many pause frames there were.
func tree(t *testing.T, seed uint64) (found string, sent, arrived int, pauses uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	n := New(Config{})
	switches := make([]*branch, 2+r.IntN(5))
	ids, ports := make([]NodeID, len(switches)), make([]int, len(switches))
	hosts := make([]*source, len(switches)+1+r.IntN(4))
	at := make([]int, len(hosts)) // the switch of each host
	for i := range switches {
		switches[i] = &branch{hop{route: make([]int, len(hosts))}}
		ids[i] = n.Add("s", switches[i])
	}
	above, up, down := make([]int, len(switches)), make([]int, len(switches)), make([]int, len(switches))
	plug := func(k int) int { ports[k]++; return ports[k] - 1 }
	for i := 1; i < len(switches); i++ {
		above[i] = r.IntN(i)
		up[i], down[i] = plug(i), plug(above[i])
		join(n, "trunk", ids[i], up[i], ids[above[i]], down[i])
	}
	leaf := make([]int, len(hosts))
	for i := range hosts {
		at[i] = r.IntN(len(switches))
		hosts[i] = newSource(loopRate, 64)
		hosts[i].frame[14+19] = byte(r.IntN(len(hosts)))
		hosts[i].left = 20 + r.IntN(200)
		leaf[i] = plug(at[i])
		id := n.Add("host", hosts[i])
		join(n, "host", id, 0, ids[at[i]], leaf[i])
		n.SetQueues(id, losslessBank(t, 1))
	}
	for k := range switches {
		for i := range hosts {
			switches[k].route[i] = up[k]
		}
	}
	for i := range hosts {
		switches[at[i]].route[i] = leaf[i]
		for k := at[i]; k != 0; k = above[k] {
			switches[above[k]].route[i] = down[k]
		}
	}
	for i, id := range ids {
		n.SetQueues(id, losslessBank(t, ports[i]))
	}
	for _, h := range hosts {
		sent += h.left
	}
	if err := n.RunUntil(clock.Time(time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		arrived += h.sunk
	}
	for _, l := range n.Links() {
		pauses += l.Stats(fault.Up).Pauses + l.Stats(fault.Down).Pauses
	}
	return n.Deadlock(), sent, arrived, pauses
}

// F9: there is no false alarm on trees, whose pauses spread over several switches, and no frame is lost.
func TestTreesHaveNoDeadlock(t *testing.T) {
	seeds := 200
	if os.Getenv("RDMALAB_LONG") != "" {
		seeds = 10_000
	}
	total := uint64(0)
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		found, sent, arrived, pauses := tree(t, seed)
		if found != "" || sent != arrived {
			t.Fatalf("seed %d: %q, %d frames sent, %d arrived", seed, found, sent, arrived)
		}
		total += pauses
	}
	t.Logf("%d seeds, %d pause frames", seeds, total)
	if total < uint64(seeds) {
		t.Errorf("%d pause frames: trees were not congested", total)
	}
}
