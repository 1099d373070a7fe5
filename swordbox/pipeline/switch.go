package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxHeaders is the largest length of the headers up to UDP: Ethernet with a tag, then IPv6, or
// IPv4 with options.
const maxHeaders = 14 + 4 + 60 + 8

// MaxPorts bounds the ports of a switch.
const MaxPorts = 256

type Config struct {
	// Ports is the number of ports, 1 to MaxPorts.
	Ports int
	// Program decides about RoCEv2 packets. Required; apps/forward only forwards.
	Program Program
	// MaxMACs is how many addresses the switch learns; 0 means 4096.
	MaxMACs int
	// Ageing is how long the switch keeps an address after its last frame; 0 means 5 minutes.
	Ageing time.Duration
	// MaxFlows is how many flows the switch counts; 0 means 4096.
	MaxFlows int
	// MaxHeld is how many packets a program may hold; 0 means 1024.
	MaxHeld int
	// Follower traces requests through the switch; nil means that none does.
	Follower Follower
	// Self holds the addresses of the switch; the zero value means that it has none.
	Self Self
	// Homes has the ports of the rack's hosts; nil means that their addresses may appear anywhere. No other switch may
	// have it.
	Homes *Homes
	// Trunks makes the switch one of several; nil means that it is the only one. No other switch may
	// have it.
	Trunks *Trunks
	// Decisions gets what programs drop and refuse; nil means that only the notes of captures name it.
	Decisions *Decisions
}

func (c Config) withDefaults() Config {
	c.MaxMACs = cmp.Or(c.MaxMACs, 4096)
	c.MaxFlows = cmp.Or(c.MaxFlows, 4096)
	c.MaxHeld = cmp.Or(c.MaxHeld, 1024)
	c.Ageing = cmp.Or(c.Ageing, 5*time.Minute)
	return c
}

// Validate returns an error that says what is wrong with c.
func (c *Config) Validate() error {
	switch {
	case c.Ports < 1 || c.Ports > MaxPorts:
		return fmt.Errorf("pipeline: %d ports: want 1 to %d", c.Ports, MaxPorts)
	case c.Program == nil:
		return errors.New("pipeline: the program is nil; apps/forward only forwards")
	case c.MaxMACs < 0 || c.MaxFlows < 0 || c.MaxHeld < 0 || c.Ageing < 0:
		return errors.New("pipeline: MaxMACs, MaxFlows, MaxHeld and Ageing must not be negative")
	}
	return c.Self.validate()
}

// Switch is a switch. See the package comment. Make one with New.
type Switch struct {
	program program
	// decisions are what programs have dropped and refused.
	decisions *Decisions
	// Marks hears of marks that egress queues behind the switch have set.
	Marks  Marks
	ports  ports
	fdb    fdb
	flows  flows
	groups groups
	held   holds
	self   Self

	counters Counters
	lost     PortCounters // counts dropped packets that came from no port, because the switch made them
	notes    notes
	// delayedUntil is the time until which injected faults delay frames that the switch has already
	// sent.
	delayedUntil clock.Time

	ctx Ctx
	step
	scratch
	made made
}

// scratch is memory that is used again. parsed and its sealer are objects of their own, because an
// object as large as Switch begins 8 bytes behind a multiple of 16. As parts of Switch, their stores
// of 16 bytes would cross cache lines and pages, which is slow.
type scratch struct {
	parsed   *Parsed
	segment  []byte
	segments packetio.Segments
}

// step is the state of one call of Frame, Tick, Step or Load.
type step struct {
	out     *packetio.Batch
	emitted int          // packets that the program has emitted
	resumed []resumption // taken frames (Ingresser) that the program has resumed in this step
	// to is the port through which the frame that is being handled must leave; -1 means that its
	// destination address decides.
	to       int
	openSent bool // the packet that is being handled, which is not encoded, is in out
}

// New makes a switch. All ports are up.
func New(cfg Config) (*Switch, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Switch{
		ports: make([]port, cfg.Ports),
		fdb:   newFDB(cfg.MaxMACs, cfg.Ageing), flows: newFlows(cfg.MaxFlows), groups: newGroups(), held: holds{max: cfg.MaxHeld},
		notes: notes{on: cfg.Follower != nil},
		self:  cfg.Self, scratch: scratch{parsed: &Parsed{sealer: new(wire.Sealer)}}, made: made{trimAt: clock.Never},
	}
	if s.decisions = cfg.Decisions; s.decisions == nil {
		s.decisions = new(Decisions)
	}
	s.ctx.s, s.ctx.follower = s, cfg.Follower
	if s.fdb.homes = cfg.Homes; cfg.Homes != nil {
		cfg.Homes.fdb = &s.fdb
	}
	s.Marks.self = &s.self
	if s.fdb.trunks = cfg.Trunks; cfg.Trunks != nil {
		cfg.Trunks.fdb = &s.fdb
	}
	s.program = load(cfg.Program)
	s.Marks.marker, _ = cfg.Program.(Marker)
	for i := range s.ports {
		s.ports[i].up = true
	}
	return s, nil
}

