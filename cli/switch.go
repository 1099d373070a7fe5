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
		Long: "The commands below show what the program of the switch knows and does, and change the program and its rules while\n" +
			"the rack is up. There are two programs:\n\n" +
			"  forward    forwards packets; it has no rules\n" +
			"  swordbox   works on requests to memory servers as its rules say; `rdmalab switch rules add --help` lists what rules\n" +
			"             can do\n\n" +
			"The rack file chooses the program (default forward), as in `rdmalab up -f topo/racks/swordbox.yaml`; `rdmalab\n" +
			"switch program` changes it. With forward, the commands program, tables, trace and budget work, and rules shows an\n" +
			"empty list; all others need swordbox.\n\n" +
			"Terms of these pages (docs/glossary.md has more):\n\n" +
			"  hardened, published  a published rule works as in the SwordBox paper; a hardened rule, the default, closes the paper's\n" +
			"                       holes, which are ways in which its design loses data, hangs or is slow (swordbox/HOLES.md)\n" +
			"  tracked              the switch knows both directions of a reliable connection, the expected PSN and the path MTU\n" +
			"  shared connection    a reliable connection to a memory server that carries requests of several clients. The switch\n" +
			"                       makes it; under published rules, the switch takes the connection of a client\n" +
			"  moved request        a request that the switch sends on a shared connection instead of the client's connection.\n" +
			"                       Clients and servers do not notice this, because the switch translates PSNs",
		Example: "  rdmalab switch program swordbox && rdmalab switch rules add server=ms0 action=atomics shards=2\n" +
			"  rdmalab switch connections\n" +
			"  rdmalab switch trace cn0 ms0",
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(
		switchProgramCmd(), switchRulesCmd(), switchConnectionsCmd(), switchQueuesCmd(), switchTablesCmd(), switchCountersCmd(), switchTraceCmd(), switchBudgetCmd(),
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
	return print(cmd.OutOrStdout(), names, v)
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
