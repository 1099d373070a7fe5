package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// sender is a host's NIC beside which somebody sends raw frames.
type sender struct {
	sim.Node
	frames [][]byte
	batch  int // frames of one instant
}

// Tick sends the next frames.
func (s *sender) Tick(now clock.Time, out *packetio.Batch) {
	if s.Node.Deadline() <= now {
		s.Node.Tick(now, out)
	}
	n := min(len(s.frames), max(1, s.batch))
	for _, b := range s.frames[:n] {
		out.Copy(packetio.Frame{Data: b})
	}
	s.frames = s.frames[n:]
}

// Deadline is now while there is something to send.
func (s *sender) Deadline() clock.Time {
	if len(s.frames) > 0 {
		return 0
	}
	return s.Node.Deadline()
}

// hostile is a run in which one host attacks the connections of the others. It has seen every packet on the links.
type hostile struct {
	*holeRun
	attacker *sender // on the attacker's link
	echo     *sender // on the link of client 1, for packets that were really its own
	seen     [][]byte
	answers  [][]byte
	record   bool
}

const attackerHost = "cn7"

// runHostile makes sure that no attack moves another client's data, fails another client's connection, or makes the
// switch's tables grow beyond their bounds; and that what was refused is counted.
func runHostile(e *env) error { return runHostileIn(e, modeHard) }

func runHostileIn(e *env, mode string) error {
	a := &hostile{}
	h := &holeRun{env: e, mode: mode, hole: &hole{action: "atomics", params: holeParams}}
	a.holeRun = h
	h.hole.rack.Wrap = func(name string, n sim.Node) sim.Node {
		switch name {
		case attackerHost:
			a.attacker = &sender{Node: n}
			return a.attacker
		case "cn1":
			a.echo = &sender{Node: n}
			return a.echo
		}
		return n
	}
	h.hole.script = func(*holeRun) { a.script() }
	e.spy = a.spy
	e.report.Plan = "cn7 attacks seven clients that count and lock through a switch in mode hard"
	if err := h.play(); err != nil {
		return err
	}
	if len(h.damage) > 0 {
		return fmt.Errorf("attacks did damage: %v", h.damage)
	}
	return nil
}

// spy keeps packets of client 1 and answers to it.
func (a *hostile) spy(ev *sim.Event) {
	const keep = 400
	if !a.record || ev.Kind != sim.Sent || ev.Link() != "cn1" {
		return
	}
	list := &a.seen
	if ev.Dir() == fault.Down {
		list = &a.answers
	}
	if len(*list) < keep {
		*list = append(*list, slices.Clone(ev.Frame))
	}
}

// send lets frames leave a host.
func (a *hostile) send(s *sender, from *holeClient, frames ...[]byte) {
	s.frames = append(s.frames, frames...)
	_, _ = from.end.qp.Query() // a step of the host: its deadline is asked for
}

func (a *hostile) script() {
	a.warm(lockAt, 0)
	a.record = true
	total := a.traffic(40)
	a.record = false
	for _, attack := range []struct {
		name string
		do   func()
	}{
		{"spoofed source", a.spoof},
		{"forged PSN", a.forgePSN},
		{"foreign key", a.foreignKey},
		{"replayed packets", a.replay},
		{"forged answers", a.forgeAnswers},
		{"answers to the switch", a.forgeToSwitch},
		{"flood of queue pairs", a.flood},
	} {
		before, damage := a.refused(), len(a.damage)
		attack.do()
		total += a.traffic(30)
		a.rt.Sleep(20 * time.Millisecond) // retransmissions have come
		a.want(lockAt, uint64(total), "the sum of all additions, after: "+attack.name)
		n := a.refused() - before
		if n == 0 {
			a.harm("%s: nothing was refused and counted", attack.name)
		}
		rows, most := a.rows()
		a.env.note("%s: %d packets refused; %d connections tracked, at most %d; damage: %d", attack.name, n, rows, most, len(a.damage)-damage)
		if rows > most {
			a.harm("%s: %d connections tracked, the bound is %d", attack.name, rows, most)
		}
	}
	a.lockRound()
}

// traffic lets every client but the attacker add 1 several times; the result is what they added. A client that fails is
// damage.
func (a *hostile) traffic(rounds int) int {
	n := 0
	for range rounds {
		var all []*answer
		for _, c := range a.clients[:7] {
			all = append(all, c.add(lockAt, 1))
		}
		for _, o := range all {
			a.expect(o, "FETCH_ADD of another client")
			n++
		}
	}
	return n
}

// lockRound shows that locks still work.
func (a *hostile) lockRound() {
	a.expect(a.clients[2].cas(otherAt, a.word(otherAt), 77), "CAS")
	in := a.clients[3].cas(otherAt, 0, 88)
	a.expect(in, "CAS in vain")
	a.expect(a.clients[2].write(otherAt, 0, 8), "release")
	next := a.clients[3].cas(otherAt, 0, 88)
	a.expect(next, "CAS")
	if in.prior() != 77 || next.prior() != 0 {
		a.harm("a lock held by 77: found %d, and %d after its release", in.prior(), next.prior())
	}
}

