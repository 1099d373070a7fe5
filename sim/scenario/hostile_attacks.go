package scenario

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// attack is one attack on the clients and the switch. counted names reasons of drops and counters
// of refused packets. During the attack, their sum must grow by atLeast or more.
//
// If atNIC is not nil, the attack sends requests to queue pairs that do not exist while words are busy. Over congested
// links some arrive while no word is busy: the switch lets these through, NICs count them as atNIC says, and the words of
// the requests are executed by the server's NIC until no answer can come any more.
type attack struct {
	name    string
	do      func()
	counted []string
	atLeast uint64
	atNIC   []string
}

func (a *hostile) attacks() []attack {
	return []attack{
		{name: "spoofed source", do: a.spoof, counted: []string{"spoofed source"}, atLeast: 20},
		{name: "forged PSN", do: a.forgePSN, counted: []string{"psn gap"}, atLeast: 60},
		{name: "old PSN", do: a.forgeOldPSN, counted: []string{"psn too old"}, atLeast: 60},
		{name: "foreign key", do: a.foreignKey, counted: []string{"resp_access_err"}, atLeast: 3},
		{name: "replayed packets", do: a.replay, counted: []string{"spoofed source", "duplicates"}, atLeast: 80},
		{name: "forged answers", do: a.forgeAnswers, counted: []string{"spoofed source"}, atLeast: 20},
		{name: "answers to the switch", do: a.forgeToSwitch, counted: []string{"spoofed source"}, atLeast: 40},
		{name: "a WRITE over everything", do: a.writeFirst, counted: []string{"word busy", "unadmitted"}, atLeast: 50, atNIC: []string{"rx_unknown_qp"}},
		{name: "flood of queue pairs", do: a.flood, counted: []string{"word busy"}, atLeast: floodPackets, atNIC: []string{"rx_unknown_qp", "rx_wrong_peer"}},
	}
}

// change returns a copy of frame b that the function how has changed, with a correct ICRC; nil if b
// is no RoCEv2 frame.
func change(b []byte, how func(f *wire.Frame)) []byte {
	var f wire.Frame
	if wire.ParseFrame(b, &f) != nil {
		return nil
	}
	f.Payload = slices.Clone(f.Payload)
	how(&f)
	return f.AppendTo(nil)
}

// some returns the last packets of list that match, at most n of them, the newest first.
func some(list [][]byte, n int, match func(f *wire.Frame) bool) [][]byte {
	var out [][]byte
	var f wire.Frame
	for i := len(list) - 1; i >= 0 && len(out) < n; i-- {
		if wire.ParseFrame(list[i], &f) == nil && match(&f) {
			out = append(out, list[i])
		}
	}
	return out
}

func isAdd(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCFetchAdd }

func isAnswer(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCAtomicAck }

// copies sends n copies of packet b from the attacker's port. The function `how` changes copy k.
func (a *hostile) copies(b []byte, n int, how func(f *wire.Frame, k int)) {
	out := make([][]byte, n)
	for k := range out {
		out[k] = change(b, func(f *wire.Frame) { how(f, k) })
	}
	a.send(a.attacker, a.run.clients[7], out...)
}

// forge sends n copies of a FETCH_ADD that the attacker has seen, with the attacker's addresses.
// The function `how` changes copy k before it is sent.
func (a *hostile) forge(n int, how func(f *wire.Frame, k int)) {
	seen := some(a.seen, 1, isAdd)
	if len(seen) == 0 {
		a.run.harm("no packet to forge")
		return
	}
	h := a.run.rack.Host(attackerHost)
	a.copies(seen[0], n, func(f *wire.Frame, k int) {
		f.Eth.Src, f.IPv4.Src = h.Spec.MAC, h.Addr().As4()
		how(f, k)
	})
}

// spoof sends FETCH_ADDs with client 1's addresses from the attacker's port. Their PSNs begin with
// that of the last FETCH_ADD in a.seen.
func (a *hostile) spoof() {
	for _, b := range some(a.seen, 1, isAdd) {
		a.copies(b, 20, func(f *wire.Frame, k int) {
			f.BTH.PSN = f.BTH.PSN.Add(k)
			f.AtomicETH.SwapOrAdd = 1 << 40
		})
	}
}

// forgePSN sends requests on the attacker's connection. Their PSNs are all different and ahead of
// the expected one, so that the switch refuses each as a PSN gap.
func (a *hostile) forgePSN() { a.forgeAt(func(k int) int { return 1 + k*k*977 }) }

