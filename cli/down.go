package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func downCmd() *cobra.Command {
	var all, yes, lost bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a rack, including the remains of a crashed one",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case all:
				return downAll(cmd, yes, lost)
			case yes:
				return badUse("--yes goes with --all: down of one rack asks nothing")
			}
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			cleared, err := machines.Clear(cmd.Context(), name)
			if err != nil {
				return errorOfRack(name, err)
			}
			client, several, err := machines.Open(name)
			if err != nil {
				return err
			}
			if !several {
				return downOne(cmd, name, cleared)
			}
			if err := client.Down(cmd.Context(), lost); err != nil {
				return err
			}
			return say(cmd, "rack %q is down", name)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove every rack")
	cmd.Flags().BoolVar(&lost, "lost", false, "of a rack on several machines: forget those that do not answer")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --all: do not ask; needed where the input is no terminal")
	return cmd
}

// onTerminal reports whether input comes from a terminal.
func onTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// onTerminalOut reports whether output goes to a terminal.
func onTerminalOut(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// downAll removes the racks of this machine, and those on several machines whose client it is. What fails
// for one does not keep the others.
func downAll(cmd *cobra.Command, sure, lost bool) error {
	far, err := farRacks()
	if err != nil {
		return err
	}
	own, err := ownRacks()
	if err != nil {
		return err
	}
	list := removals(far, own)
	if len(list) == 0 {
		return say(cmd, "no rack is up")
	}
	return removeAll(cmd, list, sure, lost)
}

// removeAll carries out removals, if sure, or the user agrees on a terminal.
func removeAll(cmd *cobra.Command, list []removal, sure, lost bool) error {
	if !sure {
		texts := make([]string, len(list))
		for i := range list {
			texts[i] = list[i].text
		}
		if !onTerminal(cmd.InOrStdin()) {
			return badUse("down --all would remove %s: %s; if all of them are yours, write: rdmalab down --all --yes", count(len(texts), "rack"), strings.Join(texts, ", "))
		}
		ok, err := agreed(cmd, texts)
		if err != nil || !ok {
			return err
		}
	}
	var errs []error
	for i := range list {
		errs = append(errs, list[i].do(cmd, lost))
	}
	return errors.Join(errs...)
}

// foundRack is a rack, or the remains of one, that down --all has found.
type foundRack struct {
	name       string
	machines   []string // of one whose client this machine is; none of remains
	generation uint64   // 0: it has none, or is not readable
}

// farRacks returns the racks on several machines whose client this machine is.
func farRacks() (list []foundRack, err error) {
	names, err := machines.List()
	for _, name := range names {
		f := foundRack{name: name}
		if c, several, err := machines.Open(name); err == nil && several {
			f.machines, f.generation = c.Rack.Machines.Names(), c.Rack.Generation
		}
		list = append(list, f)
	}
	return list, err
}

// ownRacks returns the racks of this machine, and the slices of others that it has.
func ownRacks() (list []foundRack, err error) {
	names, err := rack.List()
	for _, name := range names {
		f := foundRack{name: name}
		if r, err := rack.Open(name); err == nil {
			f.generation = r.Spec.Generation
		}
		list = append(list, f)
	}
	return list, err
}

// removal is what down --all removes at once.
type removal struct {
	name, text string
	far        bool // a rack on several machines, or its client's remains
	slice      bool // of which this machine has a slice
	beside     bool // of this machine, beside the client of another rack with this name
}

// do removes it.
func (r *removal) do(cmd *cobra.Command, lost bool) error {
	if r.far {
		if err := downFar(cmd, r.name, lost); err != nil || !r.slice {
			return errorOfRack(r.name, err)
		}
	}
	if r.far || r.beside {
		left, err := rack.List()
		if err != nil || !slices.Contains(left, r.name) { // it went with the rack on several machines
			return errorOfRack(r.name, err)
		}
	}
	return downOne(cmd, r.name, false)
}

// errorOfRack returns an error with the name of its rack; nil of nil.
func errorOfRack(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rack %q: %w", name, err)
}

// removals returns what to remove: each rack on several machines with its slice on this one, and each other
// rack of this machine, also if it has the name of one of these.
func removals(far, own []foundRack) (list []removal) {
	for i := range far {
		f := &far[i]
		r := removal{name: f.name, text: f.name, far: true}
		if len(f.machines) > 0 {
			r.text += " on " + strings.Join(f.machines, " ")
		} else {
			r.text += " (remains)"
		}
		r.slice = f.generation != 0 && slices.ContainsFunc(own, func(o foundRack) bool { return o.name == f.name && o.generation == f.generation })
		list = append(list, r)
	}
	for i := range own {
		r := removal{name: own[i].name, text: own[i].name}
		if at := slices.IndexFunc(far, func(f foundRack) bool { return f.name == r.name }); at >= 0 {
			if list[at].slice {
				continue
			}
			r.text, r.beside = r.text+" of this machine", true
		}
		list = append(list, r)
	}
	return list
}

// downFar removes a rack on several machines, or what is left of its client.
func downFar(cmd *cobra.Command, name string, lost bool) error {
	cleared, err := machines.Clear(cmd.Context(), name)
	if err != nil {
		return err
	}
	client, several, err := machines.Open(name)
	if err != nil || !several && !cleared { // not there: another command has taken it away meanwhile
		return err
	}
	if several {
		if err := client.Down(cmd.Context(), lost); err != nil {
			return err
		}
	}
	return say(cmd, "rack %q is down", name)
}

// agreed names the racks and asks whether to remove them. Everything except y and yes means no.
func agreed(cmd *cobra.Command, names []string) (bool, error) {
	fmt.Fprintf(cmd.OutOrStdout(), "down --all removes %s: %s\nRemove them, with all that runs there? [y/N] ", count(len(names), "rack"), strings.Join(names, ", "))
	line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), maxAnswer)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if word := strings.ToLower(strings.TrimSpace(line)); word == "y" || word == "yes" {
		return true, nil
	}
	return false, say(cmd, "nothing was removed")
}

// maxAnswer bounds the answer to a question, in bytes.
const maxAnswer = 64

// downOne removes a rack of this machine. cleared says that something of the rack was removed before.
func downOne(cmd *cobra.Command, name string, cleared bool) error {
	found, err := rack.Down(cmd.Context(), name)
	if err != nil {
		return err
	}
	if !found && !cleared {
		return say(cmd, "rack %q is not up%s", name, otherRacks(name))
	}
	return say(cmd, "rack %q is down", name)
}
