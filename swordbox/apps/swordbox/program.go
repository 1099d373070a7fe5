package swordbox

import (
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Name is the name of the program in rack files.
const Name = "swordbox"

// Reasons why the program drops packets. The packets belong to flows from or to a server under a
// rule or to stale flows, or are addressed to the switch itself.
const (
	ReasonSpoofed     pipeline.Reason = "spoofed source"
	ReasonQuarantined pipeline.Reason = "quarantined connection"
	ReasonImplausible pipeline.Reason = "implausible response"
	ReasonNotMine     pipeline.Reason = "not for the switch"
	// ReasonUnknown: the switch does not know how the operation changes words whose values it has
	// cached (hole 39).
	ReasonUnknown pipeline.Reason = "unknown operation"
)

type Config struct {
	// Rules select the requests that handlers work on; nil means that there are none.
	Rules *rules.Set
	// Track bounds the table of connections.
	Track conntrack.Config
	// Handlers carry out the rules of their kinds. They must be new: no other program may have used
	// them. If a rule has no handler, the program only tracks the connections to its server.
	Handlers []handler.Handler
	// Own manages the switch's connections and its journal; nil means that the switch has neither.
	Own *Own
}

// Program is the switch program. Make one with New.
type Program struct {
	cfg      Config
	track    *conntrack.Table
	rules    *rules.Set
	version  uint32 // version of the rules; each change of the rules increments it
	watching bool   // true if at least one rule observes
	guarded  guarded
	flows    []flowRule
	parts    parts
	ctx      *pipeline.Ctx // the context of the present step
	queued   pipeline.QueuedPorts
	taken    pipeline.MarkedPorts
	// forget is true if an operator has cleared the table of flows. The next Tick forgets the flows
	// without moved requests.
	forget bool
}

var (
	_ pipeline.Egresser  = (*Program)(nil)
	_ pipeline.Ingresser = (*Program)(nil)
	_ pipeline.Guard     = (*Program)(nil)
	_ pipeline.Marker    = (*Program)(nil)
)

// flowRule is what the rules say about a flow. It is valid for one generation of the flow and one
// version of the rules.
type flowRule struct {
	generation, version uint32
	machine             handler.Machine // nil means that no rule for the responder has a machine
	rules               []*rules.Rule
	watch               *watched           // nil means that no rule observes requests to the responder
	others              []handler.Bypasser // handlers besides machine that must see its packets
	guarded             bool               // the switch must drop damaged packets of the flow
}

func New(cfg Config) *Program {
	p := &Program{cfg: cfg, rules: cfg.Rules, version: 1}
	cfg.Track.OnClose = p.closed
	p.track = conntrack.NewTable(cfg.Track)
	p.flows = make([]flowRule, p.track.MaxFlows())
	p.parts = partsOf(cfg.Handlers)
	for _, q := range p.parts.queuers {
		q.MarkIn(&p.queued)
	}
	for _, t := range p.parts.takers {
		t.MarkIn(&p.taken)
	}
	if cfg.Own != nil {
		cfg.Own.parts = &p.parts
	}
	p.use(cfg.Rules)
	return p
}

// SetRules replaces the rules, also in the journal. A flow with moved requests stays with the
// machine that moved them. If the journal refuses the rules, SetRules returns the journal's error
// and changes nothing.
func (p *Program) SetRules(s *rules.Set) error {
	if o := p.cfg.Own; o != nil {
		if err := o.store(s); err != nil {
			return err
		}
	}
	p.use(s)
	return nil
}

func (p *Program) use(s *rules.Set) {
	p.rules = s
	p.version++
	p.watching = slices.ContainsFunc(s.All(), func(r rules.Rule) bool { return r.Observes() })
	p.guarded.add(s, &p.parts)
	if o := p.cfg.Own; o != nil {
		o.setRules(s)
	}
	p.parts.setRules(s)
}

// Own returns the manager of the switch's connections and journal; nil if there is none.
func (p *Program) Own() *Own { return p.cfg.Own }

func (p *Program) Rules() *rules.Set { return p.rules }

func (p *Program) Connections() *conntrack.Table { return p.track }

// closed reports the end of a flow to its machine and to the journal. Flows end only within a step.
func (p *Program) closed(r *conntrack.Flow) {
	if o := p.cfg.Own; o != nil {
		o.closed(r)
	}
	if e := &p.flows[r.ID]; e.generation == r.Generation && e.machine != nil {
		e.machine.Closed(p.ctx, r)
	}
}

// Packet tracks a packet. If its flow has a machine, the machine decides what happens to the
// packet.
func (p *Program) Packet(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	p.ctx = c
	o := p.cfg.Own
	if q.Packets > 1 {
		return p.burst(c, q)
	}
	if o == nil {
		return p.packet(c, q)
	}
	if !o.first() {
		if p.track.Elsewhere(q.SrcAddr().Unmap(), q.Ingress) {
			return pipeline.Drop(ReasonSpoofed) // a forged packet must not reach o.former
		}
		if v, taken := o.former.Packet(c, q); taken {
			return v
		}
		if !q.Intact() {
			// The packet may belong to a stale flow, with an address or a QPN damaged on the way.
			return refuse(conntrack.Corrupt)
		}
	}
	v := p.packet(c, q)
	if o.dialer.HasNext() {
		o.news(c)
	}
	return v
}

// burst decides about a super-frame. It forwards the super-frame whole only if no handler works on
// its connection, or if its packets belong to no connection and no rule is about requests to their
// receiver. It has the switch split all other super-frames into their packets.
func (p *Program) burst(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if o := p.cfg.Own; q.Own || o != nil && !o.first() || p.parts.draining() {
		return pipeline.Apart()
	}
	b, size := q.Burst()
	if conntrack.Unconnected(b, size) && !p.guarded.packet(&q.Frame) && len(p.rules.Lookup(q.DstAddr()))+len(p.rules.Observing(q.DstAddr())) == 0 {
		return pipeline.Forward()
	}
	// Table.Burst checks no ICRC. So it must not handle the flows that a handler.Machine works on:
	// all packets of these flows must be checked (Flow.Checked). All of these flows are guarded.
	r := p.track.Known(&q.Frame)
	if r == nil || p.guarded.tracked(p.rulesOf(r), &q.Frame) || p.track.Burst(c.Now, q.Ingress, &q.Frame, b, size) == nil {
		return pipeline.Apart()
	}
	return pipeline.Forward()
}

func (p *Program) packet(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if q.Own {
		return p.owned(c, q)
	}
	s := p.track.Packet(c.Now, q.Ingress, &q.Frame, q)
	r := s.Flow
	if r == nil {
		return p.untracked(c, q)
	}
	e := p.rulesOf(r)
	if e.watch != nil {
		return p.observed(c, e, &s, q)
	}
	return p.decide(c, e, &s, q)
}

// decide decides what happens to a packet of a flow, with or without a machine.
func (p *Program) decide(c *pipeline.Ctx, e *flowRule, s *conntrack.Seen, q *pipeline.Parsed) pipeline.Verdict {
	if p.guarded.tracked(e, &q.Frame) && !q.Intact() {
		return refuse(conntrack.Corrupt)
	}
	if len(e.others) != 0 {
		if v := e.around(c, s.Flow, q); v.Action != pipeline.ActForward {
			return v
		}
	}
	m := e.machine
	if m == nil {
		if s.Class == conntrack.New && s.Bad == conntrack.Fine {
			s.Flow.Advance(s.Span)
		}
		return pipeline.Forward()
	}
	if s.Bad != conntrack.Fine {
		return refuse(s.Bad)
	}
	if s.Response {
		c.Under(e.moving())
		return m.Response(c, *s, q)
	}
	if !q.BTH.Opcode.Known() && strict(m) {
		return pipeline.Drop(ReasonUnknown)
	}
	r := ruleFor(e.rules, &q.Frame)
	if r != nil {
		c.Under(r.ID)
	}
	return m.Request(c, *s, r, q)
}

// untracked forwards a packet that belongs to no tracked flow, such as a congestion notification, unless a Bypasser
// drops it. It drops a damaged or forged packet from or to a guarded server (see guarded), and a packet with an
// unknown opcode to a server for which a machine that is handler.Strict carries out a rule.
func (p *Program) untracked(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if p.guarded.packet(&q.Frame) {
		switch {
		case !q.Intact():
			return refuse(conntrack.Corrupt)
		case p.track.Elsewhere(q.SrcAddr().Unmap(), q.Ingress):
			return pipeline.Drop(ReasonSpoofed)
		}
	}
	if op := q.BTH.Opcode; !op.Known() && p.parts.strictFor(p.rules.Lookup(q.DstAddr())) {
		return pipeline.Drop(ReasonUnknown)
	}
	for _, m := range p.parts.bypass {
		if v := m.Untracked(c, q); v.Action != pipeline.ActForward {
			return v
		}
	}
	p.parts.stray(p.rules, q)
	if p.watching {
		p.show(c, look(p.rules.Observing(q.DstAddr()), &q.Frame))
	}
	return pipeline.Forward()
}

// around shows a packet of a flow to the handlers in e.others. They do not decide about the flow,
// but must see its packets (handler.Bypasser). The result is the first of their verdicts that does
// not forward the packet; Forward if all of them forward it.
func (e *flowRule) around(c *pipeline.Ctx, r *conntrack.Flow, q *pipeline.Parsed) pipeline.Verdict {
	for _, b := range e.others {
		if e.machine == nil && !b.Draining() {
			continue
		}
		if v := b.Bypass(c, r, q); v.Action != pipeline.ActForward {
			return v
		}
	}
	return pipeline.Forward()
}

// refusals maps the reasons for which tracking refuses a packet of a flow under a rule to the
// reasons of the drop. The program drops the packet because the switch may have shifted the PSNs
// that the receiver expects. It drops a damaged packet because a second fault behind the switch
// could restore it; the receiver would then accept a packet that the machine has not seen (see
// guarded). If tracking refuses a packet for another reason, the program forwards it.
var refusals = map[conntrack.Reason]pipeline.Reason{
	conntrack.Spoofed: ReasonSpoofed, conntrack.Quarantined: ReasonQuarantined, conntrack.Implausible: ReasonImplausible,
	conntrack.Corrupt: pipeline.ReasonBadICRC,
}

// refuse decides what happens to a packet that tracking has refused for the reason bad. The packet
// belongs to a flow under a rule.
func refuse(bad conntrack.Reason) pipeline.Verdict {
	if reason, ok := refusals[bad]; ok {
		return pipeline.Drop(reason)
	}
	return pipeline.Forward()
}

// rulesOf returns what the present rules say about a flow.
func (p *Program) rulesOf(r *conntrack.Flow) *flowRule {
	if e := &p.flows[r.ID]; e.generation == r.Generation && e.version == p.version {
		return e
	}
	return p.assign(r)
}

// assign finds the machine of a flow. It is called if the flow is new, or the rules have changed.
func (p *Program) assign(r *conntrack.Flow) *flowRule {
	e := &p.flows[r.ID]
	former := *e
	*e = flowRule{generation: r.Generation, version: p.version, rules: p.rules.Lookup(r.Responder), guarded: p.guarded.flow(r)}
	if list := p.rules.Observing(r.Responder); p.watching && len(list) > 0 {
		e.watch = &watched{rules: list}
		if former.generation == r.Generation && former.watch != nil {
			e.watch.shown = former.watch.shown
		}
	}
	if former.generation == r.Generation && r.Pinned {
		// Only the former machine knows the PSN shift of the flow.
		e.machine, e.others = former.machine, former.others
		return e
	}
	for _, rule := range e.rules {
		if rule.Action != rules.Track {
			e.machine = p.parts.machineFor(rule)
			break
		}
	}
	e.others = p.parts.others[e.machine]
	if former.generation == r.Generation && former.machine != nil && former.machine != e.machine {
		// The former machine no longer sees the flow's packets, so its state of the flow would be
		// wrong.
		former.machine.Closed(p.ctx, r)
	}
	r.Checked = e.machine != nil
	return e
}

// owned decides what happens to a packet that is addressed to the switch.
func (p *Program) owned(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if !q.Intact() {
		return pipeline.Drop(pipeline.ReasonBadICRC)
	}
	if p.track.Elsewhere(q.SrcAddr().Unmap(), q.Ingress) {
		return pipeline.Drop(ReasonSpoofed)
	}
	if o := p.cfg.Own; o != nil && o.dialer.Packet(c, &q.Frame) {
		return pipeline.Consume()
	}
	return p.parts.owned(c, q)
}

// Queued returns the ports whose outgoing frames handlers queue (handler.Queuer).
func (p *Program) Queued() *pipeline.QueuedPorts { return &p.queued }

// Egress asks the handlers with queues whether one of them keeps a frame that leaves.
func (p *Program) Egress(c *pipeline.Ctx, port int, f packetio.Frame) bool {
	for _, q := range p.parts.queuers {
		if q.Queue(c, port, f) {
			return true
		}
	}
	return false
}

// Taken returns the ports whose incoming frames handlers may take (handler.Taker).
func (p *Program) Taken() *pipeline.MarkedPorts { return &p.taken }

// Ingress asks the handlers that decide about arriving frames (handler.Taker) whether one of them
// takes this frame from the switch.
func (p *Program) Ingress(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	for _, t := range p.parts.takers {
		if t.Take(c, in, f) {
			return true
		}
	}
	return false
}

// Tick calls the Tick of each part whose deadline has passed: connection tracking, the machines,
// and the switch's connections.
func (p *Program) Tick(c *pipeline.Ctx) {
	p.ctx = c
	if p.forget {
		p.forget = false
		p.track.Clear()
	}
	if p.track.Deadline() <= c.Now {
		p.track.Tick(c.Now)
	}
	for _, m := range p.parts.machines {
		if m.Deadline() <= c.Now {
			m.Tick(c)
		}
	}
	if o := p.cfg.Own; o != nil {
		o.tick(c)
		o.news(c)
	}
}

func (p *Program) Deadline() clock.Time {
	if p.forget {
		return 0
	}
	at := p.track.Deadline()
	for _, m := range p.parts.machines {
		at = clock.Min(at, m.Deadline())
	}
	if o := p.cfg.Own; o != nil {
		at = clock.Min(at, o.deadline())
	}
	return at
}
