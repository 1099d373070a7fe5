package scenario

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// steerHoles lists the holes of steering (sending appends and READs to the newest node of their
// key). The scripts act as clients of Clover: they write nodes, append them, and read.
func steerHoles() []hole {
	list := []hole{
		{number: 26, title: "an append goes to a node of another version", script: onStore(steerSpace, (*holeStore).versions)},
		{number: 28, title: "a node is read before it is linked", script: onStore(steerSpace, (*holeStore).readTail)},
		{number: 29, title: "an append has failed and its node is taken for the tail", script: onStore(steerSpace, (*holeStore).failedAppend)},
		{number: 30, title: "an append is lost and later appends go behind its node", script: onStore(steerSpace, (*holeStore).brokenChain)},
		{number: 31, title: "an append is lost, its client dies, and the switch is restarted", script: onStore(steerSpace, (*holeStore).doubleFailure)},
		{number: 32, same: true, title: "an append that is sent again goes to another node", script: onStore(steerSpace, (*holeStore).resent)},
		{number: 33, title: "an entry belongs to another key by now", script: onStore(steerSpace, (*holeStore).recycled)},
		{number: 36, title: "two nodes are written before two appends", script: onStore(steerSpace, (*holeStore).batch)},
		{number: 46, title: "two keys share a tail", script: onStore(steerSpace, (*holeStore).sharedTail)},
	}
	for i := range list {
		list[i].action = "steer"
	}
	return list
}

// The keys of the scripts, and the version of the first node of each chain.
const (
	steerKey = 7
	otherKey = 8
	// sameTail is the next key after steerKey that shares its register for the tail with steerKey
	// in the published program.
	sameTail = steerKey + rules.DefaultRegisters
	firstEnd = layout.Version(1)
)

var steerSpace = layout.Space{Servers: 1, Entries: layout.Counts{0: 64}, Shortcuts: 8}

// holeStore is the server's memory with a store, whose clients the scripts of steering act as.
type holeStore struct {
	run   *holeRun
	space layout.Space
}

// onStore returns the script of a hole that uses a store of this space.
func onStore(space layout.Space, script func(*holeStore)) func(*holeRun) {
	return func(h *holeRun) { script(&holeStore{run: h, space: space}) }
}

// at returns the offset of a node in the server's memory.
func (s *holeStore) at(n layout.Handle) int {
	p, _ := s.space.Place(n)
	return p.Offset
}

// super writes the superblock, as client c. number is that of the store.
func (s *holeStore) super(c *holeClient, number uint32, what string) {
	super := layout.Superblock{Format: layout.Hardened, Generation: 1, Space: s.space, Store: number}
	b := make([]byte, layout.SuperblockLen)
	super.Put(b)
	s.run.expect(c.put(0, b), what)
}

// format formats the server's memory as a store. For each key it makes a chain that the switch
// knows: node 1, then 2 for the first key; 11, then 12 for the second.
func (s *holeStore) format(keys ...uint64) {
	h := s.run
	s.super(h.clients[0], 1, "the superblock")
	for i, k := range keys {
		c, first := h.clients[0], layout.Handle(1+10*i)
		h.expect(s.node(c, first, 1, k), "the first node")
		h.expect(s.node(c, first+1, 1, k), "the second node")
		h.expect(s.link(c, first, 1, first+1, 1), "the first append")
	}
}

func (c *holeClient) put(off int, b []byte) *answer {
	copy(c.end.buf[int(c.next%holeDepth)*holeSlot:], b)
	return c.post(verbs.SendWR{Op: verbs.OpWrite}, off, len(b))
}

// node makes client c WRITE node n with version v for a key. The node's value is its handle.
func (s *holeStore) node(c *holeClient, n layout.Handle, v layout.Version, key uint64) *answer {
	b := make([]byte, layout.MinSlab)
	layout.Hardened.PutNode(b, layout.Header(v), key, binary.LittleEndian.AppendUint32(nil, uint32(n)))
	return c.put(s.at(n), b)
}

