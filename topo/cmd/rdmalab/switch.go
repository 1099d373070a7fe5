package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// switchCmd looks into the switch and changes what it does.
func switchCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "switch",
		Short: "Look into the switch: program, rules, connections, tables, keys, counters, rewrites",
		Long: "switch shows what the switch's program knows and does, and changes its rules while it runs. The program\n" +
			"swordbox serialises requests to memory servers by rules; it is chosen in the rack file, as in\n" +
			"`rdmalab up -f topo/racks/swordbox.yaml`. The program forward has no rules and no connections.",
		Example: "  rdmalab switch rules add server=ms0 action=atomics shards=2\n" +
			"  rdmalab switch connections\n" +
			"  rdmalab switch trace cn0 ms0",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		switchProgramCmd(), switchRulesCmd(), switchConnectionsCmd(), switchTablesCmd(), switchKeysCmd(), switchCountersCmd(), switchTraceCmd(), switchBudgetCmd(),
	)
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

// listing is a subcommand that asks the switch for one thing and shows it.
func listing[T any](cmd *cobra.Command, path string, show func(cmd *cobra.Command, v T) error) error {
	asJSON, err := wantJSON(cmd)
	if err != nil {
		return err
	}
	var v T
	if err := askBox(cmd, http.MethodGet, path, nil, &v); err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, v)
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

// name is the host with an address, "switch" for the switch's own, or the address itself.
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
