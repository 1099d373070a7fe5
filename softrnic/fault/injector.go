package fault

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// defaultReorder is how long kind reorder holds back a frame if the rule has no delay.
const defaultReorder = time.Millisecond

// rateQueueBytes is the largest backlog of the kind Rate: a frame that would wait behind more bytes
// is dropped. The window of one queue pair (128 packets of 4 KiB) fits, so a single sender is
// slowed down but loses nothing.
const rateQueueBytes = 1 << 20

// Injector gives verdicts for one direction of one link. It is used by one goroutine at a time. It
// remembers the first PSN of at most maxConnections destination queue pairs and, for each rule that
// counts transmissions, at most maxTracked packets.
//
// RoCEv2 frames and all other frames are numbered separately, from 0 at the installation of a rule.
// So packets of the hosts' kernels (ARP, neighbour discovery, TCP) do not change which RoCEv2
// packets a rule hits.
type Injector struct {
	seed  uint64
	link  string
	dir   Dir
	rules []*ruleState // active rules
	all   []*ruleState // active and ended rules, until they are removed
	conns connections
	hits  []string // memory of Verdict.Rules
	view  view     // view of the current frame; a field, so that it needs no allocation
}

// ruleState is the state of one rule on one link and direction.
type ruleState struct {
	rule    Rule
	match   matcher
	stream  uint64     // stream of random numbers
	until   clock.Time // when the rule ends; Never if it has no For
	index   [2]uint64  // number of frames seen: of other protocols at 0, RoCEv2 at 1
	hits    uint64
	over    bool // Count is used up
	pinned  bool
	pin     packetID // the packet to which Match.SamePacket restricts the rule, if pinned is set
	seen    ring[packetID, uint32]
	own     Apply      // the effect of a registered kind; nil: a kind of this package
	verdict Verdict    // memory for own, so that a verdict needs no allocation
	free    clock.Time // for the kind Rate: when all accepted frames have been sent
}

// A rule has two random draws for each frame: laneHit decides whether the rule hits the frame,
// laneAmount how long the frame is delayed or which bit is flipped. lanes is the number of draws.
// Each draw has its own number in the stream, so that one decision does not influence another.
const (
	laneHit = iota
	laneAmount
	lanes
)

// NewInjector returns the injector of one direction (Up or Down) of a link. It installs the rules
// that apply to this link and direction, at time 0. Rules without an ID get one from Named. Rules
// of kind Tear, and rules that Validate refuses, are ignored.
func NewInjector(seed uint64, link string, dir Dir, rules []Rule) *Injector {
	in := &Injector{seed: seed, link: link, dir: dir}
	in.conns.ring.bound = maxConnections
	for _, r := range Named(rules) {
		if r.Validate() == nil {
			in.Add(0, r)
		}
	}
	return in
}

// Named returns rules with an ID for each. A rule without one gets "f" and its place in the list,
// from 1, and then underscores until no other rule has this ID. A rule's random choices depend on
// its ID.
func Named(rules []Rule) []Rule {
	rules = slices.Clone(rules)
	for i := range rules {
		if rules[i].ID != "" {
			continue
		}
		id := "f" + strconv.Itoa(i+1)
		for slices.ContainsFunc(rules, func(r Rule) bool { return r.ID == id }) {
			id += "_" // another rule has this name
		}
		rules[i].ID = id
	}
	return rules
}

// Add installs a valid rule with an ID, if the rule applies to this link and direction. Otherwise
// Add returns false.
func (in *Injector) Add(now clock.Time, r Rule) bool {
	if r.Link != in.link || r.Kind == Tear || (r.Dir != in.dir && r.Dir != Both && r.Dir != "") {
		return false
	}
	s := &ruleState{rule: r, match: newMatcher(r.Match), until: clock.Never}
	s.stream = hashString(hashString(hashString(mix(cmp.Or(r.Seed, in.seed)+golden), in.link), string(in.dir)), r.ID)
	s.seen.bound = maxTracked
	if e, ok := effectOf(r.Kind); ok {
		s.own = e.New(&s.rule)
	}
	if r.For > 0 {
		s.until = now.Add(r.For)
	}
	in.rules = append(in.rules, s)
	in.all = append(in.all, s)
	return true
}

func (in *Injector) Remove(id string) {
	is := func(s *ruleState) bool { return s.rule.ID == id }
	in.rules = slices.DeleteFunc(in.rules, is)
	in.all = slices.DeleteFunc(in.all, is)
}

// Storms returns the priorities that rules of kind Storm pause now, bit i for priority i, and counts a
// hit of each rule: the caller sends a pause frame. end is when the first of these rules ends by itself;
// clock.Never means that none does.
func (in *Injector) Storms(now clock.Time) (priorities uint8, end clock.Time) {
	end = clock.Never
	for _, s := range in.rules {
		if s.rule.Kind == Storm && now < s.until {
			priorities |= 1 << s.rule.Priority
			end = clock.Min(end, s.until)
			s.hits++
		}
	}
	return priorities, end
}

// Active reports whether any rule is active. Without an active rule, the injector only records the
// first PSN of each connection, so the caller may pass one packet of each super-frame.
func (in *Injector) Active() bool { return len(in.rules) != 0 }

func (in *Injector) state(id string) *ruleState {
	for _, s := range in.all {
		if s.rule.ID == id {
			return s
		}
	}
	return nil
}

