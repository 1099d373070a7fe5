package cli

import (
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// nicFaults are the faults that `inject nic` makes, in the order of its help.
var nicFaults = []string{hostd.FaultQPError, hostd.FaultStop, hostd.FaultCQOverrun, hostd.FaultUnplug}

func injectNICCmd() *cobra.Command {
	var qpn string
	cmd := &cobra.Command{
		Use:               "nic HOST FAULT [--qpn N]",
		Short:             "Make a host's NIC fail as hardware does",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: arguments(hostNames, words(nicFaults...)),
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
	cmd.Flags().StringVar(&qpn, "qpn", "", "number of the queue pair, decimal or 0x…; not with unplug (default: all that the fault can hit)")
	outputFlag(cmd)
	return cmd
}

// parseQPN parses the number of a queue pair of an application; 0 and 1 belong to the NIC.
func parseQPN(s string) (wire.QPN, error) {
	n, err := strconv.ParseUint(s, 0, 24)
	if err != nil || n < 2 {
		return 0, badUse("--qpn %q: use a number from 2 to 0xffffff", s)
	}
	return wire.QPN(n), nil
}

func runInjectNIC(cmd *cobra.Command, host string, f hostd.NICFault) error {
	var res hostd.NICFaultResult
	if err := askNode(cmd, host, http.MethodPost, hostd.PathNICFault, f, &res); err != nil {
		return err
	}
	if wantJSON(cmd) {
		return printJSON(cmd, res)
	}
	return say(cmd, "%s: %s, queue pairs hit: %d", host, f.Kind, len(res.QPNs))
}
