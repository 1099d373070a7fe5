package meta

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/lease"
)

// still is a runtime whose clock does not advance.
type still struct{ verbs.Runtime }

func (still) Now() clock.Time     { return 0 }
func (still) Go(string, func())   {}
func (still) Sleep(time.Duration) { panic("a unit test waits") }

// nothing is a verbs context for what needs none but its runtime.
type nothing struct{ verbs.Context }

func (nothing) Runtime() verbs.Runtime { return still{} }

// heldOf returns a table with the given nodes.
func heldOf(nodes map[layout.Handle]held) (t heldNodes) {
	for h, n := range nodes {
		t.put(h, n)
	}
	return t
}

// lossy returns a server with two memory servers of four nodes each, and a client that holds all
// nodes. The first memory server has lost its memory; the metadata server knows that and has not
// run lose yet.
func lossy() (*Server, *client) {
	s := newServer()
	s.mem.rt, s.mem.format = still{}, layout.Hardened
	s.mem.space = layout.Space{Servers: 2, Shortcuts: 4, Entries: layout.Counts{4}}
	s.chains.keys, s.mem.memory, s.chains.slots = make(map[uint64]*entry), make([]memory, 2), []uint32{0, 2}
	s.mem.memory[0].blank = true
	s.pool.nodes.held = heldNodes{}
	s.pool.fences = lease.NewFencer(lease.Config{Context: nothing{}, Servers: make([]netip.Addr, 2)})
	cl := &client{id: 7}
	for i := range s.mem.memory {
		for k := range 4 {
			s.pool.nodes.held.put(s.mem.space.First(i, 0)+layout.Handle(k), held{client: cl.id, version: 1})
		}
	}
	return s, cl
}

// An INSERT finds that the memory of the key, and of its own node, is lost. It must not succeed:
// the key would be lost twice, and a client may have been told of the first loss.
func TestOpenWithALostNode(t *testing.T) {
	s, cl := lossy()
	s.chains.keys[1] = &entry{key: 1, at: layout.Location{Handle: s.mem.space.First(0, 0) + 3, Version: 1}, recorded: true, mirrored: true, slot: 4}
	r := rpc.Request{Op: rpc.OpOpen, Key: 1, At: layout.Location{Handle: s.mem.space.First(0, 0), Version: 1}}
	var a rpc.Answer
	s.openKey(cl, &r, &a)
	if e := s.chains.keys[1]; a.Status != rpc.Busy || !e.lost || e.opened == r.At || len(s.chains.slots) != 2 {
		t.Errorf("%v, and the key is %+v", a.Status, e)
	}
}

// A client that asks about its own node is answered Done once the node has been seen in a chain,
// whatever has happened to the key since. That there is no node is said only while a memory server
// serves this metadata server.
func TestQueryForANode(t *testing.T) {
	s, cl := lossy()
	own := layout.Location{Handle: s.mem.space.First(1, 0), Version: 1}
	other := layout.Location{Handle: s.mem.space.First(1, 0) + 1, Version: 1}
	ask := func(at layout.Location) rpc.Answer {
		var a rpc.Answer
		s.query(cl, &rpc.Request{Op: rpc.OpQuery, Key: 1, At: at}, &a)
		return a
	}
	s.mem.memory[1].blank = true // no memory server serves
	if a := ask(own); a.Status != rpc.Busy {
		t.Errorf("a node that is in no chain, no key: %v", a.Status)
	}
	s.chains.keys[1] = &entry{key: 1, lost: true}
	if a := ask(own); a.Status != rpc.Busy {
		t.Errorf("a node that is in no chain, the key is lost: %v", a.Status)
	}
	s.mem.memory[1].blank = false
	s.chains.keys[1] = &entry{key: 1, at: other, recorded: true}
	s.pool.linked(other)
	if a := ask(own); a.Status != rpc.OK || a.N != 1 || a.Locations[0] != other {
		t.Errorf("a node that is in no chain: %+v", a)
	}
	if a := ask(layout.Location{}); a.Status != rpc.OK {
		t.Errorf("no node: %v", a.Status)
	}
	s.pool.linked(own)
	if a := ask(own); a.Status != rpc.Done {
		t.Errorf("a node that was seen in a chain: %v", a.Status)
	}
	delete(s.chains.keys, 1)
	if a := ask(own); a.Status != rpc.Done {
		t.Errorf("a node that was seen in a chain, and the key has gone: %v", a.Status)
	}
}

