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
		Long: "hang stops every process of a host until `rdmalab resume`. The daemon of the host, which is the host's NIC,\n" +
			"stops, too. So the NIC sends and answers nothing. But the link keeps its carrier, and the kernel still answers\n" +
			"ping. Memory and connections stay as they are.\n\n" +
			"The clock does not stop. Timers of the host that expire in the meantime take effect as soon as the host is\n" +
			"resumed.\n\n" +
			"`hang switch` stops the switch: it forwards nothing.",
		Example: "  rdmalab hang ms0 --for 2s\n" +
			"  rdmalab hang switch --for 1s\n" +
			"  rdmalab hang ms0 && rdmalab resume ms0",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return hurt(cmd, func(r *rack.Rack) (rack.Action, string, error) {
				return rack.ActionResume, args[0] + " hangs", r.Hang(cmd.Context(), args[0])
			}, args[0])
		},
	}
	forFlag(cmd, "resume the host or the switch after this time, like 2s (default: it hangs until rdmalab resume)")
	return cmd
}

func resumeCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "resume HOST | resume switch",
		Short: "Continue the processes of a host or of the switch that `rdmalab hang` stopped",
		Long: "resume continues every process where `rdmalab hang` stopped it. The host's memory and queue pairs are as they\n" +
			"were. But a peer whose retries have run out in the meantime has ended its side of the connection.\n\n" +
			"If --for was given to `rdmalab hang`, resume also cancels that timer. To bring back a host or a switch that has\n" +
			"crashed, use `rdmalab restart`.",
		Example: "  rdmalab hang ms0 && rdmalab resume ms0\n" +
			"  rdmalab resume switch",
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
		Long: "restart ends all processes of a host, or of the switch, and starts it again with the same names and addresses. A\n" +
			"restarted host has empty memory and no connections. Clients must connect again, and the command of a store, like\n" +
			"`rdmalab clover start`, must start the store again.\n\n" +
			"After `rdmalab crash --nic`, `restart --nic` starts only the NIC again. After `rdmalab crash --app`, `restart\n" +
			"--app` starts only the services of the host's daemon again. restart does not start the programs and tests that\n" +
			"were running before. A link that was cut stays cut.\n\n" +
			"A restart also ends faults. A restarted switch has only the fault rules of the rack file, and no partition. A\n" +
			"restarted host has no fault rule of kind tear.",
		Example: "  rdmalab restart ms0\n" +
			"  rdmalab restart cn0 --nic\n" +
			"  rdmalab restart switch",
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
