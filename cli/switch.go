package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
)

func switchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Show and change what the switch does with RDMA packets: its program, rules, connections and tables",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(
		switchProgramCmd(), switchRulesCmd(), switchConnectionsCmd(), switchQueuesCmd(), switchTablesCmd(), switchCountersCmd(), switchTraceCmd(), switchBudgetCmd(), switchHeavyCmd(), switchTracedCmd(),
	)
	addSwitchFlag(cmd)
	for _, l := range apps.Listings() {
		list := switchListCmd(&l)
		if l.Name == lookuptable.Kind.Listings[0].Name {
			list.AddCommand(switchLookupCmds()...)
		}
		cmd.AddCommand(list)
	}
	return cmd
}

// askBox sends a request to the switch that the command is about.
func askBox(cmd *cobra.Command, method, path string, in, out any) error {
	name, err := theSwitch(cmd)
	if err != nil {
		return err
	}
	return askNode(cmd, name, method, path, in, out)
}

// listing sends one GET request to the switch and shows the answer, as JSON if -o json was given.
func listing[T any](cmd *cobra.Command, path string, print func(out io.Writer, names rackfile.Names, v T) error) error {
	name, err := theSwitch(cmd)
	if err != nil {
		return err
	}
	return listingOf(cmd, name, path, print)
}

// listingOf is listing for a switch that the command's argument names.
func listingOf[T any](cmd *cobra.Command, name, path string, print func(out io.Writer, names rackfile.Names, v T) error) error {
	var raw json.RawMessage
	if err := askNode(cmd, name, http.MethodGet, path, nil, &raw); err != nil {
		return err
	}
	if wantJSON(cmd) {
		return printJSON(cmd, raw)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return withNode(err, name)
	}
	names, err := namesOf(cmd)
	if err != nil {
		return err
	}
	return print(hinted(cmd, cmd.OutOrStdout()), names, v)
}

func namesOf(cmd *cobra.Command) (rackfile.Names, error) {
	r, _, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	return r.Names(), nil
}

func qpText(n wire.QPN) string { return either(n != 0, fmt.Sprintf("%#x", uint32(n)), "?") }

func psnText(p wire.PSN) string { return fmt.Sprintf("%#06x", uint32(p)) }