// link makes client c append node n of version v to the node with handle `to` and version toV.
func (s *holeStore) link(c *holeClient, to layout.Handle, toV layout.Version, n layout.Handle, v layout.Version) *answer {
	return c.cas(s.at(to), uint64(layout.Header(toV)), uint64(layout.Superseded(toV, layout.Location{Handle: n, Version: v})))
}

// linked waits for the answer to an append to a node of version 1, and reports whether the answer
// says that the append has succeeded. The answer may tell the version of the node to which the switch
// has steered the append.
func (s *holeStore) linked(a *answer, what string) bool {
	s.run.expect(a, what)
	w := layout.Word(a.prior())
	_, told := w.Told()
	return a.status == verbs.Success && (w == layout.Header(1) || told && w.EntryVersion() == 1)
}

// retry acts as a client whose append of node n has failed: it follows the chain to its end and
// appends the node there.
func (s *holeStore) retry(c *holeClient, n layout.Handle) {
	at := layout.Handle(1)
	for range 8 {
		a := c.read(s.at(at), layout.HeaderLen)
		s.run.expect(a, "READ of a header")
		next, more := layout.Word(a.prior()).Next()
		if more {
			at = next.Handle
			continue
		}
		if s.linked(s.link(c, at, 1, n, 1), "the append again") {
			return
		}
	}
	s.run.harm("client %d finds no end of the chain", n)
}

// get acts as a client that knows the node at location `at` of a key: it READs that node and
// follows the chain to its end. It returns the value of the last node, which is a handle.
func (s *holeStore) get(c *holeClient, at layout.Location, key uint64) (value layout.Handle, ok bool) {
	for range 16 {
		a := c.read(s.at(at.Handle), layout.MinSlab)
		s.run.expect(a, "READ of a node")
		if a.status != verbs.Success {
			return 0, false
		}
		b := c.end.buf[a.slot*holeSlot:][:layout.MinSlab]
		header, v, err := layout.Keyed.ParseNode(b, binary.LittleEndian.Uint64(b[layout.HeaderLen:]))
		if err != nil || header.EntryVersion() != at.Version {
			return 0, false // the node was reused; a real client would now ask the metadata server
		}
		next, more := header.Next()
		if !more {
			if own, _ := layout.KeyOf(b); own != key {
				s.run.harm("a client that asks for key %d gets the value of key %d", key, own)
			}
			return layout.Handle(binary.LittleEndian.Uint32(v)), true
		}
		at = next
	}
	s.run.harm("the chain of key %d leads in a circle", key)
	return 0, false
}

// chain returns the nodes that can be reached from node `from`, as the server's memory has them.
func (s *holeStore) chain(from layout.Handle) []layout.Handle {
	list := []layout.Handle{from}
	for len(list) < 64 {
		next, more := layout.HeaderOf(s.run.memory[s.at(list[len(list)-1]):]).Next()
		if !more {
			return list
		}
		if slices.Contains(list, next.Handle) {
			s.run.harm("the chain leads in a circle: %v, and %d again", list, next.Handle)
			return list
		}
		list = append(list, next.Handle)
	}
	return list
}

// reaches is called for a node n whose append was answered as successful. It records damage if the
// node is not in the chain.
func (s *holeStore) reaches(n layout.Handle, when string) {
	list := s.chain(1)
	if slices.Contains(list, n) {
		return
	}
	s.run.harm("%s node %d, which was acknowledged, is not in the chain %v", when, n, list)
}

// versions: the tail of the chain is a node in its second use (version 2). A client that knows
// only the first node, of version 1, appends.
func (s *holeStore) versions() {
	h := s.run
	s.format(steerKey)
	c := h.clients[1]
	h.expect(s.node(c, 3, 2, steerKey), "a node of version 2")
	s.linked(s.link(c, 2, 1, 3, 2), "its append")
	d := h.clients[2]
	h.expect(s.node(d, 4, 1, steerKey), "the node")
	if !s.linked(s.link(d, 1, 1, 4, 1), "the append") {
		h.harm("the append that was steered to a node of version 2 has failed: its client did not expect that version")
	} else {
		s.reaches(4, "afterwards")
	}
	if v, ok := s.get(h.clients[3], layout.Location{Handle: 1, Version: firstEnd}, steerKey); ok && v != 4 && v != 3 {
		h.harm("a client reads node %d", v)
	} else if ok && len(s.chain(1)) == 3 && v == 4 {
		h.harm("a client reads node 4, which was never linked")
	}
}