// forgeOldPSN sends requests on the attacker's connection. Their PSNs are all different and so far
// behind the expected one that the switch has no record of them.
func (a *hostile) forgeOldPSN() { a.forgeAt(func(k int) int { return -20000 - k*k*977 }) }

// forgeAt sends 60 FETCH_ADDs on the attacker's connection. The PSN of number k is ahead(k) after
// the expected one.
func (a *hostile) forgeAt(ahead func(k int) int) {
	attr, err := a.run.clients[7].end.qp.Query()
	if err != nil {
		a.run.harm("no connection to forge: %v", err)
		return
	}
	a.forge(60, func(f *wire.Frame, k int) {
		f.BTH.DestQP = attr.RTR.DestQPN
		f.BTH.PSN = attr.SendPSN.Add(ahead(k))
		f.AtomicETH.SwapOrAdd = 1 << 41
	})
}

// foreignKey sends requests with wrong R_Keys, which may be those of other clients, on connections
// of the attacker. Each connection ends with an error.
func (a *hostile) foreignKey() {
	c := a.run.clients[7]
	for k := range 3 {
		if err := c.connect(); err != nil {
			a.run.harm("the attacker does not get a connection: %v", err)
			return
		}
		bad := c.post(verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: 1 << 42, RKey: c.mem.rkey ^ uint32(1+k)}, lockAt, 8)
		bad.wait(holePatience)
		if bad.status == verbs.Success {
			a.run.harm("a foreign key works")
		}
	}
	if err := c.connect(); err != nil {
		a.run.harm("the attacker does not get a connection: %v", err)
	}
}

// replay sends old packets of client 1 again, from client 1's port and from the attacker's.
func (a *hostile) replay() {
	old := some(a.seen, 100, func(f *wire.Frame) bool { return f.BTH.DestQP > 1 })
	a.send(a.echo, a.run.clients[1], old...)
	a.send(a.attacker, a.run.clients[7], old...)
}

// forgeAnswers sends client 1 atomic acknowledgements from the attacker's port. Their PSNs begin
// with that of the last one in a.answers.
func (a *hostile) forgeAnswers() {
	for _, b := range some(a.answers, 1, isAnswer) {
		a.copies(b, 20, func(f *wire.Frame, k int) {
			f.BTH.PSN = f.BTH.PSN.Add(k)
			f.AtomicAck = 1 << 43
		})
	}
}

// forgeToSwitch sends, from the attacker's port, answers to requests on the switch's connections to
// servers: ACKs for requests that the server has not executed, and NAKs that would break these
// connections.
func (a *hostile) forgeToSwitch() {
	var out [][]byte
	sw := a.run.env.rack.Spec.Switch
	for _, s := range a.run.machine().Shared {
		for _, b := range some(a.answers, 1, isAnswer) {
			for k := range 40 {
				out = append(out, change(b, func(f *wire.Frame) {
					f.Eth.Dst = sw.MAC
					f.IPv4.Dst = sw.IPv4.As4()
					f.BTH.Opcode = wire.RCAck
					f.BTH.DestQP = s.OwnQPN
					f.BTH.PSN = s.NextPSN.Add(k - 20)
					if k%2 == 0 {
						f.AETH.Syndrome = wire.NakRemoteOp
					}
				}))
			}
		}
	}
	a.send(a.attacker, a.run.clients[7], out...)
}

// floodPackets is more than the number of flows that the switch can track.
const floodPackets = 12000

// flood sends requests to so many queue pairs that do not exist that the switch cannot track all
// flows. It leaves out the queue pairs of the attacker's own connections, of which the switch judges
// a request by its PSN.
func (a *hostile) flood() {
	a.attacker.batch = 8
	next := wire.QPN(0x100000)
	a.forge(floodPackets, func(f *wire.Frame, _ int) {
		for a.named[next] {
			next++
		}
		f.BTH.DestQP = next
		next++
	})
}

// writeFirst sends the first packets of WRITEs of a gigabyte, which would cover the whole memory,
// to queue pairs that do not exist.
func (a *hostile) writeFirst() {
	a.forge(50, func(f *wire.Frame, k int) {
		f.BTH.Opcode, f.BTH.DestQP = wire.RCWriteFirst, wire.QPN(0x900000+k)
		f.RETH = wire.RETH{VA: f.AtomicETH.VA - lockAt, RKey: f.AtomicETH.RKey, Length: 1 << 30}
		f.Payload = make([]byte, 1024)
	})
}