// refused is what the switch and the NICs have refused so far.
func (a *hostile) refused() uint64 {
	n := uint64(0)
	for i := range a.rack.Hosts() {
		for _, d := range a.rack.Switch().Port(i).Drops {
			n += d
		}
	}
	for _, h := range a.rack.Hosts() {
		c := h.Counters()
		n += c.RxUnknownQP + c.RxWrongPeer + c.DuplicateRequest + c.DuplicateAck + c.RespAccessErr + c.OutOfSequence
	}
	for _, c := range a.machine().Counters {
		if c.Name == "duplicates_ignored" || c.Name == "answered_again" {
			n += c.Value
		}
	}
	return n
}

// rows is how many connections the switch tracks, and its bound.
func (a *hostile) rows() (n, most int) {
	p, ok := a.rack.Program().(*serialize.Program)
	if !ok {
		return 0, 0
	}
	return len(p.Connections().List(a.rack.Now())), p.Connections().MaxRows()
}

// change is a copy of a frame with something else in it, and a right ICRC.
func change(b []byte, how func(f *wire.Frame)) []byte {
	var f wire.Frame
	if wire.ParseFrame(b, &f) != nil {
		return nil
	}
	f.Payload = slices.Clone(f.Payload)
	how(&f)
	return f.AppendTo(nil)
}

// some are packets that match, the last ones, at most n.
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

// spoof sends requests of client 1 from the attacker's port, with the next PSNs, and WRITEs to the word.
func (a *hostile) spoof() {
	var out [][]byte
	for i, b := range some(a.seen, 1, isAdd) {
		for k := range 20 {
			out = append(out, change(b, func(f *wire.Frame) {
				f.BTH.PSN = f.BTH.PSN.Add(i + k)
				f.AtomicETH.SwapOrAdd = 1 << 40
			}))
		}
	}
	a.send(a.attacker, a.clients[7], out...)
}

// forgePSN sends packets on the attacker's own connection with PSNs from all over, and then none are refused twice.
func (a *hostile) forgePSN() {
	own := some(a.seen, 1, isAdd)
	attr, err := a.clients[7].end.qp.Query()
	if err != nil || len(own) == 0 {
		a.harm("no connection to forge: %v", err)
		return
	}
	h := a.rack.Host(attackerHost)
	var out [][]byte
	for k := range 60 {
		out = append(out, change(own[0], func(f *wire.Frame) {
			f.Eth.Src = h.Spec.MAC
			f.IPv4.Src = h.Addr().As4()
			f.BTH.DestQP = attr.RTR.DestQPN
			f.BTH.PSN = attr.SendPSN.Add(1 + k*k*977)
			f.AtomicETH.SwapOrAdd = 1 << 41
		}))
	}
	a.send(a.attacker, a.clients[7], out...)
}

// foreignKey asks under keys that the attacker was not given, on a connection of its own that dies of it.
func (a *hostile) foreignKey() {
	c := a.clients[7]
	for k := range 3 {
		if err := c.connect(); err != nil {
			a.harm("the attacker does not get a connection: %v", err)
			return
		}
		bad := c.post(verbs.SendWR{Op: verbs.OpFetchAdd, CompareAdd: 1 << 42, RKey: c.mem.rkey ^ uint32(1+k)}, lockAt, 8)
		bad.wait(holePatience)
		if bad.status == verbs.Success {
			a.harm("a foreign key works")
		}
	}
	if err := c.connect(); err != nil {
		a.harm("the attacker does not get a connection: %v", err)
	}
}

// replay sends old packets of client 1 again, from its own port and from the attacker's.
func (a *hostile) replay() {
	old := some(a.seen, 100, func(f *wire.Frame) bool { return f.BTH.DestQP > 1 })
	a.send(a.echo, a.clients[1], old...)
	a.send(a.attacker, a.clients[7], old...)
}

// forgeAnswers sends answers to client 1 that say what the server did not.
func (a *hostile) forgeAnswers() {
	var out [][]byte
	for _, b := range some(a.answers, 1, func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCAtomicAck }) {
		for k := range 20 {
			out = append(out, change(b, func(f *wire.Frame) {
				f.BTH.PSN = f.BTH.PSN.Add(k)
				f.AtomicAck = 1 << 43
			}))
		}
	}
	a.send(a.attacker, a.clients[7], out...)
}

// forgeToSwitch acknowledges requests on the switch's own connections that the server has not executed, and breaks them.
func (a *hostile) forgeToSwitch() {
	var out [][]byte
	sw := a.env.rack.Spec.Switch
	for _, s := range a.machine().Shared {
		for _, b := range some(a.answers, 1, func(f *wire.Frame) bool { return f.BTH.Opcode == wire.RCAtomicAck }) {
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
	a.send(a.attacker, a.clients[7], out...)
}

// flood asks for queue pairs that are not there, more than the switch has rows.
func (a *hostile) flood() {
	h := a.rack.Host(attackerHost)
	own := some(a.seen, 1, isAdd)
	if len(own) == 0 {
		a.harm("no packet to flood with")
		return
	}
	a.attacker.batch = 8
	var out [][]byte
	for k := range 12000 {
		out = append(out, change(own[0], func(f *wire.Frame) {
			f.Eth.Src = h.Spec.MAC
			f.IPv4.Src = h.Addr().As4()
			f.BTH.DestQP = wire.QPN(0x100000 + k)
		}))
	}
	a.send(a.attacker, a.clients[7], out...)
}
