package memservice

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The table of owners is full of clients that have ended and of clients that were fenced: the older
// half is forgotten, and further clients connect, again and again. No owner that was forgotten
// connects any more; one that has a connection remains as it is, until it is fenced, too.
func TestAFullTableForgetsOldOwners(t *testing.T) {
	const old = 7
	var o Owners
	connected := func() map[uint32]bool { return map[uint32]bool{old: true} }
	admit := func(id uint32) {
		o.forget(connected)
		if err := o.admit(id, "a"); err != nil {
			t.Fatalf("owner %d: %v", id, err)
		}
	}
	last := uint32(3 * maxOwners)
	for id := uint32(1); id <= last; id++ {
		admit(id)
		if id%3 == 0 {
			if err := o.fence(id); err != nil {
				t.Fatal(err)
			}
		}
		if len(o.known) > maxOwners {
			t.Fatalf("%d owners are known after %d", len(o.known), id)
		}
	}
	if o.last() != last {
		t.Errorf("the last owner is %d, want %d", o.last(), last)
	}
	for _, id := range []uint32{1, 3, 6, old + 1, maxOwners / 2, maxOwners} {
		if err := o.admit(id, "a"); !errors.Is(err, ErrFenced) || !o.fenced(id) {
			t.Errorf("owner %d, which was forgotten: %v", id, err)
		}
	}
	admit(old)
	if o.fenced(last) != (last%3 == 0) || o.fenced(last-1) != ((last-1)%3 == 0) {
		t.Error("owners that were not forgotten are fenced wrongly")
	}
	if err := o.fence(old); err != nil || !errors.Is(o.admit(old, "a"), ErrFenced) {
		t.Errorf("owner %d is fenced, and connects: %v", old, err)
	}
	if o.fenceTo(last); len(o.known) > 0 || !o.fenced(old) {
		t.Errorf("%d owners are known after all were fenced", len(o.known))
	}
}

// A table whose owners all have connections takes no further one.
func TestAFullTableOfOwnersWithConnections(t *testing.T) {
	var o Owners
	for id := uint32(1); id <= maxOwners; id++ {
		if err := o.admit(id, "a"); err != nil {
			t.Fatal(err)
		}
	}
	all := make(map[uint32]bool)
	for id := range o.known {
		all[id] = true
	}
	o.forget(func() map[uint32]bool { return all })
	if err := o.admit(maxOwners+1, "a"); !errors.Is(err, errOwners) {
		t.Errorf("a further owner: %v", err)
	}
	if o.fenced(1) {
		t.Error("an owner with a connection is fenced")
	}
}

// An owner that has kept its entry when others were forgotten is above the numbers that FenceTo
// names: it is not fenced, because the service does not end its connections.
func TestFenceToDoesNotFenceLargerOwners(t *testing.T) {
	const old = 7
	var o Owners
	for id := uint32(1); id <= maxOwners; id++ {
		if err := o.admit(id, "a"); err != nil {
			t.Fatal(err)
		}
	}
	o.forget(func() map[uint32]bool { return map[uint32]bool{old: true} })
	o.fenceTo(old - 1)
	if err := o.admit(old, "a"); err != nil || !o.fenced(old-1) || !o.fenced(old+1) {
		t.Errorf("owner %d: %v; its neighbours are fenced: %v, %v", old, err, o.fenced(old-1), o.fenced(old+1))
	}
	if o.fenceTo(old); !o.fenced(old) {
		t.Errorf("owner %d is not fenced", old)
	}
}

// A client that has lost its connection when the table becomes full is not forgotten: it connects
// again. If it has not connected when the table is full the next time, it is forgotten.
func TestAFullTableKeepsAnOwnerThatHasLostItsConnection(t *testing.T) {
	const old, back, ended = 7, 8, 9
	var o Owners
	up := map[uint32]bool{old: true, back: true, ended: true}
	connected := func() map[uint32]bool { return up }
	connect := func(ids ...uint32) {
		t.Helper()
		for _, id := range ids {
			if err := o.admit(id, "a"); err != nil {
				t.Fatalf("owner %d: %v", id, err)
			}
		}
	}
	next := uint32(1)
	fill := func(to int) {
		t.Helper()
		for ; len(o.known) < to; next++ {
			o.forget(connected)
			connect(next)
		}
	}
	fill(maxOwners)
	clear(up)
	o.forget(connected)
	if len(o.known) >= maxOwners || !o.fenced(ended+1) {
		t.Fatalf("%d owners are known", len(o.known))
	}
	connect(old, back, ended)
	up[old] = true
	fill(maxOwners - 1) // meanwhile the service has found that the others have no connection
	connect(back)
	clear(up)
	fill(maxOwners)
	o.forget(connected)
	if o.fenced(old) || o.fenced(back) || !o.fenced(ended) {
		t.Errorf("fenced: owner %d %v, %d %v, %d %v", old, o.fenced(old), back, o.fenced(back), ended, o.fenced(ended))
	}
}

// For a request the service asks the NIC at most once about each connection, however many owners it
// has.
func TestAFullTableAsksOnceAboutAConnection(t *testing.T) {
	asked, s := 0, &Server{owners: new(Owners)}
	for id := uint32(1); id <= maxOwners; id++ {
		if id%maxJoined == 1 {
			s.conns = append(s.conns, &Conn{QP: askedQP{state: verbs.StateRTS, asked: &asked}})
		}
		c := s.conns[len(s.conns)-1]
		c.owners = append(c.owners, id)
		if err := s.owners.admit(id, "a"); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		s.owners.forget(s.connected)
	}
	if asked > 3*len(s.conns) || len(s.owners.known) != maxOwners {
		t.Errorf("%d questions about %d connections, %d owners are left", asked, len(s.conns), len(s.owners.known))
	}
}
