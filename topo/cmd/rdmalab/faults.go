package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/switchd"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// faultsCmd lists faults.
func faultsCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "faults",
		Short: "List the faults on links and in memories, and how often they hit",
		Long: "faults lists the rules that `rdmalab inject` and the rack file installed, also those that ended by themselves\n" +
			"lately: spent ones have used up --once or --next, expired ones their --for. Crashed and hung nodes and cut\n" +
			"links are in `rdmalab status`.",
		Example: "  rdmalab faults\n" +
			"  rdmalab faults -o json | jq '.faults[] | {id, hitsUp, hitsDown}'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			rack, paths, err := rackOf(cmd)
			if err != nil {
				return err
			}
			list, err := listFaults(cmd.Context(), rack, paths)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, list)
			}
			return printFaults(cmd, list)
		},
	}
	outputFlag(cmd)
	return cmd
}

// faultList is what `faults -o json` prints.
type faultList struct {
	Faults []fault.Status `json:"faults"`
	// Partition lists groups of hosts that are kept apart.
	Partition [][]string `json:"partition,omitempty"`
	// Silent are nodes that did not answer, so that their faults are missing here.
	Silent []string `json:"silent,omitempty"`
}

// listFaults asks the switch and all hosts.
func listFaults(ctx context.Context, rack *spec.Rack, paths spec.Paths) (l faultList, err error) {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	sw := control.NewClient(paths.Socket(spec.SwitchName))
	if err := sw.Call(ctx, http.MethodGet, "/faults", nil, &l.Faults); err != nil {
		return l, whose(err, spec.SwitchName)
	}
	var status switchd.Status
	if err := sw.Call(ctx, http.MethodGet, "/status", nil, &status); err != nil {
		return l, whose(err, spec.SwitchName)
	}
	l.Partition = status.Partition
	tears, silent := listTears(ctx, rack, paths)
	l.Faults = append(l.Faults, tears...)
	l.Silent = silent
	return l, nil
}

// tearWait bounds how long a hung host holds the list up.
const tearWait = time.Second

// listTears asks all hosts at once for their torn copies.
func listTears(ctx context.Context, rack *spec.Rack, paths spec.Paths) (tears []fault.Status, silent []string) {
	ctx, cancel := context.WithTimeout(ctx, tearWait)
	defer cancel()
	names := rack.HostNames()
	plans := make([]hostd.Tear, len(names))
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			errs[i] = control.NewClient(paths.Socket(name)).Call(ctx, http.MethodGet, hostd.PathTear, nil, &plans[i])
		})
	}
	wg.Wait()
	for i, t := range plans {
		switch {
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
	out := cmd.OutOrStdout()
	if len(l.Faults) == 0 {
		fmt.Fprintln(out, "no faults; make one with `rdmalab inject loss 10% --link HOST`")
	} else {
		t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "ID\tSTATE\tHITS UP\tHITS DOWN\tLEFT\tFAULT")
		for _, f := range l.Faults {
			left, up, down := "-", fmt.Sprint(f.HitsUp), fmt.Sprint(f.HitsDown)
			if f.Remaining > 0 {
				left = f.Remaining.Round(100 * time.Millisecond).String()
			}
			if f.Kind == fault.Tear || f.Dir == fault.Down {
				up = "-"
			}
			if f.Kind == fault.Tear || f.Dir == fault.Up {
				down = "-"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", f.ID, f.State, up, down, left, f.Rule)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if len(l.Partition) > 0 {
		fmt.Fprintf(out, "partition: %v\n", l.Partition)
	}
	if len(l.Silent) > 0 {
		fmt.Fprintf(out, "no answer from %v: their torn copies, if any, are not listed\n", l.Silent)
	}
	return nil
}
