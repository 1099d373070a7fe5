package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
)

// sender is a host's NIC together with a source of raw frames, such as an attacker, on the same
// link.
type sender struct {
	simnet.Node
	frames [][]byte
	batch  int        // frames that Tick sends at one instant; 0 means one
	rate   int64      // of the link in bits a second, at which raw frames follow each other; 0 means no limit
	next   clock.Time // no raw frame before this time
}

// Tick runs the NIC's timers, and sends the next raw frames.
func (s *sender) Tick(now clock.Time, out *packetio.Batch) {
	if s.Node.Deadline() <= now {
		s.Node.Tick(now, out)
	}
	if s.next > now {
		return
	}
	n := min(len(s.frames), max(1, s.batch))
	bytes := 0
	for _, b := range s.frames[:n] {
		out.Copy(packetio.Frame{Data: b})
		bytes += len(b) + portqueue.Overhead
	}
	s.frames = s.frames[n:]
	if s.rate > 0 {
		s.next = now.Add(time.Duration(int64(bytes) * 8 * int64(time.Second) / s.rate))
	}
}

// Deadline returns when raw frames that wait may be sent: without a rate a time in the past, which makes Tick due at once.
func (s *sender) Deadline() clock.Time {
	if len(s.frames) > 0 {
		return clock.Min(s.next, s.Node.Deadline())
	}
	return s.Node.Deadline()
}

// hostile is a run in which one host attacks the connections of the others. The attacker can see
// those packets of client 1 that the method spy has stored: seen has packets that the client sent,
// answers has packets to the client. named has the queue pairs to which the attacker's host has sent
// packets, on any server.
type hostile struct {
	run      *holeRun
	attacker *sender // sends the attacker's frames, on the link of the attacker's host
	echo     *sender // on the link of client 1, to repeat packets that client 1 has sent
	seen     [][]byte
	answers  [][]byte
	named    map[wire.QPN]bool
}

const attackerHost = "cn7"

// play checks that no attack changes the data of another client, makes a connection of
// another client fail, or makes the switch's tables exceed their bounds. It also checks that the
// refused packets are counted.
func (a *hostile) play(e *env) error { return a.playIn(e, recordedHardened) }

func (a *hostile) playIn(e *env, mode string) error {
	*a = hostile{named: make(map[wire.QPN]bool)}
	h := &holeRun{env: e, mode: mode, hole: &hole{action: "atomics", params: holeParams}}
	a.run = h
	h.hole.rack.Wrap = func(name string, n simnet.Node) simnet.Node {
		switch name {
		case attackerHost:
			a.attacker = &sender{Node: n}
			if e.congested != nil {
				a.attacker.rate = e.congested.rate
			}
			return a.attacker
		case "cn1":
			a.echo = &sender{Node: n}
			return a.echo
		}
		return n
	}
	h.hole.script = func(*holeRun) { a.script() }
	e.spy = a.spy
	e.report.Plan = "cn7 attacks seven clients that count and lock through a hardened switch"
	if err := h.play(); err != nil {
		return err
	}
	if g := e.congested; g != nil {
		if err := cmp.Or(e.rack.Settle(settleTime), g.checkRest(e.rack)); err != nil {
			return err
		}
	}
	if len(h.damage) > 0 {
		const shown = 5
		var kinds []string
		for _, d := range h.damage {
			if !slices.Contains(kinds, d) {
				kinds = append(kinds, d)
			}
		}
		first := strings.Join(kinds[:min(shown, len(kinds))], "; ")
		return fmt.Errorf("attacks did damage %d times: %s", len(h.damage), first)
	}
	return nil
}

// spy stores the packets that client 1 sends in a.seen, and the packets to client 1 in a.answers. It
// keeps the last 400 of each, so that forged packets can have PSNs that client 1 uses next. It adds
// to a.named.
func (a *hostile) spy(ev *simnet.Event) {
	const keep = 400
	if ev.Kind == simnet.Sent && ev.Link() == attackerHost && ev.Dir() == fault.Up {
		var f wire.Frame
		if wire.ParseFrame(ev.Frame, &f) == nil {
			a.named[f.BTH.DestQP] = true
		}
	}
	a.spyPauses(ev)
	if ev.Kind != simnet.Sent || ev.Link() != "cn1" {
		return
	}
	list := &a.seen
	if ev.Dir() == fault.Down {
		list = &a.answers
	}
	if len(*list) == keep {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, slices.Clone(ev.Frame))
}

// send sends raw frames by the sender s, which is on the link of the host of client `from`.
func (a *hostile) send(s *sender, from *holeClient, frames ...[]byte) {
	s.frames = append(s.frames, frames...)
	_, _ = from.end.qp.Query() // makes the host take a step, after which the simulator reads the deadline of s
}

func (a *hostile) script() {
	a.run.warm(lockAt, 0)
	for i := range knownWords {
		a.run.warm(crowdWord(1+i), 0)
	}
	total := a.traffic(40)
	for _, k := range append(a.attacks(), a.congestionAttacks()...) {
		before, damage := a.refused(), len(a.run.damage)
		replaced := a.replacedSince(0)
		k.do()
		total += a.traffic(trafficRounds)
		for len(a.attacker.frames) > 0 {
			a.run.rt.Sleep(time.Millisecond)
		}
		a.run.rt.Sleep(20 * time.Millisecond) // so long that all retransmissions are over
		a.run.want(lockAt, uint64(total), "the sum of all additions, after: "+k.name)
		where := a.judge(&k, before)
		if a.run.mode == recordedHardened && a.replacedSince(replaced) < trafficRounds*7/2 {
			total = a.later(&k, total, replaced)
		}
		rows, most := a.rows()
		a.run.env.note("%s: refused: %s; %d flows tracked, at most %d without a peer for one host; damage: %d", k.name, strings.Join(where, ", "), rows, most, len(a.run.damage)-damage)
		if rows > most+settledRows {
			a.run.harm("%s: %d flows tracked, the bound is %d", k.name, rows, most+settledRows)
		}
	}
	a.lockRound()
}

