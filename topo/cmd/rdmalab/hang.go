package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/rack"
)

func hangCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "hang HOST | hang switch",
		Short: "Stop every process of a host or the switch",
		Long: "hang stops everything that runs on a host, its NIC too: it is silent, and its link keeps its carrier. Its\n" +
			"kernel still answers ping. `rdmalab resume` continues it as if no time had passed.",
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
		Use:               "resume HOST | resume switch",
		Short:             "Continue what hangs",
		Example:           "  rdmalab resume ms0",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openRack(cmd)
			if err != nil {
				return err
			}
			if err := r.Resume(cmd.Context(), args[0]); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), args[0], "goes on")
			return err
		},
	}
}

func restartCmd() *cobra.Command {
	var app, nic bool
	cmd := &cobra.Command{
		Use:   "restart HOST [--app | --nic] | restart switch",
		Short: "Bring a host, a part of it, or the switch back, from whatever state",
		Long: "restart starts a host or the switch anew, with the same names and addresses; what still runs there is ended\n" +
			"first. A link that was cut stays cut. --nic and --app bring back only what `crash --nic` and `crash --app` ended.\n" +
			"A switch that was restarted knows the faults of the rack file only, those of `inject` and a partition are gone;\n" +
			"so are the torn copies of a host that was.",
		Example:           "  rdmalab restart ms0",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openRack(cmd)
			if err != nil {
				return err
			}
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
			_, err = fmt.Fprintln(cmd.OutOrStdout(), args[0], "is up")
			return err
		},
	}
	cmd.Flags().BoolVar(&nic, "nic", false, "only the NIC")
	cmd.Flags().BoolVar(&app, "app", false, "only the daemon's services and jobs")
	cmd.MarkFlagsMutuallyExclusive("app", "nic")
	return cmd
}
