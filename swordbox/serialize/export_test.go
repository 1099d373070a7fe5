package serialize

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Flawed is a machine with one of its protections removed.
type Flawed struct {
	*Machine
	// Before is called before each step of the machine; nil: nothing is.
	Before func(m *Machine, now clock.Time)
	// Loses reports whether the machine drops a request instead of handling it; nil: never.
	Loses func(s conntrack.Seen, p *pipeline.Parsed) bool
	// Hides reports whether the machine reports a request to no word; nil: never.
	Hides func(p *pipeline.Parsed) bool
}

func (f *Flawed) before(now clock.Time) {
	if f.Before != nil {
		f.Before(f.Machine, now)
	}
}

// Request implements handler.Machine.
func (f *Flawed) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	f.before(c.Now)
	if f.Loses != nil && f.Loses(s, p) {
		return pipeline.Drop(ReasonOld)
	}
	if f.Hides == nil || !f.Hides(p) {
		return f.Machine.Request(c, s, r, p)
	}
	watched := make([]bool, len(f.servers))
	for i, s := range f.servers {
		watched[i], s.watch = s.watch, false
	}
	v := f.Machine.Request(c, s, r, p)
	for i, w := range watched {
		f.servers[i].watch = w
	}
	return v
}

// Response implements handler.Machine.
func (f *Flawed) Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict {
	f.before(c.Now)
	return f.Machine.Response(c, s, p)
}

// Owned implements handler.Machine.
func (f *Flawed) Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	f.before(c.Now)
	return f.Machine.Owned(c, p)
}

// Tick implements handler.Machine.
func (f *Flawed) Tick(c *pipeline.Ctx) {
	f.before(c.Now)
	f.Machine.Tick(c)
}

// UseFlawed makes programs that are created from now on use Flawed machines. back undoes that.
func UseFlawed(make func(m *Machine) *Flawed) (back func()) {
	sound := Kind.New
	Kind.New = func(e *handler.Env) handler.Handler { return make(sound(e).(*Machine)) }
	return func() { Kind.New = sound }
}

// HurryWords makes words wait only for requests on clients' connections, as if no request were in
// flight on shared connections.
func HurryWords(m *Machine, now clock.Time) {
	for _, s := range m.servers {
		at := now
		for _, l := range m.flows.list {
			if l != nil && l.s == s && l.phase != closed {
				at = clock.Min(at, l.cleanSince(now))
			}
		}
		s.clean, s.cleanAt = at, now
	}
}

// HurryRules makes words not wait after a change of rules.
func HurryRules(m *Machine, _ clock.Time) {
	for _, s := range m.servers {
		s.unsettled, s.settledAt = false, 0
	}
}
