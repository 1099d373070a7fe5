package ucma

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// host is a host with two NICs, and the parts of one program on them.
func host(t *testing.T) (first, second *nic) {
	t.Helper()
	first, second = newNIC(t), newNIC(t)
	first.m = first.program(Config{Of: 2})
	second.m = second.program(Config{Nth: 1, Of: 2})
	second.m.cfg.Device.GIDs = []verbs.GID{verbs.GIDOf(netip.MustParseAddr("10.77.1.1"))}
	for _, n := range []*nic{first, second} {
		if _, err := n.m.OpenChannel(); err != nil {
			t.Fatal(err)
		}
	}
	return first, second
}

// What a command is about, and which NIC it asks for.
func TestTargets(t *testing.T) {
	for op := range commands {
		_, about := Command{Op: op, Args: make([]byte, 512)}.Target()
		if want := op != CreateID && op != GetEvent && op != LeaveMulticast; about != want {
			t.Errorf("command %d is about an identifier: %v", op, about)
		}
	}
	if _, about := (Command{Op: BindIP}).Target(); about {
		t.Error("a command without arguments is about an identifier")
	}
	if h, ok := (Command{Op: LeaveMulticast, Args: encode(destroyID{ID: 3})}).Membership(); !ok || h != 3 {
		t.Errorf("membership %d, %v", h, ok)
	}
	for _, c := range []struct {
		cmd  Command
		want Wish
		ok   bool
	}{
		{Command{Op: BindIP, Args: encode(bindIP{Addr: at("10.77.1.1")})}, Wish{Own: netip.MustParseAddr("10.77.1.1")}, true},
		{Command{Op: BindIP, Args: encode(bindIP{Addr: at("0.0.0.0")})}, Wish{}, true},
		{Command{Op: ResolveIP, Args: encode(resolveIP{Dst: at("10.77.1.2")})}, Wish{Peer: netip.MustParseAddr("10.77.1.2")}, true},
		{Command{Op: Listen, Args: encode(listen{})}, Wish{}, false},
	} {
		if got, ok := c.cmd.Wish(); got != c.want || ok != c.ok {
			t.Errorf("command %d asks for %+v, %v", c.cmd.Op, got, ok)
		}
	}
}

// An identifier moves with its handle and its unread events; no other identifier gets the handle meanwhile.
func TestMove(t *testing.T) {
	a, b := host(t)
	a.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
	a.do(Command{Op: ResolveIP, Args: encode(resolveIP{Dst: at("10.99.0.1")})}) // an event: no route
	x, ok := a.m.Take(0)
	if !ok || len(x.unread) != 1 {
		t.Fatalf("taken with %d events, %v", len(x.unread), ok)
	}
	if a.m.Has(0) {
		t.Error("it is on both NICs")
	}
	if _, again := a.m.Take(0); again {
		t.Error("it was taken twice")
	}
	if err := b.m.Give(x); err != nil {
		t.Fatal(err)
	}
	if got, ok := decode[Handle](a.do(Command{Op: CreateID, Args: encode(createID{UID: 2, Space: spaceTCP})}).Data); !ok || got.ID != 2 {
		t.Errorf("the next identifier is %d, want 2", got.ID)
	}
	if got, ok := decode[Handle](b.do(Command{Op: CreateID, Args: encode(createID{UID: 3, Space: spaceTCP})}).Data); !ok || got.ID != 1 {
		t.Errorf("the first identifier of the second NIC is %d, want 1", got.ID)
	}
	if ev, ok := decode[event](b.do(Command{Op: GetEvent}).Data); !ok || ev.UID != 1 || ev.Kind != addrError {
		t.Errorf("event %+v", ev)
	}
	b.do(Command{Op: BindIP, Args: encode(bindIP{ID: 1, Addr: at("10.77.1.1")})})
	if _, ok := b.m.Take(1); ok {
		t.Error("an identifier with an address was taken")
	}
	b.do(Command{Op: DestroyID, Args: Naming(DestroyID, 0)})
	a.m.Forget(2) // is here, so it stays
	a.m.Forget(0)
	if !a.m.Has(2) || a.m.nic.ids[0] != nil {
		t.Error("the wrong identifier was forgotten")
	}
}

// A bound identifier takes its port along, and stays where it is if the port is in use there.
func TestMoveWithPort(t *testing.T) {
	a, b := host(t)
	a.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
	a.do(Command{Op: BindIP, Args: encode(bindIP{Addr: at("0.0.0.0")})})
	b.do(Command{Op: CreateID, Args: encode(createID{UID: 2, Space: spaceTCP})})
	b.do(Command{Op: BindIP, Args: encode(bindIP{ID: 1, Addr: at("10.77.1.1")})})
	x, ok := a.m.Take(0)
	if !ok {
		t.Fatal("not taken")
	}
	if err := b.m.Give(x); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("with its port in use: %v", err)
	}
	if err := a.m.Give(x); err != nil || !a.m.Has(0) {
		t.Errorf("back: %v", err)
	}
	if len(a.ports.used) != 1 || len(b.ports.used) != 1 {
		t.Errorf("%d and %d ports are in use", len(a.ports.used), len(b.ports.used))
	}
}

// A listener at all addresses has a mirror on the other NIC, whose events are those of the listener.
func TestMirror(t *testing.T) {
	a, b := host(t)
	a.do(Command{Op: CreateID, Args: encode(createID{UID: 7, Space: spaceTCP})})
	a.do(Command{Op: BindIP, Args: encode(bindIP{Addr: at("0.0.0.0")})})
	if _, ok := a.m.Everywhere(0); ok {
		t.Error("it does not listen yet")
	}
	a.do(Command{Op: Listen, Args: encode(listen{Backlog: 3})})
	all, ok := a.m.Everywhere(0)
	if !ok {
		t.Fatal("it does not listen at all addresses")
	}
	h, err := b.m.Mirror(b.step(), all)
	if err != nil || h != 1 || b.m.nic.ids[h].uid != 7 || b.m.nic.ids[h].backlog != 3 {
		t.Fatalf("mirror %d, %v", h, err)
	}
	before := len(b.m.nic.ids)
	if _, err := b.m.Mirror(b.step(), all); err == nil || len(b.m.nic.ids) != before {
		t.Errorf("a second mirror: %v, %d identifiers", err, len(b.m.nic.ids))
	}
	b.m.nic.Lost(b.m.nic.ids[h].listener)
	if n := len(b.m.channels[0].unread); n != 0 {
		t.Errorf("%d events after the NIC of a mirror has gone", n)
	}
	a.m.Unlisten(a.step(), 0)
	if a.m.Listeners() != 0 || a.m.nic.ids[0].state != Bound {
		t.Errorf("%d listeners, state %v", a.m.Listeners(), a.m.nic.ids[0].state)
	}
	b.do(Command{Op: DestroyID, Args: Naming(DestroyID, h)})
	if b.m.Listeners() != 0 || len(b.ports.used) != 0 {
		t.Errorf("%d listeners, %d ports", b.m.Listeners(), len(b.ports.used))
	}
}
