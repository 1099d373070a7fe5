package serialize

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Name is the name of the program in rack files.
const Name = "swordbox"

// Reasons of this program to drop a packet of a connection that a rule selects.
const (
	ReasonSpoofed     pipeline.Reason = "spoofed source"
	ReasonQuarantined pipeline.Reason = "quarantined connection"
	ReasonImplausible pipeline.Reason = "implausible response"
	ReasonNotMine     pipeline.Reason = "not for the switch"
	// ReasonUnknown: nobody here knows what the operation does to memory that the switch believes to know (hole 39).
	ReasonUnknown pipeline.Reason = "unknown operation"
)

// Config describes the program.
type Config struct {
	// Rules select what is serialised; nil: nothing.
	Rules *rules.Set
	// Track bounds the table of connections.
	Track conntrack.Config
	// Hard and Paper are the machines of the two modes, fresh ones; a rule of a mode that is nil tracks only.
	Hard, Paper mode.Machine
	// Steer is the machine of rules of action steer, SteerPaper that of those of mode paper; nil: they track only.
	Steer, SteerPaper mode.Machine
	// Own is the switch as an end of connections; nil: it has none, and remembers nothing over a crash.
	Own *Own
}

// Program is the switch program. Make one with New.
type Program struct {
	cfg      Config
	track    *conntrack.Table
	rules    *rules.Set
	version  uint32 // of rules
	rows     []rowRule
	machines []mode.Machine // those that are there
	bypass   []bypasser     // those of them that mind what is not tracked
	ctx      *pipeline.Ctx  // of the step
	forget   bool           // an operator wants the rows forgotten that can be
}

// bypasser is a machine that must see requests which no row of its own is for: they may change memory that it believes to
// know. Those of rows without a machine it must see only while Draining.
type bypasser interface {
	mode.Machine
	Bypass(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict
	// Untracked is Bypass for what belongs to no row.
	Untracked(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict
	Draining() bool
}

var _ pipeline.Program = (*Program)(nil)

// rowRule is what the rules say about a row, remembered for the generation of the row and the version of the rules.
type rowRule struct {
	generation, version uint32
	machine             mode.Machine // nil: no rule moves anything towards the responder
	rules               []*rules.Rule
}

// New makes the program.
func New(cfg Config) *Program {
	p := &Program{cfg: cfg, rules: cfg.Rules, version: 1}
	cfg.Track.OnClose = p.closed
	p.track = conntrack.NewTable(cfg.Track)
	p.rows = make([]rowRule, p.track.MaxRows())
	for _, m := range []mode.Machine{cfg.Hard, cfg.Paper, cfg.Steer, cfg.SteerPaper} {
		if m == nil {
			continue
		}
		p.machines = append(p.machines, m)
		if b, ok := m.(bypasser); ok {
			p.bypass = append(p.bypass, b)
		}
	}
	if cfg.Own != nil {
		cfg.Own.user, _ = cfg.Hard.(User)
		cfg.Own.repair, _ = cfg.SteerPaper.(Repairer)
	}
	p.use(cfg.Rules)
	return p
}

// SetRules exchanges the rules, also in the record. Rows that have been moved stay with the machine that moved them. On
// error, which is one of the record, the rules stay as they are.
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
	if o := p.cfg.Own; o != nil {
		o.setRules(s)
	}
}

// Own is the switch as an end of connections; nil if it is none.
func (p *Program) Own() *Own { return p.cfg.Own }

// Rules are those in force.
func (p *Program) Rules() *rules.Set { return p.rules }

// Connections is the table of connections.
func (p *Program) Connections() *conntrack.Table { return p.track }

// closed tells a machine, and the record, that a row of theirs has ended. Rows end only within a step.
func (p *Program) closed(r *conntrack.Row) {
	if o := p.cfg.Own; o != nil {
		o.closed(r)
	}
	if e := &p.rows[r.ID]; e.generation == r.Generation && e.machine != nil {
		e.machine.Closed(p.ctx, r)
	}
}

// Packet tracks a packet, and asks the machine of its row, if it has one.
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
			return pipeline.Drop(ReasonSpoofed) // nobody speaks for a row of the past but its ends
		}
		if v, taken := o.former.Packet(c, q); taken {
			return v
		}
	}
	v := p.packet(c, q)
	if o.dialer.HasNext() {
		o.news(c)
	}
	return v
}

// burst lets a super-frame pass whole if it belongs to a connection that no machine has to do with. Others are taken apart.
func (p *Program) burst(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if o := p.cfg.Own; q.Own || o != nil && !o.first() || p.draining() {
		return pipeline.Apart()
	}
	b, size := q.Burst()
	// A row that Burst takes is not Checked, as the rows of machines are; one that the rules are new for may become so.
	r := p.track.Known(&q.Frame)
	if r == nil || p.machineOf(r) != nil || p.machineOf(r.Peer) != nil || p.track.Burst(c.Now, q.Ingress, &q.Frame, b, size) == nil {
		return pipeline.Apart()
	}
	return pipeline.Forward()
}

func (p *Program) packet(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if q.Own {
		return p.owned(c, q)
	}
	s := p.track.Packet(c.Now, q.Ingress, &q.Frame, q)
	r := s.Row
	if r == nil {
		return p.untracked(c, q)
	}
	m := p.machineOf(r)
	if v := p.around(c, m, q); v.Action != pipeline.ActForward {
		return v
	}
	if m == nil {
		if s.Class == conntrack.New && s.Bad == conntrack.Fine {
			r.Advance(s.Span)
		}
		return pipeline.Forward()
	}
	if s.Bad != conntrack.Fine {
		return refuse(s.Bad)
	}
	if s.Response {
		return m.Response(c, s, q)
	}
	if m == p.cfg.Hard && !q.BTH.Opcode.Known() {
		return pipeline.Drop(ReasonUnknown)
	}
	return m.Request(c, s, p.match(r, &q.Frame), q)
}

