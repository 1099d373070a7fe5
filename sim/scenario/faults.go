package scenario

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// faultMix is a kind of faults of a link; the function rules draws the fault rules. A rule that
// names no direction applies to both.
type faultMix struct {
	name  string
	slow  bool // the links of the rack have a rate and a short queue, which overflows
	rules func(d *draw) []fault.Rule
}

// faultMixes lists the kinds of faults that links have in a run. draw.faultMix draws each of them with
// the same probability.
func faultMixes() []faultMix {
	some := func(kind fault.Kind, most float64) func(*draw) fault.Rule {
		return func(d *draw) fault.Rule { return d.fault(kind, most) }
	}
	list := func(makers ...func(*draw) fault.Rule) func(*draw) []fault.Rule {
		return func(d *draw) []fault.Rule {
			var out []fault.Rule
			for _, f := range makers {
				out = append(out, f(d))
			}
			return out
		}
	}
	reorder := func(most float64) func(*draw) fault.Rule {
		return func(d *draw) fault.Rule {
			r := d.fault(fault.Reorder, most)
			r.Delay = d.span(time.Microsecond, 50*time.Microsecond)
			return r
		}
	}
	jitter := func(d *draw) fault.Rule {
		delay := d.span(0, 30*time.Microsecond)
		return fault.Rule{Kind: fault.Delay, Delay: delay, Jitter: d.span(1, 30*time.Microsecond)}
	}
	return []faultMix{
		{name: "none", rules: list()},
		{name: "loss", rules: list(some(fault.Loss, 0.1))},
		{name: "loss10", rules: list(func(*draw) fault.Rule { return fault.Rule{Kind: fault.Loss, Probability: 0.1} })},
		{name: "one-way", rules: list(func(d *draw) fault.Rule {
			r := d.fault(fault.Loss, 0.2)
			r.Dir = one(d, fault.Up, fault.Down)
			return r
		})},
		{name: "duplicate", rules: list(some(fault.Duplicate, 0.5))},
		// The probability is at most 15 %, so that hardly any packet is overtaken in eight
		// transmissions in a row. A requester must give up after eight sequence NAKs without
		// progress.
		{name: "reorder", rules: list(reorder(0.15))},
		{name: "jitter", rules: list(jitter)},
		{name: "corrupt", rules: list(some(fault.Corrupt, 0.1))},
		{name: "all", rules: list(some(fault.Loss, 0.04), some(fault.Duplicate, 0.1), reorder(0.1), jitter, some(fault.Corrupt, 0.04))},
		{name: "exact", rules: (*draw).exactRules},
		{name: "slow", slow: true, rules: list()},
		{name: "slow+loss", slow: true, rules: list(some(fault.Loss, 0.05))},
	}
}

func (d *draw) faultMix() faultMix {
	mixes := faultMixes()
	return mixes[d.IntN(len(mixes))]
}

// links draws fault rules for the links of the hosts, for a history of a store. Each link has
// no faults with a probability of 40 % or more. No link is slow, and no rule is for single packets.
// links also returns the names of the mixes, separated by spaces.
func (d *draw) links(hosts []string) (names string, rules []fault.Rule) {
	mixes := slices.DeleteFunc(faultMixes(), func(m faultMix) bool { return m.slow || m.name == "exact" })
	for _, h := range hosts {
		m := mixes[d.IntN(len(mixes))]
		if d.chance(0.4) {
			m = mixes[0]
		}
		names += m.name + " "
		for _, r := range m.rules(d) {
			r.Link = h
			rules = append(rules, r)
		}
	}
	return names, rules
}

