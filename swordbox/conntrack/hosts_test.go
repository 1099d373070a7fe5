package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// An address is bound to one port until the binding is removed: elsewhere says so for every other
// port, and for no address that is not bound.
func TestBindings(t *testing.T) {
	var stats Stats
	h := newHosts(&stats)
	a, b := addr(1), addr(2)
	check := func(what string, x netip.Addr, want ...int) {
		t.Helper()
		for range 2 { // the second answer comes from the last one
			for port := range 4 {
				bad := false
				for _, w := range want {
					bad = bad || w == port
				}
				if h.elsewhere(x, port) != bad {
					t.Errorf("%s: %v at port %d is elsewhere: %v", what, x, port, !bad)
				}
			}
		}
	}
	check("unknown", a)
	h.bind(a, -1)
	if len(h.byAddr) != 0 {
		t.Error("an address that is not bound is remembered")
	}
	h.bind(a, 0)
	check("bound to port 0", a, 1, 2, 3)
	h.from(1, b, 2)
	check("seen at port 2", b)
	h.bind(b, 3)
	check("bound to port 3", b, 0, 1, 2)
	check("still bound to port 0", a, 1, 2, 3)
	h.bind(a, 2)
	check("bound to port 2", a, 0, 1, 3)
	h.bind(a, -1)
	check("no longer bound", a)
	if h.perPort[0] != 0 || h.perPort[2] != 1 || h.perPort[3] != 1 {
		t.Errorf("addresses by port: %v", h.perPort)
	}
}

// A silent address is accepted behind another port after 10 s, unless it is bound, and then counts
// there.
func TestMovesOfAddresses(t *testing.T) {
	var stats Stats
	h := newHosts(&stats)
	now := r0
	h.from(now, addr(1), 1)
	h.from(now.Add(5*time.Second), addr(1), 1)
	for _, c := range []struct {
		after time.Duration
		want  Reason
	}{{5*time.Second + hostIdle - 1, Spoofed}, {5*time.Second + hostIdle, Fine}} {
		if x, bad := h.from(now.Add(c.after), addr(1), 2); bad != c.want || (x != nil) != (c.want == Fine) {
			t.Errorf("after %v: %v", c.after, bad)
		}
	}
	if stats.Spoofed != 1 || stats.HostMoves != 1 || len(h.perPort) != 1 || h.perPort[2] != 1 {
		t.Errorf("%+v, addresses by port: %v", stats, h.perPort)
	}
	if _, bad := h.from(now.Add(20*time.Second), addr(1), 1); bad != Spoofed {
		t.Errorf("back at once: %v", bad)
	}
}

// r0 is when tests of hosts begin.
const r0 = clock.Time(time.Second)

func clockAt(d time.Duration) clock.Time { return r0.Add(d) }

// A port has at most 64 addresses. When there are more, those that are silent, have no flows and no
// handshakes and are not bound make room.
func TestAddressesOfAPort(t *testing.T) {
	var stats Stats
	h := newHosts(&stats)
	h.bind(addr(100), 1)
	h.from(r0, addr(200), 2)
	for i := range maxHostsPerPort - 1 {
		if _, bad := h.from(r0, addr(i), 1); bad != Fine {
			t.Fatalf("address %d: %v", i, bad)
		}
	}
	h.byAddr[addr(1)].flows = 1
	h.byAddr[addr(2)].setups = 1
	full := func(at time.Duration) {
		t.Helper()
		before := stats.NoRoom
		if x, bad := h.from(clockAt(at), addr(150), 1); x != nil || bad != NoRoom || stats.NoRoom != before+1 {
			t.Errorf("after %v: %v, %v", at, bad, stats.NoRoom)
		}
	}
	full(0)
	h.from(clockAt(9*time.Second), addr(3), 1)
	full(hostIdle - time.Millisecond) // the next search is a second later
	full(hostIdle)
	h.elsewhere(addr(5), 1)
	if _, bad := h.from(clockAt(hostIdle+time.Second), addr(150), 1); bad != Fine {
		t.Errorf("after the silence: %v", bad)
	}

	for i, want := range map[int]bool{0: false, 1: true, 2: true, 3: true, 4: false, 100: true, 150: true, 200: true} {
		if h.byAddr[addr(i)] != nil != want {
			t.Errorf("address %d is remembered: %v", i, !want)
		}
	}
	if h.perPort[1] != 5 || h.perPort[2] != 1 {
		t.Errorf("addresses by port: %v", h.perPort)
	}
	h.bind(addr(5), 2)
	if !h.elsewhere(addr(5), 1) {
		t.Error("an address that was forgotten is not bound")
	}
}

// The host with the most learning flows loses one; of two, the one with the lower address.
func TestMostLearning(t *testing.T) {
	var stats Stats
	h := newHosts(&stats)
	for i := range 5 {
		h.from(r0, addr(9-i), 1)
	}
	if h.mostLearning() != nil {
		t.Error("no host learns")
	}
	for _, c := range []struct {
		host, flows, want int
	}{{7, 1, 7}, {8, 1, 7}, {6, 1, 6}, {8, 2, 8}, {9, 3, 9}, {5, 3, 5}} {
		h.byAddr[addr(c.host)].learning.n = c.flows
		for range 10 { // in any order of the map
			if got := h.mostLearning(); got == nil || got.addr != addr(c.want) {
				t.Fatalf("after %+v: %v", c, got)
			}
		}
	}
}

// A host that goes on talking stays at its port, whether its packets come close behind each other or
// not; and the table follows the headers of its packets, unless they are damaged.
func TestHostsThatGoOnTalking(t *testing.T) {
	for _, each := range []time.Duration{time.Millisecond * 900, 3 * time.Second} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, 0x11, 0x22, 100)
		for range 20 {
			r.now = r.now.Add(each)
			r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected))
		}
		r.now = r.now.Add(2 * time.Second)
		if s := r.Packet(r.now, 7, packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected), r); s.Bad != Spoofed || s.Flow != flow {
			t.Errorf("a packet each %v: %+v", each, s)
		}
		if s := r.Packet(r.now, 7, packet(1, 2, 0x99, wire.RCWriteOnly, 5), r); s.Bad != Spoofed {
			t.Errorf("a packet each %v, another flow: %+v", each, s)
		}
	}
	for name, change := range map[string]func(f *wire.Frame){
		"source port": func(f *wire.Frame) { f.UDP.SrcPort++ },
		"source":      func(f *wire.Frame) { f.Eth.Src[5]++ },
		"destination": func(f *wire.Frame) { f.Eth.Dst[5]++ },
	} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, 0x11, 0x22, 100)
		if !flow.HasPath || flow.Path.SrcPort != 0xc000 || flow.Path.Eth.Src != mac(1) || flow.Port != 1 {
			t.Errorf("path %+v, port %d", flow.Path, flow.Port)
		}
		before := flow.Path
		f := packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected)
		change(f)
		r.bad = true
		if r.see(f); flow.Path != before {
			t.Errorf("another %s in a damaged packet: %+v", name, flow.Path)
		}
		r.bad = false
		if r.see(f); flow.Path.SrcPort != f.UDP.SrcPort || flow.Path.Eth.Src != f.Eth.Src || flow.Path.Eth.Dst != f.Eth.Dst {
			t.Errorf("another %s: %+v", name, flow.Path)
		}
	}
}