// readTail: the append of node 3 is delayed, and a READ of another client overtakes it. The
// READ must not return node 3, which is not linked yet.
func (s *holeStore) readTail() {
	h := s.run
	s.format(steerKey)
	c := h.clients[1]
	h.expect(s.node(c, 3, 1, steerKey), "the node")
	h.faults("ms0", delay(fault.Down, 100*time.Microsecond, 1, wire.RCCmpSwap))
	a := s.link(c, 2, 1, 3, 1)
	h.rt.Sleep(5 * time.Microsecond)
	if v, ok := s.get(h.clients[2], layout.Location{Handle: 1, Version: firstEnd}, steerKey); ok && v == 3 && len(s.chain(1)) == 2 {
		h.harm("a client reads node 3 while the chain ends with node 2; the next reader may read node 2")
	}
	h.expect(a, "the append")
}

// failedAppend: an append fails because its client expects a wrong version. The switch must not
// take its node for the tail.
func (s *holeStore) failedAppend() {
	h := s.run
	s.format(steerKey)
	c, d := h.clients[1], h.clients[2]
	h.expect(s.node(c, 3, 1, steerKey), "a node")
	h.expect(s.link(c, 2, 9, 3, 1), "the append that fails")
	h.expect(s.node(d, 4, 1, steerKey), "another node")
	if s.linked(s.link(d, 2, 1, 4, 1), "its append") {
		s.reaches(4, "afterwards")
	} else {
		s.retry(d, 4)
	}
}

// brokenChain: the append of node 3 is lost. Before it is sent again, another client appends
// node 4.
func (s *holeStore) brokenChain() {
	h := s.run
	s.format(steerKey)
	c, d := h.clients[1], h.clients[2]
	h.expect(s.node(c, 3, 1, steerKey), "the node of client 1")
	h.expect(s.node(d, 4, 1, steerKey), "the node of client 2")
	h.faults("ms0", lose(fault.Down, 1, wire.RCCmpSwap))
	lost := s.link(c, 2, 1, 3, 1)
	h.rt.Sleep(3 * time.Microsecond)
	if s.linked(s.link(d, 2, 1, 4, 1), "the append of client 2") {
		s.reaches(4, "when its client is told,")
	}
	if !s.linked(lost, "the append of client 1") {
		s.retry(c, 3)
	}
	s.reaches(3, "in the end")
}

// doubleFailure: the append of client 1 is lost, and client 1 dies before it sends the append
// again. Another client appends node 4, and then the switch restarts.
func (s *holeStore) doubleFailure() {
	h := s.run
	s.format(steerKey)
	c, d := h.clients[1], h.clients[2]
	h.expect(s.node(c, 3, 1, steerKey), "the node of client 1")
	h.expect(s.node(d, 4, 1, steerKey), "the node of client 2")
	h.faults("ms0", lose(fault.Down, 1, wire.RCCmpSwap))
	s.link(c, 2, 1, 3, 1)
	h.rt.Sleep(3 * time.Microsecond)
	c.host.Crash()
	told := s.linked(s.link(d, 2, 1, 4, 1), "the append of client 2")
	h.rack.CrashSwitch()
	h.rt.Sleep(time.Millisecond)
	if err := h.rack.RestartSwitch(); err != nil {
		h.harm("restart: %v", err)
	}
	h.rt.Sleep(100 * time.Millisecond)
	if told {
		s.reaches(4, "100 ms after both failures")
	}
	if v, ok := s.get(h.clients[3], layout.Location{Handle: 1, Version: firstEnd}, steerKey); told && ok && v != 4 {
		h.harm("a client reads node %d, and node 4 was acknowledged", v)
	}
}