// Frame returns the verdict for the next frame, a single packet. Rules apply in the order of their
// installation, until one drops the frame; later rules do not count this frame. Verdict.Rules is
// valid until the next call. A rule that has used up its count or its time becomes inactive.
func (in *Injector) Frame(now clock.Time, frame []byte) Verdict {
	var (
		v     = &in.view
		first wire.PSN
		out   Verdict
	)
	peek(frame, v)
	if v.roce {
		first = in.conns.observe(v)
	}
	in.hits = in.hits[:0]
	ended := false
	for _, s := range in.rules {
		if now >= s.until {
			ended = true
			continue
		}
		pos, hit := s.selects(v, first)
		if hit && s.apply(now, frame, pos, &out) {
			in.hits = append(in.hits, s.rule.ID)
			ended = ended || s.over
			if out.Drop {
				break
			}
		}
	}
	if ended {
		in.rules = slices.DeleteFunc(in.rules, func(s *ruleState) bool { return s.over || now >= s.until })
	}
	if len(in.hits) != 0 {
		out.Rules = in.hits
	}
	return out
}

// Passed is Frame for a RoCEv2 packet that is not encoded, while no rule is active: f has its headers.
func (in *Injector) Passed(f *wire.Frame) {
	v := &in.view
	v.packetID = packetID{qpn: f.BTH.DestQP, psn: f.BTH.PSN, op: f.BTH.Opcode}
	if f.V6 {
		v.dst = f.IPv6.Dst
	} else {
		copy(v.dst[12:], f.IPv4.Dst[:])
	}
	in.conns.observe(v)
}

// selects counts the frame, and reports whether the rule hits it. pos is the number of the first
// random draw for this frame.
func (s *ruleState) selects(v *view, first wire.PSN) (pos uint64, hit bool) {
	class := 0
	if v.roce {
		class = 1
	}
	pos = (s.index[class]*2 + uint64(class)) * lanes
	s.index[class]++
	if !s.match.static(v, first) {
		return pos, false
	}
	if want := s.rule.Match.Transmission; want != 0 {
		count, _ := s.seen.at(v.packetID)
		*count++
		if int(*count) != want {
			return pos, false
		}
	}
	if s.pinned && s.pin != v.packetID {
		return pos, false
	}
	if p := s.rule.Probability; p > 0 && p < 1 && unit(draw(s.stream, pos+laneHit)) >= p {
		return pos, false
	}
	if s.rule.Match.SamePacket {
		s.pinned, s.pin = true, v.packetID
	}
	return pos, true
}

// apply adds the rule's effect on a frame to `out` and reports whether the effect counts as a hit.
func (s *ruleState) apply(now clock.Time, frame []byte, pos uint64, out *Verdict) bool {
	switch s.rule.Kind {
	case Loss, Blackhole:
		out.Drop = true
	case Duplicate:
		out.Copies++
	case Delay:
		out.Delay += jittered(s.rule.Delay, s.rule.Jitter, draw(s.stream, pos+laneAmount))
	case Reorder:
		out.Delay += cmp.Or(s.rule.Delay, defaultReorder)
	case Corrupt:
		if out.Corrupt || len(frame) <= ethLen {
			return false
		}
		out.Corrupt, out.Bit = true, bitOf(frame, draw(s.stream, pos+laneAmount))
	case Rate:
		queued := s.free > now
		wait, ok := s.line(now, len(frame))
		out.Drop = !ok
		out.Delay += wait
		if !queued {
			return false // the frame only waits for its own transmission time, which is not reported as a hit
		}
	case Mark:
		if _, ok := wire.ECNOf(frame); !ok || out.Mark {
			return false
		}
		out.Mark = true
	case Tear, Storm:
		return false
	default:
		if s.own == nil {
			return false
		}
		s.verdict = *out
		hit := s.own(now, frame, draw(s.stream, pos+laneAmount), &s.verdict)
		if *out = s.verdict; !hit {
			return false
		}
	}
	s.hits++
	s.over = s.rule.Count > 0 && s.hits >= uint64(s.rule.Count)
	return true
}

// jittered returns d plus a time between −jitter and +jitter, at least 0. The random number x
// determines the time, uniformly.
func jittered(d, jitter time.Duration, x uint64) time.Duration {
	if jitter > 0 {
		d += time.Duration((2*unit(x) - 1) * float64(jitter))
	}
	return max(d, 0)
}

// bitOf chooses the bit of a frame that a fault flips, by the random number x. The result counts
// bits from the end of the Ethernet header, as Verdict.Bit does. If the frame has a VLAN tag, the
// chosen bit is behind the tag.
func bitOf(frame []byte, x uint64) int {
	skip := 0
	if off, _, ok := ipOffset(frame); ok {
		skip = off - ethLen
	}
	n := (len(frame) - ethLen - skip) * 8
	if n <= 0 {
		return 0
	}
	return skip*8 + int(x%uint64(n))
}

// FlipBit flips a bit of a frame whose verdict has Corrupt. bit is Verdict.Bit.
func FlipBit(frame []byte, bit int) {
	if i := ethLen + bit/8; bit >= 0 && i < len(frame) {
		frame[i] ^= 0x80 >> (bit % 8)
	}
}

// line applies the rate of a rule to a frame. The frame leaves when all frames accepted before it
// have left and its own bits have been sent. ok is false if the backlog is full.
func (s *ruleState) line(now clock.Time, bytes int) (wait time.Duration, ok bool) {
	s.free = max(s.free, now)
	perByte := float64(8*time.Second) / float64(s.rule.BitsPerSecond)
	if backlog := float64(s.free.Sub(now)); backlog > perByte*rateQueueBytes {
		return 0, false
	}
	s.free = s.free.Add(time.Duration(perByte * float64(bytes)))
	return s.free.Sub(now), true
}
