package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/rackplan"
)

func applyCmd() *cobra.Command {
	var file string
	var dryRun, replace bool
	cmd := &cobra.Command{
		Use:   "apply -f RACK.yaml",
		Short: "Change a rack that is up to what a rack file says",
		Args:  fileByFlag,
		RunE: func(cmd *cobra.Command, _ []string) error {
			want, err := readRack(cmd, file)
			if err != nil {
				return err
			}
			r, err := openFor(cmd, file, want.Name)
			if err != nil {
				return dryFailure(dryRun, err)
			}
			if dryRun {
				return showPlan(cmd, r, want, replace)
			}
			unix.Umask(umask)
			return runApply(cmd, r, want, replace)
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "rack file that says what the rack shall be")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print the difference")
	cmd.Flags().BoolVar(&replace, "replace", false, "remove hosts and make them again if they cannot change otherwise")
	must(cmd.MarkFlagFilename("file", "yaml", "yml"))
	must(cmd.MarkFlagRequired("file"))
	return cmd
}

// openFor opens the rack that a rack file is about. The error for a rack that is not up says how it comes up from this file:
// `rdmalab up` alone would bring up the built-in rack, under another name.
func openFor(cmd *cobra.Command, file, name string) (*rack.Rack, error) {
	r, err := rack.Open(name)
	if !errors.Is(err, rack.ErrNotUp) {
		return r, err
	}
	if cmd.Flag("rack").Changed { // without it the file decides, and it may have a name
		return nil, fmt.Errorf("rack %q is not up: run `rdmalab up --rack %s -f %s` first%s", name, name, file, otherRacks(name))
	}
	return nil, fmt.Errorf("rack %q is not up: run `rdmalab up -f %s` first%s", name, file, otherRacks(name))
}

// dryFailure gives a failure of --dry-run the exit status 2: 1 means that there is a difference.
func dryFailure(dryRun bool, err error) error {
	if dryRun && err != nil && !isUse(err) {
		return failure{err, exitUsage}
	}
	return err
}

// refused makes a change that is impossible an error about the command line: nothing was done.
func refused(err error) error {
	if errors.Is(err, rackplan.ErrRefused) {
		return asUse(err)
	}
	return err
}

func showPlan(cmd *cobra.Command, r *rack.Rack, want *rackfile.Rack, replace bool) error {
	p, err := r.Applier(want, replace).Plan(cmd.Context())
	if err != nil {
		return dryFailure(true, refused(err))
	}
	printPlan(cmd, p)
	if p.Empty() {
		return nil
	}
	return exitCode(1)
}

// printPlan prints the lines of a plan, or that there are none.
func printPlan(cmd *cobra.Command, p *rackplan.Plan) {
	if p.Empty() {
		fmt.Fprintf(cmd.OutOrStdout(), "rack %q is as the file says: nothing to do\n", p.Rack.Name)
		return
	}
	for _, c := range p.Changes {
		fmt.Fprintln(cmd.OutOrStdout(), c)
	}
}

func runApply(cmd *cobra.Command, r *rack.Rack, want *rackfile.Rack, replace bool) error {
	var finished []string
	err := r.Applier(want, replace).Apply(cmd.Context(), func(p *rackplan.Plan) { printPlan(cmd, p) }, func(step string) { finished = append(finished, step) })
	var stopped *rack.ApplyError
	switch {
	case errors.As(err, &stopped):
		list := func(steps []string) string {
			if len(steps) == 0 {
				return "nothing"
			}
			return strings.Join(steps, ", ")
		}
		return fmt.Errorf("%w\ndone: %s\nnot done: %s\nThe same apply, repeated, does the rest", err, list(finished), list(append([]string{stopped.Step}, stopped.Left...)))
	case err != nil:
		return refused(err)
	case len(finished) > 0:
		return say(cmd, "rack %q is as the file says: %s done", want.Name, count(len(finished), "step"))
	}
	return nil
}