// No epoch begins whose stamp may be in old shortcuts, until these are erased.
func TestEpochsWaitForOldShortcuts(t *testing.T) {
	s, _ := lossy() // a memory server cannot be reached
	s.pool.nodes.worn = []worn{{s.mem.space.First(1, 0), staleEpochs - 2}}
	for _, c := range []struct{ at, want uint32 }{
		{staleEpochs - 2, staleEpochs - 1}, {staleEpochs - 1, staleEpochs - 1}, {staleEpochs, staleEpochs + 1}, {2*staleEpochs - 1, 2*staleEpochs - 1},
	} {
		s.pool.epoch, s.pool.nodes.worn[0].epoch = c.at, c.at
		if s.pool.turn(); s.pool.epoch != c.want {
			t.Errorf("after epoch %#x comes %#x, want %#x", c.at, s.pool.epoch, c.want)
		}
	}
}

// The first node of a key is reused, in the same version, and an INSERT of that key names it:
// the key exists, and the INSERT must not be taken for a copy of the one that has opened the key.
func TestOpenWithTheFirstNodeOfTheKey(t *testing.T) {
	s, cl := lossy() // the record of the key is on the server that does not answer
	own, newest := layout.Location{Handle: s.mem.space.First(1, 0), Version: 1}, layout.Location{Handle: s.mem.space.First(1, 0) + 1, Version: 1}
	e := &entry{key: 1, at: newest, opened: own, dead: true, ended: true, recorded: true, mirrored: true, slot: 2}
	s.chains.keys[1] = e
	s.pool.linked(newest)
	ask := func() rpc.Answer {
		var a rpc.Answer
		s.openKey(cl, &rpc.Request{Op: rpc.OpOpen, Key: 1, At: own}, &a)
		return a
	}
	if a := ask(); a.Status != rpc.Busy || !s.pool.heldAs(cl.id, own) {
		t.Errorf("the client holds the node: %v", a.Status)
	}
	s.pool.linked(own)
	if a := ask(); a.Status != rpc.OK || a.Slot != e.slot {
		t.Errorf("a copy of the request that has opened the key: %v", a.Status)
	}
}

// The tombstone of a key has been seen while the directory could not be written. Then it can be
// written, and the report of the tombstone arrives at the same time. The report must not remove the
// key a second time: its node would be freed twice, and its slot belongs to another key by then.
func TestDeletedKeyIsCommittedOnce(t *testing.T) {
	s, _ := lossy()
	dead := layout.Location{Handle: s.mem.space.First(1, 0), Version: 1}
	e := &entry{key: 1, at: dead, dead: true, recorded: true, mirrored: true, slot: 2}
	s.chains.keys[1] = e
	s.pool.linked(dead)
	s.chains.settle(e)
	s.chains.slots = s.chains.slots[:len(s.chains.slots)-1]
	s.chains.keys[2] = &entry{key: 2, slot: e.slot, recorded: true, mirrored: true}
	s.chains.follow([]*entry{e}, -1)
	if n := s.pool.nodes.free[0].Len(anywhere); n != 1 || len(s.chains.slots) != 2 || !e.recorded {
		t.Errorf("%d nodes are free, %d slots; recorded again: %v", n, len(s.chains.slots), !e.recorded)
	}
}

// Until the directory names the newest node, a restarted metadata server begins at an older one: no
// node that the chain has passed may be given out again before.
func TestNothingIsRetiredBeforeTheDirectoryIsWritten(t *testing.T) {
	s, _ := lossy()
	old, newest := layout.Location{Handle: s.mem.space.First(1, 0), Version: 1}, layout.Location{Handle: s.mem.space.First(1, 0) + 1, Version: 1}
	for _, c := range []struct{ recorded, mirrored bool }{{false, true}, {true, false}, {false, false}, {true, true}} {
		e := &entry{key: 1, at: newest, passed: []layout.Location{old}, recorded: c.recorded, mirrored: c.mirrored}
		s.chains.keys[1], s.pool.nodes.free[0] = e, free{}
		s.chains.settle(e)
		if free, want := s.pool.nodes.free[0].Len(anywhere), c.recorded && c.mirrored; (free == 1) != want || (len(e.passed) == 0) != want {
			t.Errorf("recorded %v, mirrored %v: %d nodes are free", c.recorded, c.mirrored, free)
		}
	}
}

// A record that names a node in memory of an earlier generation belongs to a lost key, whatever is
// in that memory now.
func TestRecordOfAnotherGenerationIsLost(t *testing.T) {
	s, _ := lossy()
	s.mem.memory[1].generation = 0x1234_56789abd
	at := layout.Location{Handle: s.mem.space.First(1, 0), Version: 1}
	for gen, lost := range map[uint32]bool{0x789abd: false, 0x789abc: true, 0: true} {
		if e := s.chains.entryOf(layout.KeyRecord{Key: 1, At: at, Generation: gen}, 0); e.lost != lost || (e.at == at) == lost || e.recorded == lost {
			t.Errorf("a record of generation %#x: %+v", gen, e)
		}
	}
}