// exactRules draws rules that lose, duplicate or corrupt single packets with certain opcodes. Each
// rule hits one packet and up to two retransmissions of it.
func (d *draw) exactRules() []fault.Rule {
	var out []fault.Rule
	for range d.between(1, 6) {
		r := fault.Rule{Kind: one(d, fault.Loss, fault.Loss, fault.Duplicate, fault.Corrupt)}
		r.Match.Opcodes = []wire.Opcode{one(
			d, wire.RCAck, wire.RCAtomicAck, wire.RCCmpSwap, wire.RCFetchAdd, wire.RCReadRequest, wire.RCReadResponseFirst,
			wire.RCReadResponseMiddle, wire.RCReadResponseLast, wire.RCReadResponseOnly, wire.RCWriteFirst,
			wire.RCWriteMiddle, wire.RCWriteLast, wire.RCWriteOnly, wire.RCWriteLastImm, wire.RCSendFirst, wire.RCSendLast,
			wire.RCSendOnly, wire.RCSendOnlyInv,
		)}
		r.Match.SamePacket = true
		r.Count = d.between(1, 3)
		out = append(out, r)
	}
	return out
}

// draw makes the random choices of a run, from its seed.
type draw struct{ *rand.Rand }

func newDraw(seed uint64) *draw { return &draw{rand.New(rand.NewPCG(seed, 0x7363656e))} }

// Each of these numbers is XORed with the seed of a run. The result is the seed of a second
// sequence of random numbers, which decides about one part of a plan. So such a part can be added
// to a plan without a change of its other parts.
const (
	calmLane    = 0x63616c6d     // whether a trial has no fault, so that every operation must be answered
	serverLane  = 0x73727672     // the faults of a store's servers
	ternaryLane = 0x7e41 << 32   // a table with masks
	windowLane  = 0x317865 << 32 // a wide window (see widen); chosen so that no seed in tests and documents gets one
	deathLane   = 0xdead << 32   // the deaths of clients of fusee
	growthLane  = 0x6707 << 32   // whether the index of fusee grows
	masterLane  = 0x3a57e5 << 32 // masters of fusee, and crashes of memory servers
	returnLane  = 0x2e7a21 << 32 // further crashes of a run of fusee (see tableBlow)
	switchLane  = 0x5c0ff << 32  // crashes of the switch of fusee

	congestionLane = 0xc0619 << 32  // queues and congestion control (see drawCongestion)
	recoveryLane   = 0x5e1ec7 << 32 // how queue pairs recover from losses
)

// between returns a number from low to high.
func (d *draw) between(low, high int) int { return low + d.IntN(high-low+1) }

// one returns an element of the list; all are equally probable.
func one[T any](d *draw, list ...T) T { return list[d.IntN(len(list))] }

// chance returns true with probability p.
func (d *draw) chance(p float64) bool { return d.Float64() < p }

// span returns a duration from low to high.
func (d *draw) span(low, high time.Duration) time.Duration {
	return low + time.Duration(d.Int64N(int64(high-low)+1))
}

// fault returns a fault rule with a random probability between 0.001 and `most`.
func (d *draw) fault(kind fault.Kind, most float64) fault.Rule {
	return fault.Rule{Kind: kind, Probability: 0.001 + d.Float64()*(most-0.001)}
}

// size returns a message length up to limit: short, around a multiple of the MTU, or long.
func (d *draw) size(mtu, limit int) int {
	n := 0
	switch d.IntN(4) {
	case 0:
		n = d.IntN(65)
	case 1:
		n = mtu*d.between(1, 4) + d.between(-1, 1)
	case 2:
		n = d.IntN(2 * mtu)
	default:
		n = d.IntN(limit + 1)
	}
	return max(0, min(n, limit))
}

// psnNearWrap returns a first PSN so large that PSNs wrap around within a run.
func psnNearWrap(r *rand.Rand) wire.PSN { return wire.PSN(0).Add(-(&draw{r}).between(1, 400)) }

// nearWrap draws whether all connections of a rack begin with PSNs of psnNearWrap.
func (d *draw) nearWrap(rack *simrack.Options) bool {
	wrap := d.chance(0.5)
	if wrap {
		rack.FirstPSN = psnNearWrap
	}
	return wrap
}
