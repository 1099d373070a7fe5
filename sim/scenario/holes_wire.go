package scenario

import (
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// wireHoles lists the holes that show in packets: partial READs, message sequence numbers, NAKs,
// source ports, congestion notifications.
var wireHoles = []hole{
	{number: 6, title: "a part of a READ is requested again", script: (*holeRun).partOfRead},
	{number: 8, title: "message sequence numbers of answers that the switch makes", script: onTap((*holeTap).messageNumbers), spy: (*holeTap).answered},
	{number: 21, title: "the server has no receive for one client, and the other clients go on", script: (*holeRun).notReady},
	{number: 23, title: "a NIC changes its UDP source port", script: onTap((*holeTap).sourcePort), wrap: (*holeTap).roam},
	{number: 38, title: "a congestion notification has one receiver", script: onTap((*holeTap).congestion), wrap: (*holeTap).serve, spy: (*holeTap).notified},
	{number: 40, title: "the switch restarts", script: (*holeRun).switchRestart},
}

// holeTap has what the scripts of wireHoles see and change on the links of one run.
type holeTap struct {
	run    *holeRun
	server *sender          // sends packets on the server's link; nil unless the hole's function wrap has made it
	seen   [holeClients]int // by client: a number that the hole's spy keeps, such as the last MSN or the count of notifications
	roamed uint16           // packets of client 1 that have reached the switch, for roam
}

// onTap returns the script of a hole that uses the tap.
func onTap(script func(*holeTap)) func(*holeRun) { return func(h *holeRun) { script(h.tap) } }

// partOfRead: on a connection from which requests were moved, a packet of the response to a
// long READ is lost. The client's NIC requests the rest of this READ.
func (h *holeRun) partOfRead() {
	h.warm(lockAt, 5)
	c := h.clients[1]
	h.expect(c.write(nodeAt, 0x1111, 4096), "WRITE")
	h.faults("ms0", lose(fault.Up, 1, wire.RCReadResponseMiddle))
	h.expect(c.read(nodeAt, 4096), "the READ that lost a packet of its answer")
}

// messageNumbers: the MSN in an answer must count messages. A READ or a long WRITE is one
// message, but takes several PSNs.
func (t *holeTap) messageNumbers() {
	h := t.run
	h.warm(lockAt, 5)
	c := h.clients[1]
	h.expect(c.write(nodeAt, 9, 4096), "the long WRITE")
	h.expect(c.add(lockAt, 1), "FETCH_ADD")
	if sent := int(c.next); t.seen[1] != sent {
		h.harm("client 1 has sent %d messages, and is told that %d are done", sent, t.seen[1])
	}
}

// answered keeps the MSN of the last answer that the switch made for client 1.
func (t *holeTap) answered(ev *simnet.Event) {
	var f wire.Frame
	if ev.Kind == simnet.Sent && ev.Link() == "cn1" && ev.Dir() == fault.Down && wire.ParseFrame(ev.Frame, &f) == nil && f.BTH.Opcode == wire.RCAtomicAck {
		t.seen[1] = int(f.AETH.MSN)
	}
}

// notReady: under the published rule, the switch borrows the connection of the first client as
// its shared connection. This client SENDs to the server, which has posted no receive, so that the
// connection waits.
func (h *holeRun) notReady() {
	h.warm(lockAt, 5)
	send := h.clients[0].post(verbs.SendWR{Op: verbs.OpSend}, 0, 8)
	h.rt.Sleep(10 * time.Microsecond)
	h.soon(h.clients[2].cas(lockAt, 5, 6), "client 2, while the server is not ready for a SEND of client 0")
	send.wait(holePatience)
	h.soon(h.clients[3].cas(lockAt, 6, 7), "client 3, after client 0 gave up")
}

// settledPackets is how many packets of client 1 keep their source port.
const settledPackets = 5

// roam puts a tap in front of the switch. It gives each packet of client 1 after the first
// settledPackets another UDP source port, as a NIC may do in the middle of a connection.
func (t *holeTap) roam(name string, n simnet.Node) simnet.Node {
	if name != rackfile.SwitchName {
		return n
	}
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, port int, p *packetio.Frame) bool {
		var f wire.Frame
		if port == 1 && wire.ParseFrame(p.Data, &f) == nil && f.BTH.Opcode.Service() == wire.ServiceRC {
			if t.roamed++; t.roamed > settledPackets {
				p.Data = change(p.Data, func(f *wire.Frame) { f.UDP.SrcPort = 0xc000 | t.roamed&0xfff })
			}
		}
		return true
	}}
}

