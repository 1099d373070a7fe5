package switchd

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// ProgramText is the body of PUT /program: the program that the switch shall run, and its rules as on the command line.
type ProgramText struct {
	Name  string   `json:"name"`
	Rules []string `json:"rules,omitempty"`
}

// Loaded is a program that can take the place of the running one.
type Loaded struct {
	Program pipeline.Program
	Self    pipeline.Self
	// Keep, if not nil, is called once it runs: a restarted switch shall run it, too.
	Keep func() error
	// Closer, if not nil, is what the program needs as long as it runs.
	io.Closer
}

// errBound says that a program cannot go because of what it has done to connections.
var errBound = errors.New("the program cannot be changed")

func (d *Daemon) handleLoad(m *control.Mux) {
	control.Handle(m, "PUT /program", func(_ *http.Request, t ProgramText) (ProgramInfo, error) {
		if err := d.Load(t); err != nil {
			return ProgramInfo{}, answer(err)
		}
		return d.ProgramInfo()
	})
}

// Load has the switch run a program with rules from now on. If it runs it already, only its rules are exchanged. Connections that
// are open go on: the new program meets them in the middle.
func (d *Daemon) Load(t ProgramText) error {
	d.loading.Lock()
	defer d.loading.Unlock()
	set, err := d.ruleSet(t.Rules)
	switch {
	case err != nil:
		return err
	case !slices.Contains(spec.Programs(), t.Name):
		return refused(fmt.Errorf("program %.40q: the switch has %s", t.Name, strings.Join(spec.Programs(), " and ")))
	case t.Name != spec.ProgramSwordBox && len(t.Rules) > 0:
		return refused(fmt.Errorf("program %s has no rules: rules are for program %s", t.Name, spec.ProgramSwordBox))
	}
	running := ""
	if err := d.Do(func() { running = d.sw.Spec().Name }); err != nil {
		return err
	}
	if running == t.Name {
		if t.Name != spec.ProgramSwordBox {
			return nil
		}
		return d.box(func(p *serialize.Program) error { return p.SetRules(set) })
	}
	if d.cfg.Load == nil {
		return &kindError{errBound, errors.New("this switch keeps its program as long as it runs")}
	}
	l, err := d.cfg.Load(t.Name, set)
	if err != nil {
		return err
	}
	if derr := d.Do(func() { err = d.exchange(l) }); derr != nil || err != nil {
		return errors.Join(derr, err, closeIf(l.Closer))
	}
	former := d.program
	d.program = l.Closer
	d.log.Printf("program %s runs in place of %s, rules %q", t.Name, running, t.Rules)
	err = closeIf(former)
	if l.Keep != nil {
		err = errors.Join(err, l.Keep())
	}
	return err
}

// exchange ends the running program and begins another. Loop only.
func (d *Daemon) exchange(l *Loaded) error {
	if p, ok := d.cfg.Program.(*serialize.Program); ok {
		if n := p.Bound(); n > 0 {
			return &kindError{errBound, fmt.Errorf("requests of %d connections (each way counts) were moved, and only this program knows how to go on "+
				"with them: end those that `rdmalab switch connections` lists as shared, and try again", n)}
		}
	}
	d.farewell()
	start := len(d.out.Frames)
	if err := d.sw.Load(d.now, l.Program, l.Self, &d.out); err != nil {
		return err
	}
	if p, ok := d.cfg.Program.(*serialize.Program); ok {
		p.Unloaded()
	}
	d.toHosts(start, d.sw.Notes())
	d.flush()
	d.cfg.Program, d.cfg.Self = l.Program, l.Self
	return nil
}

// ruleSet reads rules and checks that they go together.
func (d *Daemon) ruleSet(texts []string) (*rules.Set, error) {
	if len(texts) > rules.MaxRules {
		return nil, refused(fmt.Errorf("%d rules; at most %d are allowed", len(texts), rules.MaxRules))
	}
	var list []rules.Rule
	for i, text := range texts {
		r, err := d.rule(text)
		if err != nil {
			return nil, refused(fmt.Errorf("rule %d: %w", i+1, err))
		}
		list = append(list, r)
	}
	set, err := rules.NewSet(list)
	if err != nil {
		return nil, refused(err)
	}
	return set, nil
}

func closeIf(c io.Closer) error {
	if c == nil {
		return nil
	}
	return c.Close()
}
