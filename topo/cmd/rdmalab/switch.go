package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// switchCmd shows the state of the switch, and changes its program, rules and tables.
func switchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Look into the switch: program, rules, connections, tables, keys, hot addresses, counters, rewrites",
		Long: "The commands below show what the switch's program knows and does, and change its rules while it runs. There are\n" +
			"two programs: forward only forwards, and has no rules; swordbox works on requests to memory servers as its rules\n" +
			"say. The rack file chooses one, as in `rdmalab up -f topo/racks/swordbox.yaml`; `rdmalab switch program` changes\n" +
			"it.",
		Example: "  rdmalab switch rules add server=ms0 action=atomics shards=2\n" +
			"  rdmalab switch connections\n" +
			"  rdmalab switch trace cn0 ms0",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		switchProgramCmd(), switchRulesCmd(), switchConnectionsCmd(), switchTablesCmd(), switchCountersCmd(), switchTraceCmd(), switchBudgetCmd(),
	)
	for _, l := range apps.Listings() {
		cmd.AddCommand(switchListCmd(&l))
	}
	return cmd
}

// askBox calls the switch's daemon.
func askBox(cmd *cobra.Command, method, path string, in, out any) error {
	client, err := switchControl(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), daemonWait)
	defer cancel()
	return whose(client.Call(ctx, method, path, in, out), spec.SwitchName)
}

// listing makes a subcommand that sends one request to the switch and shows the answer.
func listing[T any](cmd *cobra.Command, path string, show func(cmd *cobra.Command, v T) error) error {
	asJSON, err := wantJSON(cmd)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := askBox(cmd, http.MethodGet, path, nil, &raw); err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, raw)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return whose(err, spec.SwitchName)
	}
	return show(cmd, v)
}

// namer turns addresses into the names of hosts.
type namer struct {
	rack  *spec.Rack
	names map[netip.Addr]string
}

func newNamer(cmd *cobra.Command) (namer, error) {
	r, _, err := rackOf(cmd)
	if err != nil {
		return namer{}, err
	}
	n := namer{r, map[netip.Addr]string{r.Switch.IPv4: spec.SwitchName, r.Switch.IPv6: spec.SwitchName}}
	for _, host := range r.HostNames() {
		for _, a := range r.Addresses(host) {
			n.names[a] = host
		}
	}
	return n, nil
}

// name returns the name of the host with an address, "switch" for the switch's addresses, otherwise
// the address itself.
func (n namer) name(a netip.Addr) string {
	if name, ok := n.names[a]; ok {
		return name
	}
	return a.String()
}

func qpText(n wire.QPN) string {
	if n == 0 {
		return "?"
	}
	return fmt.Sprintf("%#x", uint32(n))
}

func psnText(p wire.PSN) string { return fmt.Sprintf("%#06x", uint32(p)) }
