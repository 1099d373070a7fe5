package scenario

import (
	"slices"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// congestionAttacks are those that pretend congestion or losses: they would slow down or stop the connections of
// others, or make them send again.
func (a *hostile) congestionAttacks() []attack {
	return []attack{
		{name: "forged notifications", do: a.forgeCNPs, counted: []string{"spoofed source", "strangers", "rp_cnp_ignored"}, atLeast: 3 * forgedEach},
		{name: "pause frames", do: a.forgePauses, counted: []string{"link local", "pause frames"}, atLeast: forgedPauses},
		{name: "forged NAKs", do: a.forgeNAKs, counted: []string{"spoofed source", "rx_wrong_peer"}, atLeast: 2 * forgedEach},
	}
}

const (
	forgedEach   = 100 // forged packets of a kind
	forgedPauses = 2000
)

// forgeCNPs sends congestion notifications for the queue pair of client 1, with the address of its peer and with the
// attacker's own, and with its own for each connection of the switch.
func (a *hostile) forgeCNPs() {
	h := a.run.rack.Host(attackerHost)
	cnp := func(f *wire.Frame) { f.BTH.Opcode, f.BTH.BECN, f.Payload = wire.CNP, true, make([]byte, 16) }
	for _, b := range some(a.answers, 1, isAnswer) {
		a.copies(b, 2*forgedEach, func(f *wire.Frame, k int) {
			if cnp(f); k%2 == 0 {
				f.Eth.Src, f.IPv4.Src = h.Spec.MAC, h.Addr().As4()
			}
		})
		shared := a.run.machine().Shared
		a.copies(b, forgedEach, func(f *wire.Frame, k int) {
			cnp(f)
			f.Eth.Src, f.IPv4.Src = h.Spec.MAC, h.Addr().As4()
			if len(shared) > 0 {
				sw := a.run.rack.Spec.Switch
				f.Eth.Dst, f.IPv4.Dst, f.BTH.DestQP = sw.MAC, sw.IPv4.As4(), shared[k%len(shared)].OwnQPN
			}
		})
	}
}

// forgePauses sends frames that stop all priorities for the longest time, global ones, and cut ones. They must not
// leave the attacker's link.
func (a *hostile) forgePauses() {
	a.attacker.batch = 8
	p := wire.Pause{Src: a.run.rack.Host(attackerHost).Spec.MAC, Enabled: 0xff}
	for i := range p.Time {
		p.Time[i] = 0xffff
	}
	frames := make([][]byte, forgedPauses)
	for k := range frames {
		p.Global = k%3 == 1
		if frames[k] = p.AppendTo(nil); k%3 == 2 {
			frames[k] = frames[k][:20+k%40]
		}
	}
	a.send(a.attacker, a.run.clients[7], frames...)
}

// forgeNAKs sends client 1 NAKs that ask for all packets again, or end the connection, with the address of its peer
// and with the attacker's own.
func (a *hostile) forgeNAKs() {
	h := a.run.rack.Host(attackerHost)
	syndromes := []wire.Syndrome{wire.NakPSNSequence, wire.NakRemoteOp, wire.NakRemoteAccess}
	for _, b := range some(a.answers, 1, isAnswer) {
		a.copies(b, 2*forgedEach, func(f *wire.Frame, k int) {
			f.BTH.Opcode, f.AETH.Syndrome = wire.RCAck, syndromes[k%len(syndromes)]
			f.BTH.PSN = f.BTH.PSN.Add(k - forgedEach)
			if k%2 == 0 {
				f.Eth.Src, f.IPv4.Src = h.Spec.MAC, h.Addr().As4()
			}
		})
	}
}

// pauseFrames returns how many pause frames the switch's queues have got from the attacker's host.
func (a *hostile) pauseFrames() (n uint64) {
	q := a.run.rack.Queues(0)
	if q == nil {
		return 0
	}
	global, malformed := q.Pauses()
	i := slices.IndexFunc(a.run.rack.Hosts(), func(h *simrack.Host) bool { return h.Spec.Name == attackerHost })
	for _, st := range q.Port(a.run.rack.Now(), i) {
		n = max(n, st.RxPause)
	}
	return n + global + malformed
}

// spyPauses records as damage a pause frame of the attacker's host on another host's link.
func (a *hostile) spyPauses(ev *simnet.Event) {
	if ev.Kind == simnet.Sent && ev.Link() != attackerHost && ev.Dir() == fault.Down && wire.IsPause(ev.Frame) &&
		wire.MAC(ev.Frame[6:]) == a.run.rack.Host(attackerHost).Spec.MAC {
		a.run.harm("a pause frame of the attacker reaches %s", ev.Link())
	}
}