// judge records as damage that too few packets of an attack were refused; before is what was refused before it. It
// returns what has grown.
func (a *hostile) judge(k *attack, before map[string]uint64) (where []string) {
	bySwitch, byNIC := uint64(0), uint64(0)
	for name, v := range a.refused() {
		if v -= before[name]; v == 0 {
			continue
		}
		where = append(where, fmt.Sprintf("%s %d", name, v))
		switch {
		case slices.Contains(k.counted, name):
			bySwitch += v
		case slices.Contains(k.atNIC, name) && a.run.env.congested != nil:
			byNIC += v
		}
	}
	slices.Sort(where)
	if a.run.mode != modeForward && (bySwitch == 0 || bySwitch+byNIC < k.atLeast) {
		a.run.harm("%s: %d packets were refused and counted as %v, and %d by NICs, want %d; grown: %v", k.name, bySwitch, k.counted, byNIC, k.atLeast, where)
	}
	return where
}

// later checks that atomics are replaced again once requests that no NIC will answer can no longer arrive. The first
// atomic then begins the wait for packets that are on their way. replaced is how many were replaced before the attack, and
// total the sum of all additions so far; later returns the sum with its own.
func (a *hostile) later(k *attack, total int, replaced uint64) int {
	got := a.replacedSince(replaced)
	if k.atNIC == nil || a.run.env.congested == nil {
		a.run.harm("%s: only %d of %d additions were replaced", k.name, got, trafficRounds*7)
		return total
	}
	a.run.env.note("%s: %d of %d additions were replaced, and the rest is checked %v later", k.name, got, trafficRounds*7, unansweredFor)
	a.run.rt.Sleep(unansweredFor)
	total += a.traffic(1)
	a.run.rt.Sleep(20 * time.Millisecond)
	before := a.replacedSince(0)
	total += a.traffic(trafficRounds)
	a.run.want(lockAt, uint64(total), "the sum of all additions, later after: "+k.name)
	if got := a.replacedSince(before); got < trafficRounds*7/2 {
		a.run.harm("%s: only %d of %d additions were replaced, also later", k.name, got, trafficRounds*7)
	}
	return total
}

// unansweredFor is longer than the switch counts a WRITE without an answer as in flight: two intervals of
// atomiccache.Config.Budget.
const unansweredFor = 11 * time.Second

// replacedSince returns how many atomics the switch has replaced since their number was n.
func (a *hostile) replacedSince(n uint64) uint64 { return countersOf(a.run.machine())["replaced"] - n }

// knownWords is how many words besides the one at lockAt the switch knows when the attacks begin.
const knownWords = 16

// trafficRounds is how often each client adds 1 after an attack.
const trafficRounds = 30

// traffic makes every client except the attacker add 1 to a word by FAA, `rounds` times. It returns
// the number of FAAs of all clients. An FAA that fails is recorded as damage.
func (a *hostile) traffic(rounds int) int {
	n := 0
	for range rounds {
		var all []*answer
		for _, c := range a.run.clients[:7] {
			all = append(all, c.add(lockAt, 1))
		}
		for _, o := range all {
			a.run.expect(o, "FETCH_ADD of another client")
			n++
		}
	}
	return n
}

// lockRound checks after the attacks that clients can still take a lock by CAS and release it by a
// WRITE.
func (a *hostile) lockRound() {
	a.run.expect(a.run.clients[2].cas(otherAt, a.run.word(otherAt), 77), "CAS")
	in := a.run.clients[3].cas(otherAt, 0, 88)
	a.run.expect(in, "CAS that fails")
	a.run.expect(a.run.clients[2].write(otherAt, 0, 8), "release")
	next := a.run.clients[3].cas(otherAt, 0, 88)
	a.run.expect(next, "CAS")
	if in.prior() != 77 || next.prior() != 0 {
		a.run.harm("a lock held by 77: found %d, and %d after its release", in.prior(), next.prior())
	}
}

// refused returns how many packets the switch and the NICs have refused so far, by the name of the
// switch's reason or of the counter.
func (a *hostile) refused() map[string]uint64 {
	out := make(map[string]uint64)
	for i := range a.run.rack.Hosts() {
		for reason, d := range a.run.rack.Switch().Port(i).Drops {
			out[string(reason)] += d
		}
	}
	for _, h := range a.run.rack.Hosts() {
		c := h.Counters()
		out["rx_unknown_qp"] += c.RxUnknownQP
		out["rx_wrong_peer"] += c.RxWrongPeer
		out["duplicate_request"] += c.DuplicateRequest
		out["duplicate_ack"] += c.DuplicateAck
		out["resp_access_err"] += c.RespAccessErr
		out["out_of_sequence"] += c.OutOfSequence
		out["rp_cnp_ignored"] += c.RxCnpIgnored
	}
	out["pause frames"] = a.pauseFrames()
	maps.Copy(out, countersOf(a.run.machine()))
	return out
}

// settledRows bounds the number of flows that the switch tracks for the connections of the clients
// and servers of a run.
const settledRows = 64

// rows returns n, the number of flows that the switch tracks, and most, the bound on flows of one
// host whose other direction the switch does not know yet.
func (a *hostile) rows() (n, most int) {
	p, ok := a.run.rack.Program().(*swordbox.Program)
	if !ok {
		return 0, 0
	}
	return len(p.Connections().List(a.run.rack.Now())), p.Connections().MaxLearning() / 2
}
