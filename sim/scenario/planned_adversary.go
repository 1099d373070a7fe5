package scenario

import (
	"bytes"
	"hash/crc32"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// adversary executes the acts of a schedule (such as losing a packet) on the links of a small rack.
// It counts only packets of the phase, the time from smallReady on. Packets before it, which
// connect the clients and prepare the switch, pass.
type adversary struct {
	acts  []act
	rack  *simrack.Rack
	rules func(n int) // gives the switch the n-th list of rules of the setup

	on    bool                    // true in the phase, from smallReady on
	count [len(halves)]int        // by direction: the number of packets of the phase
	deaf  [len(halves)]clock.Time // by direction: the time until which it loses all packets
	held  []*heldBack
	// entered are the packets of the phase (the time from smallReady on) that have entered a link,
	// in their order. reached is the length of entered when the last act was done.
	entered []place
	reached int
	done    int    // number of acts that were done
	steps   uint32 // steps (frames and ticks) that the switch has made from smallReady on
	// digest covers all packets that were delivered in the phase (from smallReady on), in order.
	// Two runs with the same digest have delivered the same packets in the same order, even if
	// their acts differ.
	digest uint64
}

// place identifies a packet of the phase (the time from smallReady on) by its direction of a link
// and its number there.
type place struct {
	half  uint8
	index uint16
	// step is the number of steps that the switch had made before the packet entered.
	step uint32
}

// lateLimit bounds how long the adversary delays a packet. Networks bound the lifetime of packets,
// and the switch relies on that after a change of rules.
const lateLimit = 5 * time.Millisecond

// heldBack is a packet that the adversary holds back until n later packets of its direction have
// passed, or for lateLimit.
type heldBack struct {
	sent  bool
	half  int
	n     int
	frame []byte
	rule  []string
}

// maxPlaces bounds the packets of one direction in the list adversary.entered, so that their
// indices fit uint16. Later packets are only counted.
const maxPlaces = 1 << 16

// install puts the adversary between hosts and switch, as the faults of all links.
func (a *adversary) install(r *simrack.Rack) {
	a.rack = r
	for i, h := range r.Hosts() {
		h.Link().SetFaults(a.verdict(2*i), a.verdict(2*i+1))
	}
}

// verdict returns the function that decides about each packet of one direction.
func (a *adversary) verdict(half int) simnet.Verdict {
	return func(now clock.Time, frame []byte) fault.Verdict {
		if !a.on || !isPlanned(frame) {
			return fault.Verdict{}
		}
		return a.enter(half, now, frame)
	}
}

func (a *adversary) enter(half int, now clock.Time, frame []byte) (v fault.Verdict) {
	a.count[half]++
	index := a.count[half]
	if index < maxPlaces {
		a.entered = append(a.entered, place{uint8(half), uint16(index), a.steps})
	}
	a.overtaken(half)
	if now < a.deaf[half] {
		v = fault.Verdict{Drop: true, Rules: []string{"silence"}}
	}
	for i := range a.acts {
		if x := &a.acts[i]; x.half == half && x.index == index {
			a.do(x, now, frame, &v)
		}
	}
	return v
}

// do carries out act x on the packet that enters a link now. *v is the verdict on this packet: do
// changes it if the act drops or copies the packet.
func (a *adversary) do(x *act, now clock.Time, frame []byte, v *fault.Verdict) {
	a.done++
	a.reached = len(a.entered)
	rule := []string{x.String()}
	switch x.kind {
	case drop:
		*v = fault.Verdict{Drop: true, Rules: rule}
	case late:
		*v = fault.Verdict{Drop: true, Rules: rule}
		a.keep(x, frame)
	case twice:
		v.Rules = rule
		if x.n == 0 {
			v.Copies++
		} else {
			a.keep(x, frame)
		}
	case silence:
		*v = fault.Verdict{Drop: true, Rules: rule}
		a.deaf[x.half] = now.Add(time.Duration(x.n) * time.Millisecond)
	case newRules:
		a.mix(uint64(x.n) | 1<<40)
		a.rack.At(now, func() { a.rules(x.n) })
	case actKinds:
	}
}

// keep holds a copy of a packet back for act x.
func (a *adversary) keep(x *act, frame []byte) {
	h := &heldBack{half: x.half, n: x.n, frame: bytes.Clone(frame), rule: []string{x.String()}}
	a.held = append(a.held, h)
	a.rack.At(a.rack.Now().Add(lateLimit), func() { a.send(h) })
}

// overtaken is called when a packet enters a link; half is the direction of this link. overtaken
// counts the packet, and sends behind it those held-back packets of this direction that enough
// later packets have overtaken by now.
func (a *adversary) overtaken(half int) {
	for _, h := range a.held {
		if h.half != half {
			continue
		}
		if h.n--; h.n == 0 {
			a.rack.At(a.rack.Now(), func() { a.send(h) })
		}
	}
}

// send puts on its link a packet that the adversary has held back, unless it was sent before.
func (a *adversary) send(h *heldBack) {
	if !h.sent {
		h.sent = true
		a.rack.Hosts()[h.half/2].Inject([...]fault.Dir{fault.Up, fault.Down}[h.half%2], h.frame, h.rule)
	}
}

// release releases all packets that are held back. It is called when the clients have ended.
func (a *adversary) release() {
	for _, h := range a.held {
		a.rack.At(a.rack.Now(), func() { a.send(h) })
	}
}

// delivered adds to the digest a packet that has reached a host or the switch.
func (a *adversary) delivered(ev *simnet.Event) {
	if !a.on || ev.Kind != simnet.Delivered || !isPlanned(ev.Frame) {
		return
	}
	where := uint64(ev.Link()[2]-'0') << 1 // number of the link and direction, in three bits
	if ev.Link() == server {
		where |= 4
	}
	if ev.Dir() == fault.Up {
		where |= 1
	}
	a.mix(uint64(crc32.ChecksumIEEE(ev.Frame[bthAt:]))<<3 | where)
}

func (a *adversary) mix(v uint64) {
	a.digest = (a.digest ^ v) * digestPrime
	a.digest ^= a.digest >> 31
}

// digestPrime is the 64-bit FNV prime.
const digestPrime = 1099511628211

// bthAt is the offset of the base transport header in a frame of the small rack, which has only
// IPv4.
const bthAt = 14 + 20 + 8

// isPlanned reports whether a packet belongs to a connection. Only these packets are planned; those
// of the connection manager are not.
func isPlanned(frame []byte) bool {
	if len(frame) < bthAt+12 {
		return false
	}
	to := wire.QPN(frame[bthAt+5])<<16 | wire.QPN(frame[bthAt+6])<<8 | wire.QPN(frame[bthAt+7])
	return frame[12] == 0x08 && frame[13] == 0 && to > 1
}
