package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// nicFaults are the faults that `inject nic` makes, in the order of its help.
var nicFaults = []string{hostd.FaultQPError, hostd.FaultCQOverrun, hostd.FaultUnplug}

// injectNICCmd makes faults of a NIC itself.
func injectNICCmd() *cobra.Command {
	var qpn string
	cmd := &cobra.Command{
		Use:   "nic HOST FAULT [--qpn N]",
		Short: "Let a host's NIC fail as hardware does",
		Long: "inject nic makes a NIC fail with the events and completions that failing hardware reports, so that you can watch\n" +
			"how programs react.\n\n" +
			"  qp-error    a queue pair goes to the error state: event QP fatal error, its work requests are flushed\n" +
			"  cq-overrun  the completion queues of a queue pair overrun: event CQ error, and every queue pair that uses them fails\n" +
			"  unplug      the device is gone: event device fatal error; the same as `crash --nic`, and `restart --nic` ends it\n\n" +
			"Without --qpn all queue pairs in use fail. `rdmalab status -o json` lists the queue pairs of each host.",
		Example: "  rdmalab inject nic ms0 qp-error --qpn 0x5a31c2\n" +
			"  rdmalab inject nic cn0 cq-overrun\n" +
			"  rdmalab inject nic cn0 unplug",
		Args: cobra.ExactArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			switch len(args) {
			case 0:
				return hostNames(cmd), cobra.ShellCompDirectiveNoFileComp
			case 1:
				return nicFaults, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f := hostd.NICFault{Kind: args[1]}
			if cmd.Flags().Changed("qpn") {
				n, err := parseQPN(qpn)
				if err != nil {
					return err
				}
				f.QPN = n
			}
			return runInjectNIC(cmd, args[0], f)
		},
	}
	cmd.Flags().StringVar(&qpn, "qpn", "", "number of the queue pair, decimal or 0x…")
	outputFlag(cmd)
	return cmd
}

// parseQPN reads the number of a queue pair of an application: 0 and 1 are the NIC's own.
func parseQPN(s string) (wire.QPN, error) {
	n, err := strconv.ParseUint(s, 0, 24)
	if err != nil || n < 2 {
		return 0, badUse("--qpn %q: take a number from 2 to 0xffffff", s)
	}
	return wire.QPN(n), nil
}

func runInjectNIC(cmd *cobra.Command, host string, f hostd.NICFault) error {
	asJSON, err := wantJSON(cmd)
	if err != nil {
		return err
	}
	rack, paths, err := rackOf(cmd)
	if err != nil {
		return err
	}
	if err := checkHost(rack, host); err != nil {
		return err
	}
	res, err := failNIC(cmd.Context(), paths, host, f)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, res)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s, queue pairs hit: %d\n", host, f.Kind, len(res.QPNs))
	return err
}

func failNIC(ctx context.Context, paths spec.Paths, host string, f hostd.NICFault) (res hostd.NICFaultResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, daemonWait)
	defer cancel()
	err = control.NewClient(paths.Socket(host)).Call(ctx, http.MethodPost, hostd.PathNICFault, f, &res)
	return res, whose(err, host)
}