// Frame handles a frame that came in at port `in`. It appends the frames to send to `out`, with
// Frame.Port set to the egress port. Frames in out may share the bytes of f, so these must stay
// valid and unchanged until out has been sent. f may be a packet that is not encoded, if Open lets it:
// then Frame returns the packet (packetio.Open.Return), unless it is in out.
func (s *Switch) Frame(now clock.Time, in int, f packetio.Frame, out *packetio.Batch) {
	s.begin(now, out)
	if in >= 0 && in < len(s.ports) {
		s.receive(in, f)
	}
	s.ctx.goOn()
	s.out = nil
}

// Tick forwards the held packets whose time is over, and calls the program's Tick if it is due. The
// caller calls it at Deadline.
func (s *Switch) Tick(now clock.Time, out *packetio.Batch) {
	s.begin(now, out)
	for id := s.held.next(now); id != 0; id = s.held.next(now) {
		s.notes.text = "held until its time"
		s.release(s.held.get(id))
		s.notes.text = ""
		s.held.remove(id)
	}
	s.groups.tick(now, len(s.ports), s.query)
	if s.program.Deadline() <= now {
		s.program.Tick(&s.ctx)
	}
	s.made.trim(now)
	s.ctx.goOn()
	s.out = nil
}

// Step calls f with a context in which the program can send packets. The caller uses it for
// operators' commands, and to make the program end its connections.
func (s *Switch) Step(now clock.Time, out *packetio.Batch, f func(c *Ctx)) {
	s.begin(now, out)
	f(&s.ctx)
	s.ctx.goOn()
	s.out = nil
}

func (s *Switch) Deadline() clock.Time {
	_, at := s.held.due.Next()
	return clock.Min(clock.Min(at, s.groups.due), clock.Min(s.made.trimAt, s.program.Deadline()))
}

func (s *Switch) begin(now clock.Time, out *packetio.Batch) {
	s.ctx.Now, s.out, s.emitted, s.to = now, out, 0, -1
	s.notes.begin()
	s.parsed.packet, s.parsed.icrc = nil, icrcUnknown
	s.decisions.begin(now, -1)
}

// receive handles layer 2 of a frame: it counts the frame, checks its addresses, and learns the
// source.
func (s *Switch) receive(in int, f packetio.Frame) {
	if f.Open != nil {
		s.acceptOpen(in, f)
		return
	}
	p := &s.ports[in]
	packets := f.Packets()
	p.RxPackets += uint64(packets)
	p.RxBytes += uint64(len(f.Data))
	if len(f.Data) < 14 {
		s.dropped(in, ReasonRunt, packets)
		return
	}
	src := wire.MAC(f.Data[6:12])
	if src.IsMulticast() || s.self.owns(src) { // no address of a host, or the switch's own: the frame came back or is forged
		s.dropped(in, ReasonBadSource, packets)
		return
	}
	if s.fdb.trunks.learns(src, in) {
		s.fdb.learn(s.ctx.Now, src, in)
	}
	if s.program.taken.Has(in) && s.ctx.took(in, f) {
		return
	}
	s.accept(in, f, packets)
}

// apart handles the packets of a super-frame one by one. fresh is true if the packets have not been
// counted yet.
func (s *Switch) apart(in int, f packetio.Frame, fresh bool) {
	for i := range s.segments.Open(f) {
		// The packet must stay valid until the batch s.out has been sent, so the memory is that of
		// the batch.
		d := s.segments.Append(s.out.Alloc(f.SegSize+maxHeaders), i)
		s.packet(in, packetio.Frame{Data: d, Port: f.Port}, d, 1, fresh)
	}
}

