package switchd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// joined is two leaves with a host each, and a trunk between the leaves: a veth pair, or UDP between two
// machines, which are network namespaces with a network of MTU 1500 between them.
type joined struct {
	compact
	tb    testing.TB
	paths [2]rackfile.Paths // of the leaves
	lan   [2]string         // the namespaces of the machines
	// lossy is how many of 1,000 frames the network between the machines loses; used with a relay.
	lossy atomic.Int64
	stops [2]func() // end the leaves
}

const twoLeaves = `
name: t
fabric: {leaves: 2, spines: 0}
hosts: [{name: cn0, role: compute}, {name: ms0, role: memory}]
`

const twoMachines = `
machines:
  - {name: m1, ssh: "ssh://root@192.168.7.1"}
  - {name: m2, ssh: "ssh://root@192.168.7.2"}
`

// ways of a trunk.
const (
	veth    = "veth"
	udp     = "udp"
	relayed = "relayed" // UDP over a network that can lose frames
)

func joinLeaves(tb testing.TB, way string) *joined {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("network namespaces need root; run the test with sudo")
	}
	text := twoLeaves
	if way != veth {
		text += twoMachines
	}
	rack, err := rackfile.Parse([]byte(text))
	must(tb, err)
	j := &joined{tb: tb}
	j.makeMachines(rack, way)
	for i := range rack.Hosts {
		h := &rack.Hosts[i]
		netns := j.paths[i].Netns(h.Name)
		j.namespace(netns)
		must(tb, nl.Connect(container.PortEnd(rack, j.paths[i], h), container.HostEnd(rack, h, netns), rack.MTUOf(h)))
	}
	if way == veth {
		c := rack.Trunks()[0]
		a, b := c.Ports()
		netns := j.paths[0].Netns(rackfile.SwitchName)
		must(tb, nl.Connect(nl.End{Netns: netns, Name: a}, nl.End{Netns: netns, Name: b}, rack.MTUOf(&rack.Hosts[0])))
	}
	for i := range 2 {
		j.stops[i] = j.start(i)
	}
	j.await(true)
	for i := range rack.Hosts {
		j.plugHost(rack, i)
	}
	j.connect(tb, 14)
	return j
}

// namespace makes a network namespace that is removed behind the test.
func (j *joined) namespace(path string) {
	j.tb.Helper()
	must(j.tb, os.MkdirAll(filepath.Dir(path), 0o755))
	err := nl.Create(path)
	if errors.Is(err, nl.ErrPrivilege) {
		j.tb.Skipf("network namespaces cannot be made here: %v", err)
	}
	must(j.tb, err)
	j.tb.Cleanup(func() {
		if err := nl.Remove(path); err != nil {
			j.tb.Error(err)
		}
	})
}

// makeMachines makes the state folders of the machines, and the network between them.
func (j *joined) makeMachines(rack *rackfile.Rack, way string) {
	j.tb.Helper()
	list := rack.Machines.Names()
	for i := range max(1, len(list)) {
		p := rackfile.Paths{Dir: j.tb.TempDir()}
		j.paths[i] = p
		slice := *rack
		if len(list) > 0 {
			slice.Machine = list[i]
			j.namespace(p.Outside())
			j.lan[i] = p.Outside()
			must(j.tb, os.WriteFile(p.Secret(), bytes.Repeat([]byte{7}, 32), 0o600))
		}
		data, err := slice.Encode()
		must(j.tb, err)
		must(j.tb, os.WriteFile(p.Spec(), data, 0o644))
		must(j.tb, os.MkdirAll(filepath.Dir(p.Socket("x")), 0o755))
		j.namespace(p.Netns(rackfile.SwitchName))
		must(j.tb, nl.DisableIPv6(p.Netns(rackfile.SwitchName)))
	}
	if len(list) == 0 {
		j.paths[1] = j.paths[0]
		return
	}
	end := func(i int) nl.End {
		return nl.End{Netns: j.lan[i], Name: "lan", Addrs: []netip.Prefix{netip.PrefixFrom(rack.Machines[i].Address, 24)}}
	}
	if way == udp {
		must(j.tb, nl.Connect(end(0), end(1), 1500))
		return
	}
	between := filepath.Join(j.paths[0].Dir, "between")
	j.namespace(between)
	must(j.tb, nl.DisableIPv6(between))
	var ports [2]*afpacket.Port
	for i, name := range []string{"a", "b"} {
		must(j.tb, nl.Connect(end(i), nl.End{Netns: between, Name: name}, 1500))
		must(j.tb, nl.Do(between, func() (err error) {
			ports[i], err = afpacket.Open(afpacket.Config{Ifname: name, Mode: afpacket.Switch})
			return err
		}))
	}
	j.relay(ports)
}

