package switchd

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"slices"

	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// begun returns the rack's description with the program that the switch starts with: the program
// that an operator loaded into the former incarnation of the switch, or else that of the rack file.
// The rules of a loaded program are in the journal.
func begun(rack *spec.Rack, paths spec.Paths) (*spec.Rack, error) {
	text, err := os.ReadFile(paths.Program())
	name := string(text)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && name == described(rack):
		return rack, nil
	case err != nil:
		return nil, fmt.Errorf("switch: the program that was loaded: %w", err)
	case !slices.Contains(spec.Programs(), name):
		return nil, fmt.Errorf("switch: %s names program %.40q, which does not exist: remove the file", paths.Program(), name)
	}
	return withProgram(rack, name, nil), nil
}

// described returns the name of the program in the rack's description.
func described(rack *spec.Rack) string { return cmp.Or(rack.Switch.Program, spec.ProgramForward) }

// withProgram returns a copy of the rack with another program and its rules.
func withProgram(rack *spec.Rack, name string, list []rules.Rule) *spec.Rack {
	r := *rack
	r.Switch.Program, r.Switch.Rules = name, list
	return &r
}

// loader returns a function for Config.Load. The function makes a program that replaces the running
// one. The program's Keep stores its name for a restarted switch.
func loader(rack *spec.Rack, paths spec.Paths, logger *log.Logger) func(string, *rules.Set) (*Loaded, error) {
	return func(name string, set *rules.Set) (*Loaded, error) {
		r := withProgram(rack, name, set.All())
		rec, err := journalOf(r, paths, logger)
		if err != nil {
			return nil, err
		}
		l := &Loaded{Self: apps.Self(r), Closer: rec, Keep: func() error {
			if name == described(rack) {
				err := os.Remove(paths.Program())
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}
			// The switch may be killed during the write, and must not leave a partial name.
			part := paths.Program() + ".part"
			if err := os.WriteFile(part, []byte(name), 0o644); err != nil {
				return err
			}
			return os.Rename(part, paths.Program())
		}}
		l.Program, err = apps.New(r, configured(rec, true))
		if p, ok := l.Program.(apps.Ruled); ok && err == nil {
			err = p.SetRules(set) // the rules of the request, not those in the journal
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("switch: %w", err), rec.Close())
		}
		return l, nil
	}
}
