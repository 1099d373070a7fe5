package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

func faultsCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "List the faults on links, in memories and of verbs, and how often they hit",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, paths, err := rackOf(cmd)
			if err != nil {
				return err
			}
			list, err := listFaults(cmd.Context(), rack, paths)
			if err != nil {
				return err
			}
			if !all {
				list.Faults = slices.DeleteFunc(list.Faults, func(f fault.Status) bool { return f.State == fault.Expired })
				list.Verbs = slices.DeleteFunc(list.Verbs, func(f fault.VerbsStatus) bool { return f.State == fault.Expired })
			}
			if wantJSON(cmd) {
				return errors.Join(printJSON(cmd, list.all()), list.warn(cmd))
			}
			return printFaults(cmd, list)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list rules whose --for has expired")
	listFlags(cmd)
	return cmd
}

type faultList struct {
	// Faults is never nil, so its JSON is always a list.
	Faults []fault.Status
	// Verbs lists the rules at the verbs boundary.
	Verbs []fault.VerbsStatus
	// Partition lists the groups of hosts that cannot reach each other.
	Partition [][]string
	// Silent lists the hosts that did not answer. Their torn copies are missing in Faults.
	Silent []string
}

// all lists the rules of both kinds; it is never nil.
func (l *faultList) all() []any {
	list := make([]any, 0, len(l.Faults)+len(l.Verbs))
	for i := range l.Faults {
		list = append(list, &l.Faults[i])
	}
	for i := range l.Verbs {
		list = append(list, &l.Verbs[i])
	}
	return list
}

func (l *faultList) warn(cmd *cobra.Command) error {
	if len(l.Silent) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "no answer from %s: torn copies there, if any, are not listed\n", strings.Join(l.Silent, ", "))
	return err
}

func listFaults(ctx context.Context, rack *rackfile.Rack, paths rackfile.Paths) (l faultList, err error) {
	if l.Faults, l.Partition, err = switchFaults(ctx, rack, paths); err != nil {
		return l, err
	}
	tears, silent := listTears(ctx, rack, paths)
	l.Faults = append(append([]fault.Status{}, l.Faults...), tears...)
	l.Silent = silent
	l.Verbs = listVerbs(ctx, rack, paths)
	return l, nil
}

// tearWait bounds how long a hung host delays the list.
const tearWait = time.Second

// listTears asks all hosts at once for their torn copies.
func listTears(ctx context.Context, rack *rackfile.Rack, paths rackfile.Paths) (tears []fault.Status, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, tearWait)
	defer cancel()
	names := rack.NICNames()
	plans := make([]hostd.Tear, len(names))
	errs := make([]error, len(names))
	_ = atOnce(names, func(i int, name string) error {
		errs[i] = control.NewClient(paths.Socket(name)).Call(ctx, http.MethodGet, hostd.PathTear, nil, &plans[i])
		return nil
	})
	for i, t := range plans {
		h, _, _ := rack.Host(names[i])
		switch {
		case h.Role == rackfile.Guest && errors.Is(errs[i], control.ErrNotRunning): // a container without a NIC of this project
		case errs[i] != nil:
			silent = append(silent, names[i])
		case t.Probability > 0:
			tears = append(tears, fault.Status{State: fault.Active, Rule: fault.Rule{
				ID: tearID(names[i]), Link: names[i], Kind: fault.Tear, Probability: t.Probability, Delay: t.Pause, For: t.For, Seed: t.Seed,
			}})
		}
	}
	slices.Sort(silent)
	return tears, silent
}

func printFaults(cmd *cobra.Command, l faultList) error {
	out := hinted(cmd, cmd.OutOrStdout())
	if len(l.Faults)+len(l.Verbs) == 0 {
		fmt.Fprintln(out, "no faults; make one with `rdmalab inject loss 10% --link HOST`")
	} else {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ID\tSTATE\tHITS UP\tHITS DOWN\tLEFT\tFAULT")
		for _, f := range l.Faults {
			up := either(f.Kind == fault.Tear || f.Dir == fault.Down, "-", fmt.Sprint(f.HitsUp))
			down := either(f.Kind == fault.Tear || f.Dir == fault.Up, "-", fmt.Sprint(f.HitsDown))
			left := either(f.Remaining > 0, f.Remaining.Round(100*time.Millisecond).String(), "-")
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.ID, f.State, up, down, left, f.Rule)
		}
		for _, f := range l.Verbs {
			left := either(f.Remaining > 0, f.Remaining.Round(100*time.Millisecond).String(), "-")
			fmt.Fprintf(t, "%s\t%s\t%d\t-\t%s\t%s\n", f.ID, f.State, f.Hits, left, f.VerbsRule)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(l.Partition) > 0 {
		fmt.Fprintf(out, "partition: %s\n", groupsText(l.Partition))
	}
	return l.warn(cmd)
}