// relay forwards frames between two ports, and loses some, until the test ends.
func (j *joined) relay(ports [2]*afpacket.Port) {
	w, err := afpacket.NewWaiter(0, ports[:]...)
	must(j.tb, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := rand.New(rand.NewPCG(1, 1))
		for w.Wait(-1) == nil {
			for i, p := range ports {
				var b packetio.Batch
				if _, err := p.Recv(&b); err != nil {
					return
				}
				b.Frames = slices.DeleteFunc(b.Frames, func(packetio.Frame) bool { return r.Int64N(1000) < j.lossy.Load() })
				if _, err := ports[1-i].Send(&b); err != nil {
					return
				}
			}
		}
	}()
	j.tb.Cleanup(func() {
		must(j.tb, errors.Join(w.Close(), ports[0].Close(), ports[1].Close()))
		<-ended
	})
}

// start starts leaf i; the result stops it.
func (j *joined) start(i int) (stop func()) {
	j.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	p, out := j.paths[i], io.Discard
	if t, ok := j.tb.(*testing.T); ok {
		out = t.Output()
	}
	go func() {
		done <- Main(ctx, Place{Dir: p.Dir, Netns: p.Netns(rackfile.SwitchName), Name: leaf(i)}, slog.New(slog.NewTextHandler(out, nil)).With("leaf", leaf(i)))
	}()
	stopped := false
	stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			j.tb.Errorf("%s: %v", leaf(i), err)
		}
	}
	j.tb.Cleanup(stop)
	return stop
}

func leaf(i int) string { return [...]string{"leaf0", "leaf1"}[i] }

func (j *joined) control(i int) *control.Client { return control.NewClient(j.paths[i].Socket(leaf(i))) }

// await waits until both leaves say that their trunk works, or that it does not.
func (j *joined) await(up bool) {
	j.tb.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		n := 0
		for i := range 2 {
			var s Status
			if err := j.control(i).Call(context.Background(), "GET", "/status", nil, &s); err == nil && len(s.Trunks) == 1 && s.Trunks[0].Up == up {
				n++
			}
		}
		if n == 2 {
			return
		}
		if time.Since(start) > 30*time.Second {
			j.tb.Fatalf("the trunk is not up=%v: %+v and %+v", up, j.port(0), j.port(1))
		}
	}
}

// port returns the status of the trunk's port at leaf i, and what the trunk counts there.
func (j *joined) port(i int) (s struct {
	PortStatus
	Count PortCounters
},
) {
	var all Status
	var count Counters
	must(j.tb, j.control(i).Call(context.Background(), "GET", "/status", nil, &all))
	must(j.tb, j.control(i).Call(context.Background(), "GET", "/counters", nil, &count))
	for k, p := range all.Ports {
		if p.Host == "leaf0-leaf1" {
			s.PortStatus, s.Count = p, count.Ports[k]
		}
	}
	return s
}

// awaitNoCarrier waits until the trunk's port at leaf 0 has no carrier, and says why.
func (j *joined) awaitNoCarrier(state trunk.State) {
	j.tb.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		p := j.port(0)
		if p.State == PortNoCarrier && p.Count.Trunk.State == state && p.Error != "" {
			return
		}
		if time.Since(start) > 30*time.Second {
			j.tb.Fatalf("the port is %+v", p)
		}
	}
}

// plugHost starts the NIC of a host.
func (j *joined) plugHost(rack *rackfile.Rack, i int) {
	j.tb.Helper()
	h, peer := &rack.Hosts[i], &rack.Hosts[1-i]
	var port *afpacket.Port
	must(j.tb, nl.Do(j.paths[i].Netns(h.Name), func() (err error) {
		port, err = afpacket.Open(afpacket.Config{Ifname: h.Ifname(), Mode: afpacket.Host, Merge: true})
		return err
	}))
	waiter, err := afpacket.NewWaiter(50*time.Microsecond, port)
	must(j.tb, err)
	j.dev[i], err = device.Open(device.Config{
		Port: port, Waiter: waiter, Seed: uint64(i),
		Engine: engine.Config{
			Name: h.Name, MAC: h.MAC, LinkMTU: port.Info().MTU, GIDs: []verbs.GID{verbs.GIDOf(h.IPv4)}, Rand: rand.New(rand.NewPCG(uint64(i), 9)),
			Resolve: func(a netip.Addr) (wire.MAC, bool) { return peer.MAC, a == peer.IPv4 },
		},
	})
	must(j.tb, err)
	j.tb.Cleanup(func() { must(j.tb, j.dev[i].Close()) })
	j.ends[i] = newEnd(j.tb, j.dev[i].Context())
}

