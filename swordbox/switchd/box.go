package switchd

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/budget"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// errBox are wishes that a program cannot fulfil.
var (
	errNoBox = errors.New("the switch's program has no rules: `rdmalab switch program swordbox` loads the one that has, and " +
		"program: swordbox in the rack file begins with it")
	errRule = errors.New("refused")
	errGone = errors.New("not there")
)

// kindError is an error with the kind by which answer chooses a status; its text is the error's alone.
type kindError struct{ kind, err error }

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// refused says that a wish was wrong, gone that what it is about is not there.
func refused(err error) error { return &kindError{errRule, err} }
func gone(err error) error    { return &kindError{errGone, err} }

// ProgramInfo is what GET /program answers.
type ProgramInfo struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Programs are those that a rack file can name, Described is the one that the rack's names.
	Programs  []string `json:"programs"`
	Described string   `json:"described,omitempty"`
	// Bits is the state that the program declares.
	Bits int `json:"bits"`
	// Rules is how many are in force; Addresses those of the switch itself.
	Rules     int          `json:"rules"`
	MAC       wire.MAC     `json:"mac,omitzero"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// RuleText is the body of POST /rules: a rule as on the command line.
type RuleText struct {
	Rule string `json:"rule"`
	// First puts it before the others.
	First bool `json:"first,omitempty"`
}

// RuleTexts is the body of PUT /rules: all rules, in their order.
type RuleTexts struct {
	Rules []string `json:"rules"`
}

// Adopted is the body of POST /connections: a connection of the switch that was made elsewhere.
type Adopted struct {
	// Server is a host's name or an address.
	Server    string   `json:"server"`
	Shard     int      `json:"shard"`
	ServerQPN wire.QPN `json:"serverQPN"`
	OwnQPN    wire.QPN `json:"ownQPN"`
	SendPSN   wire.PSN `json:"sendPSN"`
	RecvPSN   wire.PSN `json:"recvPSN"`
	MTU       int      `json:"mtu"`
	Depth     int      `json:"depth"`
	// MAC is needed for a server that is no host of the rack.
	MAC *wire.MAC `json:"mac,omitempty"`
}

// Dropped is what a DELETE of connections or table entries answers.
type Dropped struct {
	Entries int `json:"entries"`
}

// handleBox adds what concerns the program and its rules.
func (d *Daemon) handleBox(m *control.Mux) {
	control.Handle(m, "GET /program", func(*http.Request, none) (ProgramInfo, error) { return d.ProgramInfo() })
	d.handleLoad(m)
	control.Handle(m, "GET /budget", func(*http.Request, none) (budget.Report, error) { return d.Budget() })
	control.Handle(m, "GET /rules", func(*http.Request, none) ([]rules.Rule, error) { return d.Rules() })
	control.Handle(m, "POST /rules", func(_ *http.Request, t RuleText) (rules.Rule, error) {
		r, err := d.AddRule(t)
		return r, answer(err)
	})
	control.Handle(m, "PUT /rules", func(_ *http.Request, t RuleTexts) ([]rules.Rule, error) {
		list, err := d.ReplaceRules(t.Rules)
		return list, answer(err)
	})
	control.Handle(m, "DELETE /rules/{id}", func(r *http.Request, _ none) (none, error) {
		return none{}, answer(d.RemoveRule(r.PathValue("id")))
	})
	control.Handle(m, "GET /connections", func(*http.Request, none) (serialize.Report, error) {
		rep, err := d.Report()
		return rep, answer(err)
	})
	control.Handle(m, "POST /connections", func(_ *http.Request, a Adopted) (dial.Info, error) {
		i, err := d.Adopt(a)
		return i, answer(err)
	})
	control.Handle(m, "DELETE /connections/{server}/{shard}", func(r *http.Request, _ none) (none, error) {
		return none{}, answer(d.Disown(r.PathValue("server"), r.PathValue("shard")))
	})
	control.Handle(m, "GET /program/counters", func(*http.Request, none) ([]serialize.Group, error) {
		g, err := d.ProgramCounters()
		return g, answer(err)
	})
	control.Handle(m, "GET /tables", func(*http.Request, none) ([]Table, error) { return d.Tables() })
	control.Handle(m, "DELETE /tables/{name}", func(r *http.Request, _ none) (Dropped, error) {
		n, err := d.ClearTable(r.PathValue("name"))
		return Dropped{n}, answer(err)
	})
	control.Handle(m, "GET /macs", func(*http.Request, none) ([]pipeline.MAC, error) {
		var list []pipeline.MAC
		err := d.Do(func() { list = d.sw.MACs() })
		return list, err
	})
}

// box runs f in the loop with the program, if it is the one that has rules.
func (d *Daemon) box(f func(p *serialize.Program) error) (err error) {
	if derr := d.Do(func() {
		err = errNoBox
		if p, ok := d.cfg.Program.(*serialize.Program); ok {
			err = f(p)
		}
	}); derr != nil {
		return derr
	}
	return err
}

// ProgramInfo describes the program.
func (d *Daemon) ProgramInfo() (i ProgramInfo, err error) {
	err = d.Do(func() {
		s := d.sw.Spec()
		i = ProgramInfo{Name: s.Name, Doc: s.Doc, Programs: spec.Programs(), Bits: s.Bits(), MAC: d.cfg.Self.MAC, Addresses: d.cfg.Self.Addrs}
		if d.cfg.Described != nil {
			i.Described = cmp.Or(d.cfg.Described.Switch.Program, spec.ProgramForward)
		}
		if p, ok := d.cfg.Program.(*serialize.Program); ok {
			i.Rules = len(p.Rules().All())
		}
	})
	return i, err
}

// Budget says what the program would take of a switching chip.
func (d *Daemon) Budget() (r budget.Report, err error) {
	var s pipeline.Spec
	err = d.Do(func() { s = d.sw.Spec() })
	return budget.Of(s, budget.Tofino()), err
}

// Rules lists the rules in force. A program without rules has none.
func (d *Daemon) Rules() ([]rules.Rule, error) {
	list := []rules.Rule{}
	err := d.box(func(p *serialize.Program) error {
		list = append(list, p.Rules().All()...)
		return nil
	})
	if errors.Is(err, errNoBox) {
		err = nil
	}
	return list, err
}

// AddRule adds a rule behind the others, or before them.
func (d *Daemon) AddRule(t RuleText) (rules.Rule, error) {
	r, err := d.rule(t.Rule)
	if err != nil {
		return r, err
	}
	err = d.box(func(p *serialize.Program) error {
		add := p.Rules().Add
		if t.First {
			add = p.Rules().AddFirst
		}
		set, added, err := add(r)
		if err == nil {
			r = *added
			err = p.SetRules(set)
		}
		if err != nil {
			err = refused(err)
		}
		return err
	})
	return r, err
}

// rule reads a rule and finds its server.
func (d *Daemon) rule(text string) (rules.Rule, error) {
	r, err := rules.Parse(text)
	if err != nil {
		return r, refused(err)
	}
	s := d.cfg.Described
	if s == nil {
		return r, nil
	}
	if err := r.Resolve(s.Addresses); err != nil {
		return r, refused(fmt.Errorf("%w; hosts: %v", err, s.HostNames()))
	}
	if err := s.CheckRule(&r); err != nil {
		return r, refused(err)
	}
	return r, nil
}

// ReplaceRules puts rules in the place of those in force, all or none.
func (d *Daemon) ReplaceRules(texts []string) ([]rules.Rule, error) {
	set, err := d.ruleSet(texts)
	if err != nil {
		return nil, err
	}
	err = d.box(func(p *serialize.Program) error { return p.SetRules(set) })
	return append([]rules.Rule{}, set.All()...), err
}

// RemoveRule removes one.
func (d *Daemon) RemoveRule(id string) error {
	return d.box(func(p *serialize.Program) error {
		set, err := p.Rules().Remove(id)
		if err != nil {
			return gone(err)
		}
		return p.SetRules(set)
	})
}

// Report lists connections and what the modes know of them.
func (d *Daemon) Report() (r serialize.Report, err error) {
	err = d.box(func(p *serialize.Program) error {
		r = p.Report(d.now)
		return nil
	})
	return r, err
}

// ProgramCounters lists what the parts of the program counted.
func (d *Daemon) ProgramCounters() (g []serialize.Group, err error) {
	err = d.box(func(p *serialize.Program) error {
		g = p.Counters(d.now)
		return nil
	})
	return g, err
}

// address resolves a server's name or address to the one that rules call Server.
func (d *Daemon) address(server string) (netip.Addr, error) {
	if s := d.cfg.Described; s != nil {
		if addrs := s.Addresses(server); len(addrs) > 0 {
			return addrs[0], nil
		}
	}
	a, err := netip.ParseAddr(server)
	if err != nil {
		return a, refused(fmt.Errorf("%.60q is neither a host of the rack nor an address", server))
	}
	return a, nil
}

// Adopt takes a connection over that was made elsewhere.
func (d *Daemon) Adopt(a Adopted) (info dial.Info, err error) {
	addr, err := d.address(a.Server)
	if err != nil {
		return info, err
	}
	s := dial.Shared{
		Key: dial.Key{Server: addr, Shard: a.Shard}, ServerQPN: a.ServerQPN, OwnQPN: a.OwnQPN,
		SendPSN: a.SendPSN, RecvPSN: a.RecvPSN, MTU: a.MTU, Depth: a.Depth,
	}
	if a.MAC != nil {
		s.To.Eth.Dst = *a.MAC
	}
	err = d.box(func(p *serialize.Program) error {
		o := p.Own()
		if o == nil {
			return errNoBox
		}
		if err := o.Dialer().Adopt(s); err != nil {
			return refused(err)
		}
		d.step(p.Tick)
		for _, i := range o.Dialer().List() {
			if i.Key == s.Key {
				info = i
			}
		}
		return nil
	})
	return info, err
}

// Disown ends an adopted connection of the switch; one that rules need is made anew.
func (d *Daemon) Disown(server, shard string) error {
	addr, err := d.address(server)
	if err != nil {
		return err
	}
	return d.box(func(p *serialize.Program) error {
		o := p.Own()
		if o == nil {
			return errNoBox
		}
		for _, i := range o.Dialer().List() {
			if i.Server != addr || fmt.Sprint(i.Shard) != shard {
				continue
			}
			d.step(func(c *pipeline.Ctx) {
				if i.Shared != nil {
					o.Dialer().Again(c, i.Key, i.Shared.Generation)
				}
				p.Tick(c)
			})
			return nil
		}
		return gone(fmt.Errorf("there is no connection to %.60s, shard %.10s", server, shard))
	})
}
