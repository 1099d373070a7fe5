package main

import (
	"fmt"
	"net/http"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// cloverCmd is the key-value store.
func cloverCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "clover COMMAND",
		Short: "Run the key-value store Clover on the rack",
		Long: "clover runs a key-value store on the rack's memory servers: the metadata host gives out space, clients read\n" +
			"and write the memory by one-sided verbs, memory servers do nothing. The values are in the memory of the\n" +
			"memory servers; they survive the end of the metadata server, not that of their memory.",
		Example: "  rdmalab clover start\n" +
			"  rdmalab clover insert 7 hello && rdmalab clover get 7\n" +
			"  rdmalab run ycsb --workload a --clients 16\n" +
			"  rdmalab clover stat",
	}
	cmd.AddCommand(cloverStartCmd(), cloverStopCmd(), cloverStatCmd(), cloverCheckCmd(), cloverLoadCmd(), cloverShellCmd())
	for _, op := range []struct{ name, use, short, example string }{
		{"get", "get KEY", "Read a value", "get 7 -v"},
		{"put", "put KEY VALUE", "Replace the value of a key that exists", "put 7 seven"},
		{"insert", "insert KEY VALUE", "Give a new key a value", "insert 7 'hello there' --from cn1"},
		{"delete", "delete KEY", "Take a key away", "delete 7"},
	} {
		cmd.AddCommand(cloverOpCmd(op.name, op.use, op.short, op.example))
	}
	return cmd
}

// metaHost is the host that runs the metadata server: the first with that role.
func metaHost(r *spec.Rack) (string, error) {
	if list := r.ByRole(spec.Metadata); len(list) > 0 {
		return list[0].Name, nil
	}
	return "", fmt.Errorf("rack %s has no metadata host: give one `role: metadata` in the rack file", r.Name)
}

func cloverStartCmd() *cobra.Command {
	var cfg hostd.StoreConfig
	var region string
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start the metadata server",
		Long: "start lets the metadata host find the store that is in the memory servers' memory, or make one there. It\n" +
			"takes the memory that the rack file gives them. A metadata server that runs stays as it is; it is refused to\n" +
			"make another store under its clients: `rdmalab clover stop` comes first, when they have ended.",
		Example: "  rdmalab clover start\n" +
			"  rdmalab clover stop; rdmalab clover start --fresh --keys 100000 --region 16MiB",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			if region != "" {
				n, err := spec.ParseSize(region)
				if err != nil {
					return badUse("--region: %w", err)
				}
				cfg.Region = int(n)
			}
			for _, h := range rack.ByRole(spec.Memory) {
				cfg.Servers = append(cfg.Servers, h.Name)
			}
			return startStore(cmd, rack, cfg)
		},
	}
	cmd.Flags().StringVar(&cfg.Format, "format", "", "what nodes carry: sound (key, length, checksum), keyed, or vanilla as published (default sound)")
	cmd.Flags().IntVar(&cfg.Keys, "keys", 0, "how many keys the store can hold (default 65536)")
	complete(cmd, "format", "sound", "keyed", "vanilla")
	cmd.Flags().StringVar(&region, "region", "", "how much of each memory server to use, like 1MiB (default all)")
	cmd.Flags().DurationVar(&cfg.Lease, "lease", 0, "how long a client may use what it knows without a word from the metadata server (default 2s)")
	cmd.Flags().BoolVar(&cfg.Fresh, "fresh", false, "begin with an empty store, whatever the memory holds; it takes values when clients of a former one have no lease any more")
	return cmd
}

func startStore(cmd *cobra.Command, rack *spec.Rack, cfg hostd.StoreConfig) error {
	if err := noTree(rack, statusOf(cmd)); err != nil {
		return err
	}
	return askMeta(cmd, rack, hostd.PathStoreStart, cfg)
}

func cloverStopCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the metadata server; the memory keeps the store",
		Example: "  rdmalab clover stop\n" +
			"  rdmalab clover start # finds everything again",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			return askMeta(cmd, rack, hostd.PathStoreStop, nil)
		},
	}
}

// askMeta makes a request to the daemon of the metadata server's host.
func askMeta(cmd *cobra.Command, rack *spec.Rack, path string, in any) error {
	host, err := metaHost(rack)
	if err != nil {
		return err
	}
	client, err := hostControl(cmd, host)
	if err != nil {
		return err
	}
	if err := client.Call(cmd.Context(), http.MethodPost, path, in, nil); err != nil {
		return fmt.Errorf("host %s: %w", host, err)
	}
	return nil
}

func cloverStatCmd() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "stat",
		Short: "Show the metadata server's counters and where the nodes are",
		Example: "  rdmalab clover stat\n" +
			"  rdmalab clover stat -o json | jq .Free",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asJSON, err := wantJSON(cmd)
			if err != nil {
				return err
			}
			var st rpc.Stats
			if err := storeRequest(cmd, from, hostd.PathStoreStat, hostd.StoreOp{Op: "stat"}, &st); err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd, st)
			}
			return printStoreStats(cmd, &st)
		},
	}
	fromFlag(cmd, &from)
	outputFlag(cmd)
	return cmd
}

func printStoreStats(cmd *cobra.Command, st *rpc.Stats) error {
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "keys\t%d of %d\tlost %d\n", st.Keys, st.Slots, st.LostKeys)
	_, _ = fmt.Fprintf(w, "nodes\t%d\tfree %d, held by clients %d, in chains %d, waiting for an epoch %d\n", st.Nodes, st.Free, st.Held, st.Linked, st.Worn)
	_, _ = fmt.Fprintf(w, "clients\t%d\tepoch %d\n", st.Clients, st.Epoch)
	_, _ = fmt.Fprintf(w, "requests\t%d\trefused %d\n", st.Requests, st.Refused)
	_, _ = fmt.Fprintf(w, "chains\t%d headers read\tkeys recovered %d, memories lost %d, chains broken %d\n", st.Walked, st.Recovered, st.Losses, st.Broken)
	return w.Flush()
}

// storeRequest has a host make a request as a client of the store.
func storeRequest(cmd *cobra.Command, from, path string, in hostd.StoreOp, out any) error {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return err
	}
	if in.Meta, err = metaHost(rack); err != nil {
		return err
	}
	return clientRequest(cmd, rack, from, path, in, out)
}

func cloverOpCmd(name, use, short, example string) *cobra.Command {
	var from string
	var verbose bool
	args := 1
	if name == "put" || name == "insert" {
		args = 2
	}
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  rdmalab clover " + example,
		Args:    cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args[0])
			if err != nil {
				return err
			}
			in := hostd.StoreOp{Op: name, Key: key}
			if len(args) > 1 {
				in.Value = []byte(args[1])
			}
			var out hostd.StoreAnswer
			if err := storeRequest(cmd, from, hostd.PathStoreOp, in, &out); err != nil {
				return err
			}
			if name == "get" {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", out.Value)
			}
			if verbose {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%v, %d round trips, %d calls of the metadata server, %d races lost\n",
					out.Took.Round(time.Microsecond/10), out.Cost.RTTs, out.Cost.RPCs, out.Cost.Retries)
			}
			return nil
		},
	}
	opFlags(cmd, &from, &verbose)
	return cmd
}
