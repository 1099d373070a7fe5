package scenario

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Offsets in the server's memory: of two words, and of a node (a block that a lock protects).
const (
	lockAt  = 0x1000
	otherAt = 0x2000
	nodeAt  = 0x4000
)

// holeParams are the parameters of the connections of a hole that names none.
var holeParams = rdmacm.Params{Timeout: 10, PathMTU: verbs.MTU1024}

// holes returns the scripts of all holes, in the order of their numbers.
func holes() []hole {
	list := slices.Concat(safetyHoles, livenessHoles, wireHoles, closedHoles, memoryHoles, steerHoles())
	slices.SortFunc(list, func(a, b hole) int { return a.number - b.number })
	for i := range list {
		if list[i].params == (rdmacm.Params{}) {
			list[i].params = holeParams
		}
		if list[i].action == "" {
			list[i].action = "atomics"
		}
	}
	return list
}

var safetyHoles = []hole{
	{number: 14, title: "the answer is lost after its map entry was reused", script: (*holeRun).lateRetry},
	{number: 15, title: "a failing CAS writes the old value over a release", script: (*holeRun).failingCAS},
	{number: 16, title: "a release by WRITE is not seen", script: (*holeRun).release},
	{number: 17, title: "a release overtakes the node that it publishes", action: "move", script: (*holeRun).node},
	{number: 18, title: "the first answer fills the cache while others are in flight", script: (*holeRun).firstAnswer},
	{number: 19, title: "the cache outlives the server", script: (*holeRun).serverRestart},
	{number: 41, title: "a request is lost before the switch and the next one is not", script: (*holeRun).gap},
	{number: 42, title: "an answer on one connection acknowledges a request that was lost on the other", action: "move", script: (*holeRun).otherAnswer},
	{number: 43, title: "a NAK on the client's connection acknowledges a request that was moved and lost", action: "move", script: (*holeRun).ownNak},
}

// lose returns a rule that drops the next n packets with the opcodes ops in direction dir.
func lose(dir fault.Dir, n int, ops ...wire.Opcode) fault.Rule {
	return fault.Rule{Kind: fault.Loss, Dir: dir, Count: n, Match: fault.Match{Opcodes: ops}}
}

// delay returns a rule that delays the next n packets with the opcodes ops in direction dir by d.
// Other packets overtake them.
func delay(dir fault.Dir, d time.Duration, n int, ops ...wire.Opcode) fault.Rule {
	return fault.Rule{Kind: fault.Delay, Dir: dir, Delay: d, Count: n, Match: fault.Match{Opcodes: ops}}
}

// lateRetry: the answer to client 1's CAS is lost. Before client 1 sends the CAS again,
// requests of other clients have used every place of the switch's ring.
func (h *holeRun) lateRetry() {
	h.warm(lockAt, 5)
	c := h.clients[1]
	h.faults("cn1", lose(fault.Down, 1, wire.RCAtomicAck))
	a := c.cas(lockAt, 5, 6)
	h.rt.Sleep(20 * time.Microsecond)
	for range 200 { // 1,200 requests in less time than the client waits
		var all []*answer
		for _, other := range h.clients[2:] {
			all = append(all, other.add(otherAt, 1))
		}
		for _, o := range all {
			h.expect(o, "FETCH_ADD")
		}
	}
	h.expect(a, "the CAS whose answer was lost")
	if a.status == verbs.Success && a.prior() != 5 {
		h.harm("the CAS found %#x, the word was 5", a.prior())
	}
}

// failingCAS: client 1 has the lock. Client 2's CAS must fail, but its packet is delayed on the
// way to the server and arrives after client 1 has released the lock.
func (h *holeRun) failingCAS() {
	h.warm(lockAt, 0)
	h.expect(h.clients[1].cas(lockAt, 0, 77), "the holder's CAS")
	h.faults("ms0", delay(fault.Down, 30*time.Microsecond, 1, wire.RCWriteOnly, wire.RCCmpSwap))
	in := h.clients[2].cas(lockAt, 0, 88)
	h.rt.Sleep(3 * time.Microsecond)
	release := h.clients[1].write(lockAt-2048, 0, 2048+8) // of several packets, so the switch does not move it
	h.expect(release, "the release")
	h.expect(in, "the CAS that fails")
	h.rt.Sleep(50 * time.Microsecond)
	if got := h.word(lockAt); got == 77 {
		h.harm("the lock is %d again after its release", got)
	}
}

// release: the lock is taken by CAS and released by a WRITE, as in Sherman. The switch must
// notice the WRITE.
func (h *holeRun) release() {
	h.warm(lockAt, 0)
	h.expect(h.clients[1].cas(lockAt, 0, 77), "the holder's CAS")
	h.expect(h.clients[1].write(lockAt, 0, 8), "the release")
	a := h.clients[2].cas(lockAt, 0, 88)
	h.expect(a, "the next CAS")
	if a.prior() != 0 {
		h.harm("the lock was free, the next client was told %d", a.prior())
	}
	h.want(lockAt, 88, "the next client took the lock")
}

// node: a client posts a WRITE of a node and the release of its lock with one doorbell, and the
// node's first packet is lost. The lock must not become free before the node is written.
func (h *holeRun) node() {
	h.warm(lockAt, 77)
	c := h.clients[1]
	h.expect(c.write(lockAt, 77, 8), "WRITE of the lock") // the switch learns from it that the R_Key is valid
	h.faults("ms0", lose(fault.Down, 1, wire.RCWriteFirst))
	var node, release *answer
	c.together(func() {
		node = c.write(nodeAt, 0x1111, 4096)
		release = c.write(lockAt, 0, 8)
	})
	for range 200 {
		h.rt.Sleep(time.Microsecond)
		if h.word(lockAt) == 0 && h.word(nodeAt) != 0x1111 {
			h.harm("the lock is free and the node is not there")
			break
		}
	}
	h.expect(node, "the node")
	h.expect(release, "the release")
}

