package switchd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// ProgramText is the body of PUT /program: the name of the program to run, and its rules in the
// syntax of the command line.
type ProgramText struct {
	Name  string   `json:"name"`
	Rules []string `json:"rules,omitempty"`
}

// Loaded is a program that can replace the running one.
type Loaded struct {
	Program pipeline.Program
	Self    pipeline.Self
	// Keep, if not nil, is called after the program has begun to run. It records which program runs,
	// so that a restarted switch runs the same one.
	Keep func() error
	// Closer, if not nil, frees the resources that the program needs while it runs.
	io.Closer
}

// errBound is the kind of an error for a running program that cannot be replaced: it has moved
// requests of connections that are still open, or the switch was made without Config.Load.
var errBound = errors.New("the program cannot be changed")

// Load makes the switch run a program with rules. If that program runs already, Load replaces only
// its rules. Open connections continue; the new program tracks them although it has not seen their
// handshakes.
func (p *programControl) Load(t ProgramText) error {
	p.loading.Lock()
	defer p.loading.Unlock()
	set, err := p.ruleSet(t.Rules)
	entry, known := apps.Lookup(t.Name)
	switch {
	case err != nil:
		return err
	case !known || t.Name == "":
		return handler.Refused(fmt.Errorf("program %.40q is unknown; %sthe switch has %s", t.Name, nearest.Meant(t.Name, rackfile.Programs()), strings.Join(rackfile.Programs(), " and ")))
	case entry.HasRules && p.onSpine():
		return handler.Refused(fmt.Errorf("%s is a spine, which sees only some packets of a connection: program %s runs on leaves", p.described.Load().Switch.Name, t.Name))
	case !entry.HasRules && len(t.Rules) > 0:
		return handler.Refused(fmt.Errorf("program %s has no rules: rules are for program %s", t.Name, rackfile.ProgramSwordBox))
	}
	running := ""
	if err := p.commands.Do(func() { running = p.traffic.sw.Spec().Name }); err != nil {
		return err
	}
	switch {
	case running == t.Name && !entry.HasRules:
		return nil
	case running == t.Name:
		return p.ruled(func(r apps.Ruled) error { return r.SetRules(set) })
	case p.load == nil:
		return handler.WithKind(errBound, errors.New("this switch keeps its program as long as it runs"))
	}
	l, err := p.load(t.Name, set)
	if err != nil {
		return err
	}
	if err := p.commands.Try(func() error { return p.exchange(l) }); err != nil {
		return errors.Join(err, closeIf(l.Closer))
	}
	former := p.needs
	p.needs = l.Closer
	p.log.Info("another program runs", "program", t.Name, "former", running, "rules", t.Rules)
	err = closeIf(former)
	if l.Keep != nil {
		err = errors.Join(err, l.Keep())
	}
	return err
}

// onSpine reports whether the switch is a spine of a fabric.
func (p *programControl) onSpine() bool {
	rack := p.described.Load()
	return rack != nil && rack.Fabric.IsSpine(rack.Switch.Name)
}

// exchange replaces the running program. Only the loop calls it.
func (p *programControl) exchange(l *Loaded) error {
	former, ruled := p.running.(apps.Ruled)
	if ruled {
		if n := former.Bound(); n > 0 {
			return handler.WithKind(errBound, fmt.Errorf("requests of %d flows (directions of connections) were moved, and only this program can "+
				"continue them: end the connections that `rdmalab switch connections` lists as shared, and try again", n))
		}
	}
	p.traffic.now = p.traffic.clk.Now()
	p.farewell()
	if err := p.traffic.load(l); err != nil {
		return err
	}
	if ruled {
		former.Unloaded()
	}
	p.running, p.self = l.Program, l.Self
	return nil
}

// farewell makes the running program end its connections. Only the loop calls it.
func (p *programControl) farewell() {
	if r, ok := p.running.(apps.Ruled); ok {
		p.traffic.step(r.Close)
	}
}

func (p *programControl) close() error {
	p.loading.Lock()
	defer p.loading.Unlock()
	return closeIf(p.needs)
}

func closeIf(c io.Closer) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// begun returns the rack's description with the program that the switch starts with: the program
// that an operator loaded into the former incarnation of the switch, or else that of the rack file.
// The rules of a loaded program are in the journal.
func begun(rack *rackfile.Rack, own files) (*rackfile.Rack, error) {
	text, err := os.ReadFile(own.program)
	name := string(text)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && name == described(rack):
		return rack, nil
	case err != nil:
		return nil, fmt.Errorf("switch: the program that was loaded: %w", err)
	case !slices.Contains(rackfile.Programs(), name):
		return nil, fmt.Errorf("switch: %s names program %.40q, which does not exist: remove the file", own.program, name)
	}
	return withProgram(rack, name, nil), nil
}

// described returns the name of the program in the rack's description.
func described(rack *rackfile.Rack) string {
	return cmp.Or(rack.Switch.Program, rackfile.ProgramForward)
}

// withProgram returns a copy of the rack with another program and its rules.
func withProgram(rack *rackfile.Rack, name string, list []rules.Rule) *rackfile.Rack {
	r := *rack
	r.Switch.Program, r.Switch.Rules = name, list
	return &r
}

// loader returns a function for Config.Load. The function makes a program that replaces the running
// one. Loaded.Keep stores the program's name, so that a restarted switch runs this program.
//
// described returns the rack's present description.
func loader(current func() *rackfile.Rack, where *apps.Where, own files, logger *slog.Logger) func(string, *rules.Set) (*Loaded, error) {
	return func(name string, set *rules.Set) (*Loaded, error) {
		rack := current()
		r := withProgram(rack, name, set.All())
		rec, err := journalOf(r, own, logger)
		if err != nil {
			return nil, err
		}
		l := &Loaded{Self: apps.Self(r), Closer: rec, Keep: func() error {
			if name == described(rack) {
				err := os.Remove(own.program)
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}
			// The switch may be killed during the write, and must not leave a partial name.
			part := own.program + ".part"
			if err := os.WriteFile(part, []byte(name), 0o644); err != nil {
				return err
			}
			return os.Rename(part, own.program)
		}}
		l.Program, err = apps.New(r, configured(r, rec, where, true))
		if p, ok := l.Program.(apps.Ruled); ok && err == nil {
			err = p.SetRules(set) // the rules of the request, not those in the journal
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("switch: %w", err), rec.Close())
		}
		return l, nil
	}
}