// resent: two appends are lost between the switch and the server. Before they are sent again, a
// third append comes, which the switch may steer to the node of a lost append as if that append had
// succeeded.
func (s *holeStore) resent() {
	h := s.run
	s.format(steerKey)
	var lost [2]*answer
	for i := range 3 {
		h.expect(s.node(h.clients[1+i], layout.Handle(3+i), 1, steerKey), "a node")
	}
	h.faults("ms0", lose(fault.Down, 2, wire.RCCmpSwap))
	for i := range lost {
		lost[i] = s.link(h.clients[1+i], 2, 1, layout.Handle(3+i), 1)
		h.rt.Sleep(5 * time.Microsecond)
	}
	third := s.linked(s.link(h.clients[3], 2, 1, 5, 1), "the third append")
	if !third {
		s.retry(h.clients[3], 5)
	}
	for i, a := range lost {
		if !s.linked(a, "a lost append") {
			s.retry(h.clients[1+i], layout.Handle(3+i))
		}
	}
	for n := layout.Handle(3); n <= 5; n++ {
		s.reaches(n, "in the end")
	}
}

// recycled: node 3 belonged to key 7 and belongs to key 8 now. A client that still knows the
// old location READs key 7 there, and must not get the value of key 8.
func (s *holeStore) recycled() {
	h := s.run
	s.format(steerKey, otherKey)
	c := h.clients[1]
	h.expect(s.node(c, 3, 1, steerKey), "the node")
	s.linked(s.link(c, 2, 1, 3, 1), "its append")
	h.expect(s.node(c, 4, 1, steerKey), "the next node")
	s.linked(s.link(c, 3, 1, 4, 1), "its append")
	// The metadata server has reclaimed the nodes of key 7 before node 4, and has given out node 3
	// again.
	d := h.clients[2]
	h.expect(s.node(d, 3, 2, otherKey), "the node of key 8")
	s.linked(s.link(d, 12, 1, 3, 2), "its append")
	h.expect(s.node(d, 14, 1, otherKey), "the next node of key 8")
	h.expect(s.link(d, 3, 2, 14, 1), "its append")
	s.get(h.clients[3], layout.Location{Handle: 3, Version: 1}, steerKey)
}

// batch: a client writes nodes of two keys on one connection, and then appends both. The switch
// must know which node belongs to which append.
func (s *holeStore) batch() {
	h := s.run
	s.format(steerKey, otherKey)
	c := h.clients[1]
	h.expect(s.node(c, 3, 1, steerKey), "a node of key 7")
	h.expect(s.node(c, 13, 1, otherKey), "a node of key 8")
	s.linked(s.link(c, 2, 1, 3, 1), "the append to key 7")
	s.linked(s.link(c, 12, 1, 13, 1), "the append to key 8")
	s.reaches(3, "afterwards")
	s.chain(11)
	for i, k := range []uint64{steerKey, otherKey} {
		at := layout.Location{Handle: layout.Handle(1 + 10*i), Version: 1}
		if v, ok := s.get(h.clients[2], at, k); ok && v != layout.Handle(3+10*i) {
			h.harm("key %d has node %d, want %d", k, v, 3+10*i)
		}
	}
}

// sharedTail: two clients append to keys that share a register for the tail in the published
// program.
func (s *holeStore) sharedTail() {
	h := s.run
	s.format(steerKey, sameTail)
	for i, k := range []uint64{steerKey, sameTail} {
		c, end := h.clients[1+i], layout.Handle(2+10*i)
		h.expect(s.node(c, end+1, 1, k), "a node")
		if !s.linked(s.link(c, end, 1, end+1, 1), "its append") {
			h.harm("the append to key %d has failed, and no other client appends to it", k)
		}
	}
	for i, k := range []uint64{steerKey, sameTail} {
		first := layout.Handle(1 + 10*i)
		if list := s.chain(first); !slices.Equal(list, []layout.Handle{first, first + 1, first + 2}) {
			h.harm("the chain of key %d is %v", k, list)
		}
		s.get(h.clients[3], layout.Location{Handle: first, Version: firstEnd}, k)
	}
}