// write WRITEs count messages of n bytes from cn0 to ms0, and compares them there.
func (j *joined) write(count, n int) {
	j.tb.Helper()
	from, to := make([]byte, n), make([]byte, n)
	for k := range count {
		for i := range from {
			from[i] = byte(k + i*i>>3)
		}
		must(j.tb, j.ends[0].mr.WriteAt(from, 0))
		j.run(j.tb, 0, j.work(0, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled}, 0, 0, n))
		must(j.tb, j.ends[1].mr.ReadAt(to, 0))
		if !bytes.Equal(from, to) {
			j.tb.Fatalf("message %d has changed on its way", k)
		}
	}
}

// Packets of path MTU 4096 cross a network of MTU 1500 between two machines; loss in this network heals,
// and is told apart from faults that are injected at the trunk.
func TestTrunkToAnotherMachine(t *testing.T) {
	j := joinLeaves(t, relayed)
	j.write(50, 200_000)
	before := j.port(1).Count
	if s := before.Trunk; s.Lost > 0 || s.MTU != 1500 || s.Refused.Sum() > 0 || s.RoundTrip <= 0 || s.Received < 50*200_000/1500 {
		t.Errorf("the trunk has counted %+v", s)
	}
	if before.RxPackets < 50*49 {
		t.Errorf("the port has counted %+v", before.PortCounters)
	}
	var rule fault.Rule
	must(t, j.control(0).Call(t.Context(), "POST", "/faults", fault.Rule{Link: "leaf0-leaf1", Kind: fault.Loss, Probability: 0.02, Dir: fault.Down, Match: fault.Match{Class: "roce"}}, &rule))
	j.write(20, 200_000)
	var faults []fault.Status
	must(t, j.control(0).Call(t.Context(), "GET", "/faults", nil, &faults))
	if after := j.port(1).Count; len(faults) != 1 || faults[0].HitsDown == 0 || after.Trunk.Lost != 0 {
		t.Errorf("faults %+v, lost in the network %d", faults, after.Trunk.Lost)
	}
	must(t, j.control(0).Call(t.Context(), "DELETE", "/faults", nil, nil))
	j.lossy.Store(50)
	j.write(20, 200_000)
	j.lossy.Store(0)
	if after := j.port(1).Count.Trunk; after.Lost == 0 {
		t.Errorf("the trunk has counted %+v", after)
	}
	if note := j.port(1).Note; note != "" {
		t.Errorf("a trunk that is not strict has the note %q", note)
	}
	j.write(5, 200_000)
}

// A trunk goes on between other addresses, at the same port, when both descriptions have these.
func TestTrunkWhoseEndMoves(t *testing.T) {
	j := joinLeaves(t, udp)
	j.write(2, 64<<10)
	moved := netip.MustParseAddr("192.168.7.9")
	must(t, nl.Configure(nl.End{Netns: j.lan[1], Name: "lan", Addrs: []netip.Prefix{netip.PrefixFrom(moved, 24)}}))
	for i, p := range j.paths {
		data, err := os.ReadFile(p.Spec())
		must(t, err)
		rack, err := rackfile.Decode(data)
		must(t, err)
		rack.Machines[1].Address = moved
		data, err = rack.Encode()
		must(t, err)
		must(t, os.WriteFile(p.Spec(), data, 0o644))
		must(t, j.control(i).Call(t.Context(), "POST", "/rack", nil, nil))
		if i == 0 { // the other end is not there yet
			j.await(false)
		}
	}
	j.await(true)
	j.write(2, 64<<10)
}

// The notes of a trunk: what the kernel refuses, and what the network has lost if the trunk is strict.
func TestNotesOfTrunks(t *testing.T) {
	s := trunk.Stats{Slow: "the kernel refuses all", Lost: 3, Late: 1, Silences: 2}
	if got := notesOf(&s, false); !slices.Equal(got, []string{s.Slow}) {
		t.Errorf("%q", got)
	}
	want := []string{s.Slow, "strict: datagrams lost in the network, or late: 4", "strict: times that the other end was silent: 2"}
	if got := notesOf(&s, true); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := notesOf(new(trunk.Stats), true); got != nil {
		t.Errorf("%q", got)
	}
}

