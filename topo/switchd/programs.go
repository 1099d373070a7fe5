package switchd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/chipcost"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// programControl serves operators' requests about the switch program. It knows programs only
// through their registry (swordbox/apps) and the interfaces that they implement.
type programControl struct {
	commands *commands
	traffic  *traffic
	log      *slog.Logger
	// load makes a program that replaces the running one; nil means that the running program cannot
	// be replaced. described is the rack's description, with the names of servers; nil means that
	// there is none. where is how programs see the hosts.
	load      func(name string, set *rules.Set) (*Loaded, error)
	described atomic.Pointer[rackfile.Rack]
	where     *apps.Where

	// running is the running program, and self the addresses that it uses. Only the loop uses these
	// fields.
	running pipeline.Program
	self    pipeline.Self
	decided *pipeline.Decisions // what the switch's programs have dropped and refused; nil means that nothing is known

	// loading is held while one program replaces another. It guards needs, the resources of the
	// running program.
	loading sync.Mutex
	needs   io.Closer
}

// ProgramInfo is the answer to GET /program.
type ProgramInfo struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	// Programs lists the programs that a rack file can name. Described is the one that this rack's
	// file names.
	Programs  []string `json:"programs"`
	Described string   `json:"described,omitempty"`
	// Bits is the size of the state that the program declares, in bits.
	Bits int `json:"bits"`
	// Rules is how many rules are in force. MAC and Addresses are the addresses of the switch
	// itself.
	Rules int `json:"rules"`
	// Bound is how many flows would break if the program were replaced now: see PUT /program.
	Bound     int          `json:"bound,omitempty"`
	MAC       wire.MAC     `json:"mac,omitzero"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// RuleText is the body of POST /rules: a rule in the syntax of the command line.
type RuleText struct {
	Rule string `json:"rule"`
	// First is true if the new rule is to precede the others.
	First bool `json:"first,omitempty"`
}

// RuleTexts is the body of PUT /rules: all rules, in the order in which they apply.
type RuleTexts struct {
	Rules []string `json:"rules"`
}

func (p *programControl) handle(m *control.Mux) {
	control.Handle(m, "GET /program", func(*http.Request, none) (ProgramInfo, error) { return p.Info() })
	control.Handle(m, "PUT /program", func(_ *http.Request, t ProgramText) (ProgramInfo, error) {
		if err := p.Load(t); err != nil {
			return ProgramInfo{}, answer(err)
		}
		return p.Info()
	})
	control.Handle(m, "GET /budget", func(*http.Request, none) (chipcost.Budget, error) { return p.Budget() })
	control.Handle(m, "GET /rules", func(*http.Request, none) ([]rules.Rule, error) { return p.Rules() })
	control.Handle(m, "POST /rules", func(_ *http.Request, t RuleText) (rules.Rule, error) {
		r, err := p.AddRule(t)
		return r, answer(err)
	})
	control.Handle(m, "PUT /rules", func(_ *http.Request, t RuleTexts) ([]rules.Rule, error) {
		list, err := p.ReplaceRules(t.Rules)
		return list, answer(err)
	})
	control.Handle(m, "DELETE /rules/{id}", func(r *http.Request, _ none) (none, error) {
		return none{}, answer(p.RemoveRule(r.PathValue("id")))
	})
	for _, req := range apps.Requests() {
		control.Handle(m, req.Pattern, func(r *http.Request, body json.RawMessage) (any, error) {
			out, err := p.serve(&req, r, body)
			return out, answer(err)
		})
	}
}

func (p *programControl) serve(req *handler.Request, r *http.Request, body []byte) (out any, err error) {
	err = p.commands.Try(func() (err error) {
		out, err = req.Do(p.running, &handler.Call{
			Now: p.traffic.now, Body: func(into any) error { return decode(body, into) }, Value: r.PathValue, Address: p.address,
			Step: p.traffic.step,
		})
		return err
	})
	return out, err
}

// decode decodes the body of a request. Like package control, it refuses unknown fields.
func decode(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return handler.Refused(fmt.Errorf("request body: %w", err))
	}
	return nil
}

// ruled makes the loop run f with the running program. The error is ErrNoRules if the program has
// no rules.
func (p *programControl) ruled(f func(r apps.Ruled) error) error {
	return p.commands.Try(func() error {
		if r, ok := p.running.(apps.Ruled); ok {
			return f(r)
		}
		return handler.ErrNoRules
	})
}

func (p *programControl) Info() (i ProgramInfo, err error) {
	err = p.commands.Do(func() {
		s := p.traffic.sw.Spec()
		i = ProgramInfo{Name: s.Name, Doc: s.Doc, Programs: rackfile.Programs(), Bits: s.Bits(), MAC: p.self.MAC, Addresses: p.self.Addrs}
		if r := p.described.Load(); r != nil {
			i.Described = described(r)
		}
		if r, ok := p.running.(apps.Ruled); ok {
			i.Bound = r.Bound()
			i.Rules = len(r.Rules().All())
		}
	})
	return i, err
}

// Budget returns the resources of a switching chip that the program would need.
func (p *programControl) Budget() (b chipcost.Budget, err error) {
	var s pipeline.Spec
	err = p.commands.Do(func() { s = p.traffic.sw.Spec() })
	return chipcost.Of(s, chipcost.Tofino()), err
}

// Rules lists the rules in force. A program without rules has none.
func (p *programControl) Rules() ([]rules.Rule, error) {
	list := []rules.Rule{}
	err := p.ruled(func(r apps.Ruled) error {
		list = append(list, r.Rules().All()...)
		return nil
	})
	if errors.Is(err, handler.ErrNoRules) {
		err = nil
	}
	return list, err
}

// AddRule adds a rule after the others; with t.First, before them.
func (p *programControl) AddRule(t RuleText) (rules.Rule, error) {
	rule, err := p.rule(t.Rule)
	if err != nil {
		return rule, err
	}
	err = p.ruled(func(r apps.Ruled) error {
		add := r.Rules().Add
		if t.First {
			add = r.Rules().AddFirst
		}
		set, added, err := add(rule)
		if err == nil {
			rule = *added
			err = r.SetRules(set)
		}
		return handler.Refused(err)
	})
	return rule, err
}

// rule parses a rule and resolves its server.
func (p *programControl) rule(text string) (rules.Rule, error) {
	r, err := rules.Parse(text)
	if err != nil {
		return r, handler.Refused(err)
	}
	s := p.described.Load()
	if s == nil {
		return r, nil
	}
	if err := r.Resolve(s.Addresses); err != nil {
		return r, handler.Refused(rules.ListHosts(err, s.HostNames()))
	}
	if at := s.RuleAt(&r); s.Fabric != nil && at != s.Switch.Name {
		return r, handler.Refused(fmt.Errorf("%s is connected to %s, whose rules each request to it passes: add the rule there, by --switch %s", r.Host, at, at))
	}
	return r, handler.Refused(s.CheckRule(&r))
}

// ruleSet parses rules and checks that they can be in force together.
func (p *programControl) ruleSet(texts []string) (*rules.Set, error) {
	if len(texts) > rules.MaxRules {
		return nil, handler.Refused(fmt.Errorf("%d rules; at most %d are allowed", len(texts), rules.MaxRules))
	}
	var list []rules.Rule
	for i, text := range texts {
		r, err := p.rule(text)
		if err != nil {
			return nil, handler.Refused(fmt.Errorf("rule %d: %w", i+1, err))
		}
		list = append(list, r)
	}
	set, err := rules.NewSet(list)
	return set, handler.Refused(err)
}

// ReplaceRules replaces all rules in force. If it returns an error, the old rules stay.
func (p *programControl) ReplaceRules(texts []string) ([]rules.Rule, error) {
	set, err := p.ruleSet(texts)
	if err != nil {
		return nil, err
	}
	err = p.ruled(func(r apps.Ruled) error { return r.SetRules(set) })
	return append([]rules.Rule{}, set.All()...), err
}

func (p *programControl) RemoveRule(id string) error {
	return p.ruled(func(r apps.Ruled) error {
		set, err := r.Rules().Remove(id)
		if err != nil {
			return handler.Gone(err)
		}
		return r.SetRules(set)
	})
}

// address returns the address by which rules name a server. server is the name of a host of the
// rack, or an address.
func (p *programControl) address(server string) (netip.Addr, error) {
	meant := ""
	if s := p.described.Load(); s != nil {
		if addrs := s.Addresses(server); len(addrs) > 0 {
			return addrs[0], nil
		}
		meant = nearest.Meant(server, s.HostNames())
	}
	a, err := netip.ParseAddr(server)
	if err != nil {
		return a, handler.Refused(fmt.Errorf("%.60q is unknown; %sname a host of the rack, or an address", server, meant))
	}
	return a, nil
}