// firstAnswer: two FETCH_ADDs to a word that the switch does not know are in flight. The answer
// to the second is late, and a third FETCH_ADD arrives before it.
func (h *holeRun) firstAnswer() {
	h.warm(otherAt, 0) // makes the switch move requests of all connections; the word at lockAt stays unknown to the switch
	first := h.clients[2].add(lockAt, 1)
	h.rt.Sleep(time.Microsecond) // the delay of a link: the switch moves the second request before the first is answered
	second := h.clients[3].add(lockAt, 1)
	h.rt.Sleep(1500 * time.Nanosecond)
	h.faults("ms0", delay(fault.Up, 40*time.Microsecond, 1, wire.RCAtomicAck))
	h.rt.Sleep(10 * time.Microsecond)
	third := h.clients[4].add(lockAt, 1)
	seen := make(map[uint64]bool)
	for _, a := range []*answer{first, second, third} {
		h.expect(a, "FETCH_ADD")
		if seen[a.prior()] {
			h.harm("two additions found %d", a.prior())
		}
		seen[a.prior()] = true
	}
	h.rt.Sleep(100 * time.Microsecond)
	h.want(lockAt, 3, "three additions of 1")
}

// serverRestart: the memory server crashes and restarts with empty memory, and clients make new
// connections. The values of words that the switch has stored are wrong now.
func (h *holeRun) serverRestart() {
	h.warm(lockAt, 77)
	ms := h.rack.Host("ms0")
	ms.Crash()
	clear(h.memory)
	h.rt.Sleep(100 * time.Microsecond)
	ms.Restart()
	h.env.serveWords(h.memory, holeService, h.params, func(verbs.MR) {})
	for i := 1; i < 4; i++ {
		a := h.clients[i].insist(lockAt, uint64(i-1), uint64(i))
		if a == nil {
			h.harm("client %d has no answer within %v of the restart, whatever it tries", i, holePatience)
			return
		}
		if a.prior() != uint64(i-1) && a.prior() != uint64(i) {
			h.harm("the memory is empty: client %d found %d, want %d", i, a.prior(), i-1)
		}
	}
	h.want(lockAt, 3, "three CAS in a row")
}

// insist makes new connections until a CAS on one of them succeeds, and returns its answer, or nil
// after holePatience. An earlier CAS of insist, whose answer did not come, may have been executed,
// too.
func (c *holeClient) insist(off int, compare, swap uint64) *answer {
	for until := c.run.rt.Now().Add(holePatience); c.run.rt.Now() < until; c.run.rt.Sleep(20 * time.Millisecond) {
		if c.connect() != nil {
			continue
		}
		if a := c.cas(off, compare, swap); a.wait(holePatience) && a.status == verbs.Success {
			return a
		}
	}
	return nil
}

// gap: a client posts two CAS, of which the second needs the result of the first, with one
// doorbell. The first is lost on its way to the switch.
func (h *holeRun) gap() {
	h.warm(lockAt, 0)
	c := h.clients[1]
	h.faults("cn1", lose(fault.Up, 1, wire.RCCmpSwap))
	var a, b *answer
	c.together(func() {
		a = c.cas(lockAt, 0, 1)
		b = c.cas(lockAt, 1, 2)
	})
	h.expect(a, "the first CAS")
	h.expect(b, "the second CAS")
	if a.status == verbs.Success && b.status == verbs.Success && (a.prior() != 0 || b.prior() != 1) {
		h.harm("they found %d and %d, in order they find 0 and 1", a.prior(), b.prior())
	}
	h.want(lockAt, 2, "one client's CAS 0→1, then 1→2")
}

// otherAnswer: a WRITE is moved and lost. The next WRITE stays on the client's connection, and
// its ACK would acknowledge the lost one, too.
func (h *holeRun) otherAnswer() {
	h.clients[1].shortAndLong(lose(fault.Down, 1, wire.RCWriteOnly))
}

// ownNak: a WRITE is moved and lost. The long WRITE behind it loses a packet on the client's
// connection. The server's NAK for this packet would acknowledge the lost WRITE.
func (h *holeRun) ownNak() {
	h.clients[1].shortAndLong(lose(fault.Down, 1, wire.RCWriteOnly), lose(fault.Down, 1, wire.RCWriteMiddle))
}

// shortAndLong makes the client post two WRITEs with one doorbell, under the given faults of the
// server's link: a short one, which the switch moves, and one of several packets, which it does not
// move.
func (c *holeClient) shortAndLong(faults ...fault.Rule) {
	h := c.run
	h.warm(otherAt, 0)
	h.expect(c.write(lockAt, 1, 8), "WRITE")
	h.expect(c.write(lockAt, 2, 8), "WRITE")
	h.faults("ms0", faults...)
	var a, b *answer
	c.together(func() {
		a = c.write(lockAt, 3, 8)
		b = c.write(nodeAt, 4, 4096)
	})
	h.expect(a, "the short WRITE")
	if a.status == verbs.Success {
		h.want(lockAt, 3, "the WRITE is complete at its client")
	}
	h.expect(b, "the long WRITE")
}
