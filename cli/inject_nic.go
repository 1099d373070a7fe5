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
		Use:   "nic HOST FAULT [--qpn N]",
		Short: "Make a host's NIC fail as hardware does",
		Long: "inject nic makes a NIC fail with the events and completions that failing hardware reports, so that you can watch\n" +
			"how programs react. It prints how many queue pairs were hit; with --qpn this is always 1. FAULT is one of\n\n" +
			"  qp-error    queue pairs go to the error state: event QP fatal error, their work requests are flushed\n" +
			"  stop        the same, but only for queue pairs whose send queue is a program of work requests that modify each other\n" +
			"              (see `rdmalab redn`); it ends even a program that is an endless loop\n" +
			"  cq-overrun  the completion queues of queue pairs overrun: event CQ error, and every queue pair that uses them fails\n" +
			"  unplug      the device is gone: event device fatal error; as `rdmalab crash HOST --nic`\n\n" +
			"With --qpn the fault hits this queue pair (qp-error, stop) or its completion queues (cq-overrun). Without --qpn,\n" +
			"qp-error hits all queue pairs in use, cq-overrun all their completion queues, and stop all queue pairs that execute\n" +
			"such a program. `rdmalab status -o json` lists the queue pairs of each host, with \"ring\": true if they execute a\n" +
			"program.\n\n" +
			"inject nic fails if the NIC has no queue pair N, if N is in state ERROR or RESET, with stop if N executes no program,\n" +
			"and, except unplug, if the NIC is down already. `rdmalab restart HOST --nic` ends unplug. After qp-error and stop,\n" +
			"programs must reset their queue pairs or make new ones; after cq-overrun they need new completion queues, too.",
		Example: "  rdmalab inject nic ms0 qp-error --qpn 0x5a31c2   # a number that `rdmalab status -o json` lists\n" +
			"  rdmalab inject nic cn0 stop\n" +
			"  rdmalab inject nic cn0 cq-overrun\n" +
			"  rdmalab inject nic cn0 unplug",
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