// packet parses the headers of f, and calls the program if the packet is RoCEv2. headers are the
// bytes to parse: f.Data or, for a super-frame that stays whole, its first packet.
func (s *Switch) packet(in int, f packetio.Frame, headers []byte, packets int, fresh bool) {
	p := s.parsed
	err := wire.ParseFrame(headers, &p.Frame)
	if err != nil {
		if fresh && !errors.Is(err, wire.ErrNotRoCE) {
			s.ports[in].Malformed += uint64(packets)
		}
		if s.program.guard.refuses(headers, f.SegSize, err) {
			s.dropped(in, ReasonMalformed, packets)
			return
		}
		if (f.Data[0]&1 == 0 || !s.snooped(in, f)) && !s.selfFrame(in, f) {
			s.forward(in, s.to, f)
		}
		return
	}
	if fresh {
		s.ports[in].RxRoCE += uint64(packets)
		s.flows.count(s.ctx.Now, &p.Frame, packets, len(f.Data))
	}
	if len(s.self.Addrs) != 0 && slices.Contains(s.self.Addrs, p.SrcAddr()) {
		s.dropped(in, ReasonBadSource, packets) // forged: only the switch sends from its addresses
		return
	}
	p.Raw, p.packet, p.Ingress, p.Packets, p.icrc = f, headers, in, packets, icrcUnknown
	if s.program.spec.Verify && !p.Intact() {
		s.forward(in, s.to, f)
		return
	}
	p.Own = s.self.owns(p.Eth.Dst)
	if packets > 1 {
		p.Payload = nil // the payload would be that of the first packet only
	}
	s.decisions.begin(s.ctx.Now, in)
	s.apply(s.program.Packet(&s.ctx, p), p)
	s.decisions.begin(s.ctx.Now, -1)
}

func (s *Switch) apply(v Verdict, p *Parsed) {
	if s.notes.on && v.Note == "" && v.Action == ActRewrite {
		v.Note = "rewritten by " + s.program.spec.Name
	}
	if s.notes.on && v.Note == "" && v.Action == ActHold {
		v.Note = "held by " + s.program.spec.Name
	}
	if s.notes.on && v.Note == "" && v.Action == ActConsume {
		v.Note = "taken by " + s.program.spec.Name
	}
	first, sent := len(s.notes.list), len(s.out.Frames)
	if v.Note != "" {
		s.notes.add(-1, v.Note)
	}
	switch v.Action {
	case ActForward:
		s.notes.text, s.notes.from = v.Note, p.Ingress
		s.forward(p.Ingress, s.to, p.Raw)
		s.notes.text, s.notes.from = "", -1
	case ActDrop:
		s.decisions.drops(s.program.spec.Name, p, v.Reason)
		s.dropped(p.Ingress, v.Reason, p.Packets)
		s.decisions.done()
	case ActRewrite:
		s.notes.text, s.notes.from = v.Note, p.Ingress
		s.rewrite(p.Ingress, p.Packets == 1 && p.Intact(), &p.Frame, p.Raw.Open)
		s.notes.text, s.notes.from = "", -1
	case ActConsume:
		s.counters.Consumed += uint64(p.Packets)
	case ActApart:
		if p.Raw.Splittable() {
			s.apart(p.Ingress, p.Raw, false)
			return
		}
		s.forward(p.Ingress, s.to, p.Raw)
	case ActHold:
	}
	if len(s.notes.list) > first && len(s.out.Frames) == sent+1 {
		s.notes.list[first].Peer = s.out.Frames[sent].Port
	}
}

// rewrite sends f instead of a received packet. intact is true if the ICRC of the received packet
// was correct. A super-frame cannot be rewritten as a whole, so a program that rewrites packets has
// super-frames split (Spec.Split or Apart). open is the received packet if it is not encoded.
func (s *Switch) rewrite(in int, intact bool, f *wire.Frame, open *packetio.Open) {
	n := f.Len()
	switch {
	case !intact:
		s.dropped(in, ReasonBadICRC, 1)
	case n > maxHeldFrame:
		s.dropped(in, ReasonTooLong, 1)
	default:
		s.counters.Rewritten++
		if open != nil && open.Change(f) {
			s.forward(in, -1, packetio.Frame{Open: open})
			return
		}
		s.forward(in, -1, packetio.Frame{Data: s.parsed.seal(f, n, s.out)})
	}
}

// release forwards a copy of a held packet. The copy is needed because the slot may be reused
// before out is sent.
func (s *Switch) release(h *held) {
	data := append(s.out.Alloc(len(h.data)), h.data...)
	s.notes.from = h.ingress
	sent := len(s.out.Frames)
	s.forward(h.ingress, -1, packetio.Frame{Data: data})
	for i := range s.out.Frames[sent:] {
		s.out.Frames[sent+i].Origin = 0
	}
	s.notes.from = -1
}

// Delayed tells the switch that an injected fault delays a frame that the switch has sent. The
// frame arrives at the time `until`.
func (s *Switch) Delayed(until clock.Time) { s.delayedUntil = max(s.delayedUntil, until) }
