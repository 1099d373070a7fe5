package simrack

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// LoadProgram replaces the switch's program, like the command `rdmalab switch program`. Unlike the
// switch's daemon, it does so also if the running program has moved requests of connections to the
// switch's connections (its Bound is not 0). The clients' connections then break.
func (r *Rack) LoadProgram(name string, set *rules.Set) error {
	if r.Spec.Fabric != nil {
		return errors.New("the program of a rack with several switches cannot be changed")
	}
	s := *r.Spec
	s.Switch.Program, s.Switch.Rules = name, set.All()
	r.Spec = &s
	b := r.fabric.boxes[0]
	program, err := b.newProgram(r.Spec.OnSwitch(b.name), true)
	if err != nil {
		return err
	}
	if p, ok := program.(*swordbox.Program); ok {
		if err := p.SetRules(set); err != nil {
			return err
		}
	}
	if p, ok := b.program.(*swordbox.Program); ok {
		r.StepSwitch(p.Close)
	}
	now, out := r.net.Begin(b.node)
	err = b.pipe.Load(now, program, apps.Self(r.Spec.OnSwitch(b.name)), out)
	r.net.End(b.node)
	if p, ok := b.program.(*swordbox.Program); ok && err == nil {
		p.Unloaded()
	}
	b.program = program
	return err
}

func (r *Rack) Program() pipeline.Program { return r.fabric.boxes[0].program }

// Switch returns the switch of the rack. This and the other methods with Switch in their names are for
// racks with one switch; of a fabric, they take the first leaf.
func (r *Rack) Switch() *pipeline.Switch { return r.fabric.boxes[0].pipe }

// Ingress returns the counters of the switch's port of a host.
func (h *Host) Ingress() pipeline.PortCounters {
	b := h.rack.fabric.box(h.rack.Spec.LeafOf(h.Spec))
	return b.pipe.Port(b.port(h.Spec.Name))
}

// Rule parses the text of a switch rule, and replaces the host names in it by addresses.
func (r *Rack) Rule(text string) (rules.Rule, error) {
	rule, err := rules.Parse(text)
	if err == nil {
		err = rule.Resolve(r.Spec.Addresses)
	}
	return rule, err
}

// errProgram is the error of a method for a switch that runs another program than swordbox.
var errProgram = errors.New("the switch has another program")

// SetRules replaces the rules of the switch's program by list.
func (r *Rack) SetRules(list ...rules.Rule) error {
	p, ok := r.fabric.boxes[0].program.(*swordbox.Program)
	if !ok {
		return errProgram
	}
	set, err := rules.NewSet(list)
	if err == nil {
		err = p.SetRules(set)
	}
	return err
}

// ChangeEntries adds or removes entries of the table of a rule of action lookup.
func (r *Rack) ChangeEntries(e handler.Entries) (out handler.EntriesReport, err error) {
	p, ok := r.fabric.boxes[0].program.(*swordbox.Program)
	if !ok {
		return out, errProgram
	}
	r.StepSwitch(func(c *pipeline.Ctx) { out, err = p.ChangeEntries(c, e, netip.ParseAddr) })
	return out, err
}

// Counters returns the switch's counters of a group by name. Each is the sum of those of the
// hardened and of the published handler.
func (r *Rack) Counters(group string) map[string]uint64 {
	out := make(map[string]uint64)
	if p, ok := r.fabric.boxes[0].program.(*swordbox.Program); ok {
		for _, g := range p.Counters(r.Now()) {
			if g.Name == group || g.Name == group+" published" {
				for _, c := range g.Counters {
					out[c.Name] += c.Value
				}
			}
		}
	}
	return out
}

// Announce makes each host broadcast a frame, by which the switch learns the host's port.
func (r *Rack) Announce() {
	for _, h := range r.hosts {
		f := make([]byte, 60)
		copy(f, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		copy(f[6:], h.Spec.MAC[:])
		binary.BigEndian.PutUint16(f[12:], announceType)
		h.Inject(fault.Up, f, nil)
	}
}

// announceType is the EtherType of the frames of Announce: an EtherType for local experiments.
const announceType = 0x88b6

// CrashSwitch crashes the switch. Frames to it and inside it are lost. Of its state, only the
// journal survives.
func (r *Rack) CrashSwitch() { r.net.SetUp(r.fabric.boxes[0].node, false) }

// RestartSwitch starts the switch with empty tables and the journal of its earlier incarnation.
func (r *Rack) RestartSwitch() error {
	sw, err := r.fabric.boxes[0].start()
	if err == nil {
		r.net.Replace(r.fabric.boxes[0].node, sw)
	}
	return err
}

// HangSwitch stops the switch until ResumeSwitch. The switch keeps its state. Frames that arrive
// meanwhile are lost.
func (r *Rack) HangSwitch() { r.net.SetUp(r.fabric.boxes[0].node, false) }

func (r *Rack) ResumeSwitch() { r.net.SetUp(r.fabric.boxes[0].node, true) }

// StepSwitch calls f as a step of the switch, as the switch executes an operator's command. f may
// make the switch send frames.
func (r *Rack) StepSwitch(f func(c *pipeline.Ctx)) {
	now, out := r.net.Begin(r.fabric.boxes[0].node)
	r.fabric.boxes[0].pipe.Step(now, out, f)
	r.net.End(r.fabric.boxes[0].node)
}
