package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func crashCmd() *cobra.Command {
	var app, nic bool
	cmd := &cobra.Command{
		Use:               "crash HOST [--app | --nic] | crash switch",
		Short:             "Crash a host, only its programs, only its NIC, or the switch",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(nodeNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return hurt(cmd, func(r *rack.Rack) (rack.Action, string, error) {
				return crash(cmd.Context(), r, args[0], app, nic)
			}, args[0])
		},
	}
	cmd.Flags().BoolVar(&app, "app", false, "crash only programs, services, running tests and clients of stores")
	cmd.Flags().BoolVar(&nic, "nic", false, "crash only the NIC")
	forFlag(cmd, "restart what has crashed after this time, up to 24h, like 10s (default: it stays down until rdmalab restart)")
	cmd.MarkFlagsMutuallyExclusive("app", "nic")
	return cmd
}

// crash crashes a node or a part of it. It returns the action that ends the fault, and the message
// to print.
func crash(ctx context.Context, r *rack.Rack, node string, app, nic bool) (rack.Action, string, error) {
	if r.Spec.IsSwitch(node) && (app || nic) {
		return "", "", badUse("the switch is crashed as a whole: `rdmalab crash %s`", node)
	}
	switch {
	case app:
		if err := askNICs(ctx, r, node, hostd.PathCrashApp); err != nil {
			return "", "", err
		}
		n, err := r.Apps(node).Crash(ctx)
		return rack.ActionApps, fmt.Sprintf("the services and tests of the daemon and %d programs on %s have crashed", n, node), err
	case nic:
		return rack.ActionNIC, "the NIC of " + node + " has crashed", setNIC(ctx, r, node, hostd.StateDown)
	}
	return rack.ActionRestart, node + " has crashed", r.Crash(ctx, node)
}

// forFlag adds the flag --for, the time after which a fault ends, to a command that calls hurt.
func forFlag(cmd *cobra.Command, help string) {
	cmd.Flags().Duration("for", 0, help)
}

// hurt applies a fault to a node by calling the function `do`, which returns the action that ends
// the fault, and a message. hurt prints the message. If --for was given, it starts the timer that
// ends the fault; otherwise it cancels an earlier timer for the same action.
func hurt(cmd *cobra.Command, do func(r *rack.Rack) (rack.Action, string, error), node string) error {
	d, err := cmd.Flags().GetDuration("for")
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("for") && (d <= 0 || d > rack.MaxAfter) {
		return badUse("--for %v: use a time above 0 and at most %v, like 10s", d, rack.MaxAfter)
	}
	r, err := openRack(cmd)
	if err != nil {
		return err
	}
	undo, said, err := do(r)
	if err != nil {
		return err
	}
	if d > 0 {
		err = r.After(cmd.Context(), d, undo, node)
	} else {
		err = r.Cancel(cmd.Context(), undo, node)
	}
	if err != nil {
		return fmt.Errorf("%s, but its end could not be arranged: %w", said, err)
	}
	if d > 0 {
		said += " for " + d.String()
	}
	return say(cmd, "%s", said)
}
