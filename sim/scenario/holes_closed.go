package scenario

import (
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// closedHoles lists holes that the paper does not mention. Both modes close them, because no other
// hole could be shown while they were open. A test plants each of them in the switch and checks
// that the script finds the damage.
var closedHoles = []hole{
	{number: 3, same: true, title: "packets that stay on a connection whose other packets were moved", script: (*holeRun).unmoved},
	{number: 9, same: true, title: "one ACK covers several atomics", script: (*holeRun).coalesced, rack: simrack.Options{Recovery: simrack.Recovery{Acks: 4}}},
	{number: 11, same: true, title: "a WRITE in place of an atomic requests an ACK", script: (*holeRun).ackReq},
	{number: 13, same: true, title: "a CAS that is sent again is not decided again", script: (*holeRun).decidedOnce},
	{number: 24, same: true, title: "a queue pair number is reused", script: (*holeRun).sameNumber},
	{number: 45, same: true, title: "the byte order of an operand", script: (*holeRun).byteOrder},
}

// unmoved: on one connection, long WRITEs and READs, which the switch leaves on the client's
// connection, come between FETCH_ADDs, which it moves to a switch's connection.
func (h *holeRun) unmoved() {
	h.warm(lockAt, 5)
	c := h.clients[1]
	for i := range uint64(3) {
		h.soon(c.write(nodeAt, 0x1111+i, 4096), "the long WRITE")
		h.soon(c.add(lockAt, 1), "FETCH_ADD")
		h.soon(c.read(nodeAt, 4096), "the long READ")
		h.want(nodeAt, 0x1111+i, "the long WRITE is complete at its client")
	}
	h.want(lockAt, 8, "three additions of 1")
}

// coalesced: eight additions are in flight, and the server answers four of them with one ACK.
func (h *holeRun) coalesced() {
	h.warm(lockAt, 5)
	up := h.rack.Host("ms0").Link()
	before := up.Stats(fault.Up).Sent
	seen := make(map[uint64]bool)
	for _, a := range h.addAll(lockAt) {
		h.soon(a, "FETCH_ADD")
		if v := a.prior(); seen[v] {
			h.harm("two additions found %d", v)
		} else {
			seen[v] = true
		}
	}
	h.want(lockAt, 5+holeClients, "eight additions of 1")
	if n := up.Stats(fault.Up).Sent - before; n > holeClients/2 {
		h.harm("the server sent %d answers: nothing was coalesced", n)
	}
}

// ackReq: the switch sends a WRITE in place of an atomic. If this WRITE did not request an ACK,
// the server would not answer it, and the client of the atomic would wait.
func (h *holeRun) ackReq() {
	h.warm(lockAt, 5)
	for i, c := range h.clients {
		h.soon(c.cas(lockAt, 5+uint64(i), 6+uint64(i)), "CAS")
	}
	h.soon(h.clients[1].write(otherAt, 7, 8), "WRITE")
}

// decidedOnce: the answer to a CAS is lost, the next client sets the word back, and the first
// client sends its CAS again. If the switch decided this CAS a second time, it would succeed twice.
func (h *holeRun) decidedOnce() {
	h.warm(lockAt, 5)
	h.faults("cn1", lose(fault.Down, 1, wire.RCAtomicAck))
	a := h.clients[1].cas(lockAt, 5, 6)
	h.rt.Sleep(20 * time.Microsecond)
	h.soon(h.clients[2].cas(lockAt, 6, 5), "the next CAS")
	h.expect(a, "the CAS whose answer was lost")
	if a.status == verbs.Success && a.prior() != 5 {
		h.harm("the CAS found %d, the word was 5", a.prior())
	}
	h.want(lockAt, 5, "5→6, and then 6→5")
}

// sameNumber: a client's host reboots and gives its new queue pair the QPN that the old one
// had.
func (h *holeRun) sameNumber() {
	h.warm(lockAt, 5)
	c := h.clients[1]
	before := c.end.qp.QPN()
	c.host.Crash()
	h.rt.Sleep(time.Millisecond)
	if h.err = c.host.Reboot(); h.err != nil {
		return
	}
	c.host.Go("client again", true, func(ctx verbs.Context) { c.ctx = ctx })
	h.rt.Sleep(time.Millisecond)
	// The first attempt to connect may fail: its connection request has the same identifiers as
	// that of the first incarnation, so the server takes it for a late duplicate.
	err := c.connect()
	if err != nil {
		err = c.dial()
	}
	if err != nil {
		h.harm("the client does not get a connection: %v", err)
		return
	}
	if now := c.end.qp.QPN(); now != before {
		h.harm("the new queue pair has the number %v, the old one had %v", now, before)
	}
	for i := range uint64(6) {
		h.soon(c.cas(lockAt, 5+i, 6+i), "CAS after the restart")
	}
	h.soon(c.write(nodeAt, 3, 4096), "the long WRITE after the restart")
	h.want(lockAt, 11, "six CAS in a row")
}

// byteOrder: atomics on a word whose bytes all differ. A wrong byte order in the switch would
// give a wrong value.
func (h *holeRun) byteOrder() {
	const v = 0x0102030405060708
	h.warm(lockAt, v)
	h.soon(h.clients[1].cas(lockAt, v, v+1), "CAS")
	h.want(lockAt, v+1, "CAS of a known word")
	h.soon(h.clients[2].add(lockAt, 1), "FETCH_ADD")
	h.want(lockAt, v+2, "FETCH_ADD of a known word")
	a := h.clients[3].cas(lockAt, 0, 1)
	h.soon(a, "a CAS that fails")
	if a.prior() != v+2 {
		h.harm("it found %#x, the word is %#x", a.prior(), uint64(v+2))
	}
}