// A trunk is cut at one end, and restored; a leaf is started again; the network fails, and heals.
func TestTrunkToAnotherMachineFails(t *testing.T) {
	j := joinLeaves(t, udp)
	cut := func(up bool) {
		t.Helper()
		must(t, j.control(0).Call(t.Context(), "POST", "/trunk", TrunkSwitch{"leaf0-leaf1", up}, nil))
	}
	cut(false)
	j.await(false)
	j.awaitNoCarrier(trunk.Off)
	cut(true)
	j.await(true)
	j.write(2, 10_000)
	must(t, nl.SetUp(j.lan[1], "lan", false))
	j.await(false)
	j.awaitNoCarrier(trunk.Calling)
	must(t, nl.SetUp(j.lan[1], "lan", true))
	j.await(true)
	j.write(2, 10_000)
	err := j.control(0).Call(t.Context(), "POST", "/trunk", TrunkSwitch{"cn0", false}, nil)
	if err == nil {
		t.Error("the link of a host is cut as a trunk")
	}
}

// A trunk that is cut, and faults on it, are there again when the switch is started again, until they are
// healed.
func TestFaultsOfTrunksOutliveTheSwitch(t *testing.T) {
	for _, way := range []string{veth, udp} {
		t.Run(way, func(t *testing.T) {
			j := joinLeaves(t, way)
			control := j.control(0)
			faults := func() (list []fault.Status) {
				t.Helper()
				must(t, control.Call(t.Context(), "GET", "/faults", nil, &list))
				return list
			}
			stop := func() { t.Fatal("the leaf was not started") }
			restart := func() {
				t.Helper()
				stop()
				stop = j.start(0)
				for start := time.Now(); control.Call(t.Context(), "GET", "/status", nil, nil) != nil; time.Sleep(time.Millisecond) {
					if time.Since(start) > 30*time.Second {
						t.Fatal("the leaf does not answer")
					}
				}
			}
			stop = j.stops[0]
			for _, r := range []fault.Rule{
				{Link: "leaf0-leaf1", Kind: fault.Delay, Delay: time.Millisecond, For: time.Hour},
				{Link: "cn0", Kind: fault.Loss, Probability: 0.5},
				{Link: "leaf0-leaf1", Kind: fault.Loss, Probability: 0.25, Match: fault.Match{Class: "roce"}},
				{Link: "leaf0-leaf1", Kind: fault.Loss, Match: fault.Match{Class: "roce"}, Count: 1},
			} {
				must(t, control.Call(t.Context(), "POST", "/faults", r, nil))
			}
			before := faults()
			restart()
			switch list := faults(); {
			case len(list) != 2 || list[0].ID != before[0].ID || list[1].ID != before[2].ID || list[1].Kind != fault.Loss:
				t.Fatalf("%+v became %+v", before, list)
			case list[0].Remaining <= 0 || list[0].Remaining > before[0].Remaining:
				t.Errorf("%v were left, and then %v", before[0].Remaining, list[0].Remaining)
			}
			must(t, control.Call(t.Context(), "DELETE", "/faults/"+before[2].ID, nil, nil))
			restart()
			if list := faults(); len(list) != 1 || list[0].ID != before[0].ID {
				t.Fatalf("after one was healed: %+v", list)
			}
			must(t, control.Call(t.Context(), "DELETE", "/faults", nil, nil))
			restart()
			if list := faults(); len(list) != 0 {
				t.Errorf("after all were healed: %+v", list)
			}
			must(t, os.WriteFile(j.paths[0].TrunkFaults(leaf(0)), []byte(`[{"link":"nowhere","kind":"?"},{"until":-1},7`), 0o600))
			restart()
			if list := faults(); len(list) != 0 {
				t.Errorf("of a damaged file: %+v", list)
			}
			if way == veth {
				return
			}
			cut := j.paths[0].Cut("leaf0-leaf1")
			must(t, os.MkdirAll(filepath.Dir(cut), 0o755))
			must(t, os.WriteFile(cut, nil, 0o644))
			restart()
			j.awaitNoCarrier(trunk.Off)
			j.await(false)
			must(t, os.Remove(cut))
			restart()
			j.await(true)
		})
	}
}

// BenchmarkTrunk compares a trunk between machines with one of this machine: two hosts, two leaves.
func BenchmarkTrunk(b *testing.B) {
	for _, k := range []struct {
		name         string
		op           verbs.WROpcode
		size         int
		flight, list int
	}{{"write64k", verbs.OpWrite, 64 << 10, 16, 1}, {"write8", verbs.OpWrite, 8, 64, 16}, {"readlat", verbs.OpRead, 8, 1, 1}} {
		for _, way := range []string{veth, udp} {
			b.Run(k.name+"/"+way, func(b *testing.B) {
				j := joinLeaves(b, way)
				b.SetBytes(int64(k.size))
				j.measure(b, j.work(0, verbs.SendWR{Op: k.op}, 0, 0, k.size), k.flight, k.list)
			})
		}
	}
}
