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
	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// begun is the rack as its switch begins: with the program that a former life of it was told to run, if that was another than the
// description's. The rules of that one are in its record.
func begun(rack *spec.Rack, paths spec.Paths) (*spec.Rack, error) {
	text, err := os.ReadFile(paths.Program())
	name := string(text)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && name == described(rack):
		return rack, nil
	case err != nil:
		return nil, fmt.Errorf("switch: the program that was loaded: %w", err)
	case !slices.Contains(spec.Programs(), name):
		return nil, fmt.Errorf("switch: %s names program %.40q, which there is not: remove the file", paths.Program(), name)
	}
	return with(rack, name, nil), nil
}

// described is the program that a rack's description names.
func described(rack *spec.Rack) string { return cmp.Or(rack.Switch.Program, spec.ProgramForward) }

// with is a rack with another program.
func with(rack *spec.Rack, name string, list []rules.Rule) *spec.Rack {
	r := *rack
	r.Switch.Program, r.Switch.Rules = name, list
	return &r
}

// loader makes the programs that take the place of the running one, and remembers them for a switch that is restarted.
func loader(rack *spec.Rack, paths spec.Paths, logger *log.Logger) func(string, *rules.Set) (*Loaded, error) {
	return func(name string, set *rules.Set) (*Loaded, error) {
		r := with(rack, name, set.All())
		rec, err := recordOf(r, paths, logger)
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
			part := paths.Program() + ".part" // a switch that is killed now must not find half a name
			if err := os.WriteFile(part, []byte(name), 0o644); err != nil {
				return err
			}
			return os.Rename(part, paths.Program())
		}}
		l.Program, err = apps.New(r, configured(rec, true))
		if p, ok := l.Program.(*serialize.Program); ok && err == nil {
			err = p.SetRules(set) // and not what the record has
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("switch: %w", err), rec.Close())
		}
		return l, nil
	}
}
