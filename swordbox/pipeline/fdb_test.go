package pipeline

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Addresses of one place among the recent ones do not take each other's ports, and an address that
// was removed is unknown although packets had just used it.
func TestAddressesOfOnePlace(t *testing.T) {
	const ageing = time.Minute
	table := newFDB(10, ageing)
	a, b := wire.MAC{2, 0, 0, 0, 0, 1}, wire.MAC{2, 7, 0, 0, 0, 1 + recentMACs}
	if table.place(a) != table.place(b) {
		t.Fatal("the addresses have two places")
	}
	want := func(now clock.Time, portA, portB int) {
		t.Helper()
		for range 2 {
			if pa, pb := table.lookup(now, a), table.lookup(now, b); pa != portA || pb != portB {
				t.Errorf("at %v: ports %d and %d, want %d and %d", now, pa, pb, portA, portB)
			}
		}
	}
	want(0, -1, -1)
	table.learn(0, a, 3)
	want(0, 3, -1)
	table.learn(0, b, 4)
	want(0, 3, 4)
	table.learn(1, a, 5)
	want(1, 5, 4)
	if table.moves != 1 {
		t.Errorf("%d moves", table.moves)
	}
	table.flush(4)
	want(1, 5, -1)
	table.learn(1, b, 4)
	table.lookup(1, a)
	want(clock.Time(0).Add(ageing+time.Nanosecond), 5, 4)
	want(clock.Time(0).Add(2*ageing), -1, -1)
	if len(table.entries) != 0 {
		t.Errorf("%d entries are left", len(table.entries))
	}
}

// A frame with the address of another host does not draw this host's frames to the port of the attacker, whether or
// not the host has sent yet; the ports of one host are as good as each other.
func TestForeignAddressesAreNotLearnt(t *testing.T) {
	host, guest := wire.MAC{2, 0, 0, 0, 0, 1}, wire.MAC{2, 0, 0, 0, 0, 9}
	table := newFDB(10, time.Minute)
	table.homes = NewHomes(Places{host: {1, 2}})
	for i, c := range []struct {
		mac            wire.MAC
		port, at       int
		moves, foreign uint64
	}{
		{host, 3, -1, 0, 1},
		{host, 1, 1, 0, 1},
		{host, 3, 1, 0, 2},
		{host, 2, 2, 1, 2},
		{guest, 3, 3, 1, 2},
		{guest, 4, 4, 2, 2},
	} {
		table.learn(0, c.mac, c.port)
		if at := table.lookup(0, c.mac); at != c.at || table.moves != c.moves || table.foreign != c.foreign {
			t.Errorf("%d: at port %d, %d moves, %d foreign", i, at, table.moves, table.foreign)
		}
	}
}

// New places make the switch forget addresses that were learnt where they no longer belong, and no others.
func TestNewPlacesForgetAddresses(t *testing.T) {
	host, other, guest := wire.MAC{2, 0, 0, 0, 0, 1}, wire.MAC{2, 0, 0, 0, 0, 2}, wire.MAC{2, 0, 0, 0, 0, 9}
	homes := NewHomes(Places{host: {1}, other: {2}})
	s, err := New(Config{Ports: 4, Program: &testProgram{}, Homes: homes})
	if err != nil {
		t.Fatal(err)
	}
	for mac, port := range map[wire.MAC]int{host: 1, other: 2, guest: 3} {
		s.fdb.learn(0, mac, port)
	}
	homes.Set(Places{host: {3}, other: {2}})
	for mac, want := range map[wire.MAC]int{host: -1, other: 2, guest: 3} {
		if at := s.fdb.lookup(0, mac); at != want {
			t.Errorf("%v is at port %d, want %d", mac, at, want)
		}
	}
	s.fdb.learn(0, host, 3)
	if at := s.fdb.lookup(0, host); at != 3 {
		t.Errorf("the host that has moved is at port %d", at)
	}
}