// sourcePort: after its first packets, client 1's NIC changes its UDP source port with every
// packet. The switch must still recognise the connection: packets that stay on it must get the PSNs
// that follow those of before.
func (t *holeTap) sourcePort() {
	h := t.run
	h.warm(lockAt, 5)
	c := h.clients[1]
	for i := range uint64(4) {
		h.soon(c.cas(lockAt, 5+i, 6+i), "CAS")
		h.soon(c.write(nodeAt, i, 4096), "the long WRITE")
	}
	h.want(lockAt, 9, "four CAS in a row")
}

// serve puts a sender on the server's link, by which scripts send raw frames as the server.
func (t *holeTap) serve(name string, n simnet.Node) simnet.Node {
	if name != "ms0" {
		return n
	}
	t.server = &sender{Node: n}
	return t.server
}

// congestion: all clients have requests in flight on the shared connection when the server
// sends a congestion notification. Each client must get it.
func (t *holeTap) congestion() {
	h := t.run
	h.warm(lockAt, 5)
	h.faults("ms0", fault.Rule{Kind: fault.Delay, Dir: fault.Up, Delay: 30 * time.Microsecond, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCAck}}})
	for _, s := range h.machine().Shared {
		ms := h.rack.Host("ms0")
		mac, _ := h.rack.Spec.Neighbour(s.Owner)
		f := wire.Frame{Eth: wire.Ethernet{Src: ms.Spec.MAC, Dst: mac, Type: wire.EtherTypeIPv4}}
		f.IPv4 = wire.IPv4{TTL: 64, DF: true, Protocol: wire.ProtocolUDP, Src: ms.Addr().As4(), Dst: s.Owner.As4()}
		f.UDP = wire.UDP{SrcPort: 0xc000, DstPort: wire.UDPPort}
		f.BTH = wire.BTH{Opcode: wire.CNP, PKey: wire.DefaultPKey, DestQP: s.OwnQPN, BECN: true}
		f.Payload = make([]byte, 16)
		t.server.frames = append(t.server.frames, f.AppendTo(nil)) // t.server sends the frame when the first request has arrived
	}
	for _, a := range h.addAll(lockAt) {
		h.expect(a, "FETCH_ADD")
	}
	for i, n := range t.seen {
		if n == 0 {
			h.harm("client %d has requests there and was not told", i)
		}
	}
}

// notified counts the congestion notifications to each client.
func (t *holeTap) notified(ev *simnet.Event) {
	var f wire.Frame
	link := ev.Link()
	if ev.Kind == simnet.Sent && link[:2] == "cn" && ev.Dir() == fault.Down && wire.ParseFrame(ev.Frame, &f) == nil && f.BTH.Opcode == wire.CNP {
		t.seen[link[2]-'0']++
	}
}

// switchRestart: the switch restarts and loses its state while no request is in flight. The
// next request of a client must get an error at once, not after all retries, and must get no
// success unless it was executed.
func (h *holeRun) switchRestart() {
	h.warm(lockAt, 5)
	h.rack.CrashSwitch()
	h.rt.Sleep(100 * time.Microsecond)
	if h.err = h.rack.RestartSwitch(); h.err != nil {
		return
	}
	c := h.clients[1]
	a := c.cas(lockAt, 5, 6)
	switch a.wait(holePatience); {
	case !a.done || a.took > 10*rto:
		h.harm("client 1: %s", a)
	case a.status == verbs.Success:
		h.want(lockAt, 6, "the CAS is complete at its client")
	}
	if c.insist(lockAt, h.word(lockAt), 7) == nil {
		h.harm("client 1 has no answer after it has connected again")
	}
	h.want(lockAt, 7, "a CAS on the new connection")
}
