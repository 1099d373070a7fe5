package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/rack"
)

func hangCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hang HOST | hang switch",
		Short: "Stop every process of a host, or of the switch, until `rdmalab resume`",
		Long: "hang stops every process of a host, including the daemon, which is the host's NIC. So the NIC sends and answers\n" +
			"nothing, but the link keeps its carrier and the kernel still answers ping. Memory and connections stay as they\n" +
			"are until `rdmalab resume`. The clock does not stop: timers of the host that expire meanwhile take effect as\n" +
			"soon as the host is resumed. A switch that hangs forwards nothing.",
		Example:           "  rdmalab hang ms0 --for 2s",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return hurt(cmd, func(r *rack.Rack) (rack.Action, string, error) {
				return rack.ActionResume, args[0] + " hangs", r.Hang(cmd.Context(), args[0])
			}, args[0])
		},
	}
	forFlag(cmd)
	return cmd
}

func resumeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "resume HOST | resume switch",
		Short: "Continue the processes of a host or of the switch that `rdmalab hang` stopped",
		Long: "resume continues every process where `rdmalab hang` stopped it. The host's memory and queue pairs are as they\n" +
			"were, but a peer whose retries ran out meanwhile has ended its side of the connection. resume also cancels the\n" +
			"--for of the hang. To bring back a host or a switch that has crashed, use `rdmalab restart`.",
		Example:           "  rdmalab resume ms0",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNodes,
		RunE: onRack(func(cmd *cobra.Command, args []string, r *rack.Rack) error {
			if err := r.Resume(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), args[0], "goes on")
			return err
		}),
	}
}

func restartCmd() *cobra.Command {
	var app, nic bool
	cmd := &cobra.Command{
		Use:   "restart HOST [--app | --nic] | restart switch",
		Short: "Start a host, the services of its daemon, its NIC, or the switch again, in any state",
		Long: "restart ends all processes of the host, or of the switch, and starts it again with the same names and addresses.\n" +
			"A restarted host has empty memory and no connections: clients connect again, and a store is started again by its\n" +
			"own command, like `rdmalab clover start`. After `rdmalab crash --nic`, `restart --nic` starts only the NIC\n" +
			"again; after `crash --app`, `restart --app` starts only the services of the host's daemon. restart does not\n" +
			"start programs and tests that were running before. A link that was cut stays cut.\n\n" +
			"A restart also ends faults. A restarted switch has only the fault rules of the rack file, and no partition. A\n" +
			"restarted host has no fault rule `inject tear`.",
		Example:           "  rdmalab restart ms0",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNodes,
		RunE: onRack(func(cmd *cobra.Command, args []string, r *rack.Rack) error {
			action := rack.ActionRestart
			switch {
			case nic:
				action = rack.ActionNIC
			case app:
				action = rack.ActionApps
			}
			if err := r.Cancel(cmd.Context(), action, args[0]); err != nil {
				return err
			}
			if err := doers()[action](cmd.Context(), r, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), args[0], "is up")
			return err
		}),
	}
	cmd.Flags().BoolVar(&nic, "nic", false, "start only the NIC again")
	cmd.Flags().BoolVar(&app, "app", false, "start only the services of the host's daemon again")
	cmd.MarkFlagsMutuallyExclusive("app", "nic")
	return cmd
}