// untracked sends on a packet that no row is for, unless a machine minds.
func (p *Program) untracked(c *pipeline.Ctx, q *pipeline.Parsed) pipeline.Verdict {
	if op := q.BTH.Opcode; !op.Known() && p.hardens(q) {
		return pipeline.Drop(ReasonUnknown)
	}
	for _, m := range p.bypass {
		if v := m.Untracked(c, q); v.Action != pipeline.ActForward {
			return v
		}
	}
	p.stray(q)
	return pipeline.Forward()
}

// around shows a packet of a row to the machines that the row does not belong to, if they mind.
func (p *Program) around(c *pipeline.Ctx, m mode.Machine, q *pipeline.Parsed) pipeline.Verdict {
	for _, b := range p.bypass {
		if mode.Machine(b) == m || m == nil && !b.Draining() {
			continue
		}
		if v := b.Bypass(c, q); v.Action != pipeline.ActForward {
			return v
		}
	}
	return pipeline.Forward()
}

// draining reports whether a machine minds rows without a machine.
func (p *Program) draining() bool {
	return slices.ContainsFunc(p.bypass, bypasser.Draining)
}

// hardens reports whether a rule of mode hard moves something towards the receiver of a packet.
func (p *Program) hardens(q *pipeline.Parsed) bool {
	return slices.ContainsFunc(p.rules.Lookup(q.DstAddr()), func(r *rules.Rule) bool { return r.Moves() && r.Mode == rules.Hard })
}

// refusals are the reasons to drop a packet that claims to be of a row under a rule: it would meet the wrong PSNs. What is
// not in the list goes on, a damaged packet for its receiver to count.
var refusals = map[conntrack.Reason]pipeline.Reason{
	conntrack.Spoofed: ReasonSpoofed, conntrack.Quarantined: ReasonQuarantined, conntrack.Implausible: ReasonImplausible,
}

// refuse decides about a packet of a row under a rule that tracking did not accept.
func refuse(bad conntrack.Reason) pipeline.Verdict {
	if reason, ok := refusals[bad]; ok {
		return pipeline.Drop(reason)
	}
	return pipeline.Forward()
}

// machineOf returns the machine that a row belongs to, or nil.
func (p *Program) machineOf(r *conntrack.Row) mode.Machine {
	e := &p.rows[r.ID]
	if e.generation == r.Generation && e.version == p.version {
		return e.machine
	}
	former := *e
	*e = rowRule{generation: r.Generation, version: p.version, rules: p.rules.Lookup(r.Responder)}
	if former.generation == r.Generation && r.Pinned {
		e.machine = former.machine // which has changed its numbers
		return e.machine
	}
	for _, rule := range e.rules {
		if rule.Moves() {
			e.machine = p.machine(rule.Mode)
			break
		}
		if rule.Action == rules.Steer {
			if e.machine = p.cfg.Steer; rule.Mode == rules.Paper {
				e.machine = p.cfg.SteerPaper
			}
			break
		}
	}
	if former.generation == r.Generation && former.machine != nil && former.machine != e.machine {
		// It will not see what passes from now on, and must not come back to what it knows.
		former.machine.Closed(p.ctx, r)
	}
	r.Checked = e.machine != nil
	return e.machine
}

func (p *Program) machine(m rules.Mode) mode.Machine {
	if m == rules.Paper {
		return p.cfg.Paper
	}
	return p.cfg.Hard
}

// match returns the first rule for a request; nil if none is for it, or if the packet does not say where it goes.
func (p *Program) match(r *conntrack.Row, f *wire.Frame) *rules.Rule {
	return ruleFor(p.rows[r.ID].rules, f)
}

func ruleFor(list []*rules.Rule, f *wire.Frame) *rules.Rule {
	switch op := f.BTH.Opcode; {
	case op.Has(wire.HasRETH):
		return rules.First(list, f.RETH.VA, int(f.RETH.Length), f.RETH.RKey)
	case op.Has(wire.HasAtomicETH):
		return rules.First(list, f.AtomicETH.VA, wordSize, f.AtomicETH.RKey)
	}
	return nil
}

// wordSize is the number of bytes that an atomic works on.
const wordSize = 8

// owned decides about a packet that is addressed to the switch.
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
	if o := p.cfg.Own; o != nil && o.repair != nil && o.repair.Mine(q.BTH.DestQP) {
		return p.cfg.SteerPaper.Owned(c, q)
	}
	if p.cfg.Hard != nil {
		return p.cfg.Hard.Owned(c, q)
	}
	return pipeline.Drop(ReasonNotMine)
}

// Tick lets everything act whose time has come.
func (p *Program) Tick(c *pipeline.Ctx) {
	p.ctx = c
	if p.forget {
		p.forget = false
		p.track.Clear()
	}
	if p.track.Deadline() <= c.Now {
		p.track.Tick(c.Now)
	}
	for _, m := range p.machines {
		if m.Deadline() <= c.Now {
			m.Tick(c)
		}
	}
	if o := p.cfg.Own; o != nil {
		o.tick(c)
		o.news(c)
	}
}

// Deadline is when Tick wants to be called.
func (p *Program) Deadline() clock.Time {
	if p.forget {
		return 0
	}
	at := p.track.Deadline()
	for _, m := range p.machines {
		at = clock.Min(at, m.Deadline())
	}
	if o := p.cfg.Own; o != nil {
		at = clock.Min(at, o.deadline())
	}
	return at
}
