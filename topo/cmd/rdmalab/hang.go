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
		Long: "hang stops every process of a host, also the one that is its NIC: the NIC sends and answers nothing, while the\n" +
			"link keeps its carrier and the kernel still answers ping. Memory and connections stay as they are until `rdmalab\n" +
			"resume`. The clock does not stop: timers of the host that expire meanwhile fire as soon as it is resumed.",
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
		Short: "Start a host, a part of a host, or the switch again, whatever its state is",
		Long: "restart ends those processes of the host, or of the switch, that still run, and starts it again with the same\n" +
			"names and addresses. With --nic or --app it starts again only what `crash --nic` or `crash --app` has ended. A\n" +
			"link that was cut stays cut.\n\n" +
			"Restarting also ends faults. A restarted switch has only the fault rules of the rack file: rules of `rdmalab\n" +
			"inject` on links, and a partition, are gone. A restarted host has no `inject tear` rule any more: copies in its\n" +
			"memory are no longer torn.",
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
	cmd.Flags().BoolVar(&app, "app", false, "start only services and jobs again")
	cmd.MarkFlagsMutuallyExclusive("app", "nic")
	return cmd
}
