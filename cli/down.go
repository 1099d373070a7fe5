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
				return downAll(cmd, yes || !onTerminal(cmd.InOrStdin()), lost)
			case yes:
				return badUse("--yes goes with --all: down of one rack asks nothing")
			}
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			client, several, err := machines.Open(name)
			if err != nil {
				return err
			}
			if !several {
				return downOne(cmd, name)
			}
			if err := client.Down(cmd.Context(), lost); err != nil {
				return err
			}
			return say(cmd, "rack %q is down", name)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove every rack")
	cmd.Flags().BoolVar(&lost, "lost", false, "of a rack on several machines: forget those that do not answer")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --all: do not ask")
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
	names, err := rack.List()
	if err != nil {
		return err
	}
	far, err := machines.List()
	if err != nil {
		return err
	}
	texts := slices.Clone(far)
	for i, name := range far {
		names = slices.DeleteFunc(names, func(n string) bool { return n == name }) // the slice of this machine goes with it
		if c, _, err := machines.Open(name); err == nil && c != nil {
			texts[i] += " on " + strings.Join(c.Rack.Machines.Names(), " ")
		}
	}
	texts = append(texts, names...)
	if len(texts) == 0 {
		return say(cmd, "no rack is up")
	}
	if !sure {
		ok, err := agreed(cmd, texts)
		if err != nil || !ok {
			return err
		}
	}
	var errs []error
	for _, name := range far {
		if err := downFar(cmd, name, lost); err != nil {
			errs = append(errs, fmt.Errorf("rack %q: %w", name, err))
			continue
		}
		left, err := rack.List()
		errs = append(errs, err)
		if slices.Contains(left, name) { // one of this machine alone
			errs = append(errs, downOne(cmd, name))
		}
	}
	for _, name := range names {
		errs = append(errs, downOne(cmd, name))
	}
	return errors.Join(errs...)
}

// downFar removes a rack on several machines.
func downFar(cmd *cobra.Command, name string, lost bool) error {
	client, several, err := machines.Open(name)
	if err != nil || !several { // not there: another command has taken it away meanwhile
		return err
	}
	if err := client.Down(cmd.Context(), lost); err != nil {
		return err
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

func downOne(cmd *cobra.Command, name string) error {
	found, err := rack.Down(cmd.Context(), name)
	if err != nil {
		return err
	}
	if !found {
		return say(cmd, "rack %q is not up%s", name, otherRacks(name))
	}
	return say(cmd, "rack %q is down", name)
}
