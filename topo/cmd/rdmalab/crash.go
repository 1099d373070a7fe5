package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/spec"
)

func crashCmd() *cobra.Command {
	var app, nic bool
	cmd := &cobra.Command{
		Use:   "crash HOST [--app | --nic] | crash switch",
		Short: "Crash a host, only its programs, only its NIC, or the switch",
		Long: "crash ends things at once and without warning.\n\n" +
			"  crash HOST        everything on the host dies and its link loses its carrier, like a machine without power\n" +
			"  crash HOST --app  programs and running jobs die; NIC and registered memory live on and answer\n" +
			"  crash HOST --nic  the NIC forgets its connections and is silent; programs and the kernel's network live on\n" +
			"  crash switch      the switch dies and swallows every frame\n\n" +
			"`rdmalab restart` (with --app or --nic) brings it back; --for does that by itself.",
		Example: "  rdmalab crash ms0 --for 10s\n" +
			"  rdmalab crash cn0 --app",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openRack(cmd)
			if err != nil {
				return err
			}
			return runCrash(cmd, r, args[0], app, nic)
		},
	}
	cmd.Flags().BoolVar(&app, "app", false, "only programs and jobs")
	cmd.Flags().BoolVar(&nic, "nic", false, "only the NIC")
	forFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("app", "nic")
	return cmd
}

func runCrash(cmd *cobra.Command, r *rack.Rack, node string, app, nic bool) error {
	ctx := cmd.Context()
	if node == spec.SwitchName && (app || nic) {
		return fmt.Errorf("the switch is crashed as a whole: `rdmalab crash %s`", node)
	}
	switch {
	case app:
		if err := askHost(ctx, r, node, hostd.PathCrashApp, nil); err != nil {
			return err
		}
		n, err := r.CrashApps(ctx, node)
		if err != nil {
			return err
		}
		return undoAfter(cmd, r, rack.ActionApps, node, fmt.Sprintf("the daemon's jobs and %d programs on %s have crashed", n, node))
	case nic:
		if err := setNIC(ctx, r, node, hostd.StateDown); err != nil {
			return err
		}
		return undoAfter(cmd, r, rack.ActionNIC, node, "the NIC of "+node+" has crashed")
	}
	if err := r.Crash(ctx, node); err != nil {
		return err
	}
	return undoAfter(cmd, r, rack.ActionRestart, node, node+" has crashed")
}

// forFlag adds --for to a command that undoAfter ends.
func forFlag(cmd *cobra.Command) {
	cmd.Flags().Duration("for", 0, "undo it after that time, like 10s (default: until told)")
}

// forOf reads --for.
func forOf(cmd *cobra.Command) (time.Duration, error) {
	d, err := cmd.Flags().GetDuration("for")
	if err != nil {
		return 0, err
	}
	if cmd.Flags().Changed("for") && d <= 0 {
		return 0, fmt.Errorf("--for %v: take a time above 0, like 10s", d)
	}
	return d, nil
}

// undoAfter says what was done, and arranges for its end if --for was given.
func undoAfter(cmd *cobra.Command, r *rack.Rack, a rack.Action, node, said string) error {
	d, err := forOf(cmd)
	if err != nil {
		return err
	}
	if d == 0 {
		if err := r.Cancel(cmd.Context(), a, node); err != nil {
			return err
		}
	} else {
		if err := r.After(cmd.Context(), d, a, node); err != nil {
			return fmt.Errorf("%s, but it will not end by itself: %w", said, err)
		}
		said += " for " + d.String()
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), said)
	return err
}
