package scenario

import (
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var livenessHoles = []hole{
	{number: 1, title: "a client dies and its request is lost: no client fills the gap", script: (*holeRun).deadClient},
	{number: 2, title: "one client's lost packet makes all clients send again", script: (*holeRun).broadcast},
	{number: 4, title: "the owner of the shared connection ends", script: (*holeRun).ownerEnds},
	{number: 5, title: "packets of other clients come between those of a long message", script: (*holeRun).interleaved, rack: simrack.Options{Rate: 1e9}},
	{number: 7, title: "more atomics than the server remembers", action: "move", script: (*holeRun).depth7, params: rdmacm.Params{Timeout: 10, RdAtomic: 2}},
	{number: 10, title: "an answer comes before the response to an earlier READ", script: (*holeRun).earlyAnswer},
	{number: 12, title: "more requests than the ring has places", script: (*holeRun).ring},
	{number: 20, title: "one client's wrong R_Key ends the connection of all clients", script: (*holeRun).badKey},
}

// rto is the switch's first retransmission timeout, 1 ms, and some time for the answer.
const rto = time.Millisecond + 500*time.Microsecond

// deadClient: the switch moves client 1's CAS, the CAS is lost on its way to the server, and
// client 1 dies, so that it never sends the CAS again. Client 2 uses the same word.
func (h *holeRun) deadClient() {
	h.warm(lockAt, 5)
	h.faults("ms0", lose(fault.Down, 1, wire.RCWriteOnly, wire.RCCmpSwap))
	h.clients[1].cas(lockAt, 5, 6)
	h.rt.Sleep(3 * time.Microsecond)
	h.clients[1].host.Crash()
	a := h.clients[2].cas(lockAt, 6, 7)
	if !a.wait(rto) {
		h.stalled("client 2")
		a.wait(holePatience)
		h.harm("client 2: %s", a)
	} else if a.prior() != 6 {
		h.harm("client 2 found %d, want 6", a.prior())
	}
}

// stalled is called when a client gets no answer to a request. It records as damage the request for
// whose answer all clients on the shared connection wait, as `rdmalab switch connections` shows it.
func (h *holeRun) stalled(who string) {
	for _, s := range h.machine().Shared {
		if w := s.Waits; w != nil {
			h.harm("%s and all others wait for PSN %v of QP %v at the server: PSN %v of client %v, %s", who, w.PSN, s.ServerQPN, w.ClientPSN, w.Client, w.Op)
		}
	}
}

// broadcast: eight clients have requests on the shared connection, and one packet is lost. At
// most one client may get a NAK that makes it send again.
func (h *holeRun) broadcast() {
	h.warm(lockAt, 5)
	var before [holeClients]uint64
	for i, c := range h.clients {
		before[i] = c.host.Counters().PacketSeqErr
	}
	h.faults("ms0", lose(fault.Down, 1, wire.RCWriteOnly))
	for _, a := range h.addAll(lockAt) {
		h.expect(a, "FETCH_ADD")
	}
	told := 0
	for i, c := range h.clients {
		if c.host.Counters().PacketSeqErr > before[i] {
			told++
		}
	}
	if told > 1 {
		h.harm("%d clients got a NAK that makes them send again", told)
	}
	h.want(lockAt, 5+holeClients, "eight additions of 1")
}

// ownerEnds: under the published rule, the switch borrows the connection of the first client as
// its shared connection. That client destroys its queue pair. Then another client posts a CAS. The
// packet that the switch sends to the server for this CAS is lost once.
func (h *holeRun) ownerEnds() {
	h.warm(lockAt, 5)
	owner := h.clients[0]
	h.faults("ms0", lose(fault.Down, 1, wire.RCWriteOnly, wire.RCCmpSwap))
	if err := owner.end.qp.Destroy(); err != nil {
		h.harm("destroy: %v", err)
	}
	a := h.clients[2].cas(lockAt, 5, 6)
	h.expect(a, "client 2, after client 0 has ended")
}

// interleaved: the client whose connection is shared sends a message of many packets. Meanwhile
// another client posts a CAS, and the switch sends its packet between the packets of this message.
func (h *holeRun) interleaved() {
	h.warm(lockAt, 5)
	long := h.clients[0].write(nodeAt, 9, 8192)
	h.rt.Sleep(30 * time.Microsecond)
	a := h.clients[2].cas(lockAt, 5, 6)
	h.expect(a, "the CAS of client 2")
	h.expect(long, "the long WRITE of client 0")
}

// depth7: the server remembers the answers to the last two atomics of a connection, as it has
// negotiated with the client. The answer to client 1 is lost. Before client 1 sends its atomic
// again, the atomics of other clients on the shared connection push that answer out of the server's
// memory.
func (h *holeRun) depth7() {
	h.warm(lockAt, 5)
	h.faults("ms0", lose(fault.Up, 1, wire.RCAtomicAck))
	a := h.clients[1].add(lockAt, 1)
	h.rt.Sleep(2500 * time.Nanosecond)
	var all []*answer
	for _, c := range h.clients[2:] {
		all = append(all, c.add(lockAt, 1), c.add(lockAt, 1))
	}
	for _, o := range append(all, a) {
		h.expect(o, "FETCH_ADD")
	}
	h.want(lockAt, 5+13, "13 additions of 1")
}

// earlyAnswer: a READ of several packets stays on the client's connection, and its response is
// slow. The FETCH_ADD behind it is moved and answered first.
func (h *holeRun) earlyAnswer() {
	h.warm(lockAt, 5)
	c := h.clients[1]
	before := c.host.Counters().ImpliedNakSeqErr
	h.faults("ms0", delay(fault.Up, 50*time.Microsecond, 4, wire.RCReadResponseFirst, wire.RCReadResponseMiddle, wire.RCReadResponseLast))
	var r, a *answer
	c.together(func() {
		r = c.read(nodeAt, 4096)
		a = c.add(lockAt, 1)
	})
	h.expect(r, "READ")
	h.expect(a, "FETCH_ADD")
	if n := c.host.Counters().ImpliedNakSeqErr - before; n > 0 {
		h.harm("nothing was lost and the NIC had to take %d answers for NAKs", n)
	}
}

// ring: client 1 has one WRITE in flight. Then all others have 128 each on one queue pair, and
// three of them 128 more on a second one: more than the 1024 places of the ring of the published
// switch, which puts all of them on one connection.
func (h *holeRun) ring() {
	h.warm(lockAt, 0)
	first := make(map[*holeClient]*ends)
	for _, c := range h.clients[2:5] {
		first[c] = c.end
		if h.err = c.connect(); h.err != nil {
			return
		}
	}
	h.faults("ms0", fault.Rule{Kind: fault.Delay, Dir: fault.Up, Delay: 100 * time.Microsecond})
	all := []*answer{h.clients[1].write(nodeAt+8, holeDepth, 8)}
	h.rt.Sleep(2 * time.Microsecond)
	for i, c := range h.clients {
		if i == 1 {
			continue
		}
		many := func() {
			for n := range uint64(holeDepth) {
				all = append(all, c.write(nodeAt+8*i, n+1, 8))
			}
		}
		if end := c.end; first[c] != nil {
			c.end = first[c]
			before := len(all)
			c.together(many)
			all, c.end = all[:before], end // the script waits for the answers on the second queue pair
		}
		c.together(many)
	}
	for _, a := range all {
		h.expect(a, "WRITE")
		if len(h.damage) > 2 {
			break
		}
	}
	for i := range h.clients {
		h.want(nodeAt+8*i, holeDepth, "the last WRITE")
	}
}

// badKey: one client uses a wrong R_Key for a word that all others use. The server's fatal NAK
// must end only that client's connection.
func (h *holeRun) badKey() {
	h.warm(lockAt, 5)
	bad := h.clients[3].post(verbs.SendWR{Op: verbs.OpCmpSwap, CompareAdd: 5, Swap: 9, RKey: h.clients[3].mem.rkey ^ 0x5a5a}, lockAt, 8)
	a := h.clients[2].cas(lockAt, 5, 6)
	bad.wait(holePatience)
	if bad.status != verbs.RemAccessErr {
		h.harm("the wrong key: %s", bad)
	}
	h.expect(a, "client 2, whose key is right")
	h.expect(h.clients[4].cas(lockAt, 6, 7), "client 4, whose key is right")
}
