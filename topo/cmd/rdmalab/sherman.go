package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// shermanCmd is the tree.
func shermanCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sherman COMMAND",
		Short: "Run the B+tree Sherman on the rack",
		Long: "sherman runs an ordered store on the rack's memory servers: clients search and change a B+tree in their memory\n" +
			"by one-sided verbs alone, with locks in the memory of their NICs. Nothing runs on the memory servers but their\n" +
			"memory service. Every compute host has an index cache and hands locks over among its own clients.",
		Example: "  rdmalab sherman start\n" +
			"  rdmalab sherman insert 7 hello && rdmalab sherman get 7 -v\n" +
			"  rdmalab run ycsb --store sherman --workload e\n" +
			"  rdmalab sherman stat && rdmalab sherman check",
	}
	cmd.AddCommand(shermanStartCmd(), shermanStopCmd(), shermanStatCmd(), shermanCheckCmd(), shermanLoadCmd(), shermanScanCmd(), shermanShellCmd(),
		shermanLocksCmd())
	for _, op := range []struct{ name, use, short, example string }{
		{"get", "get KEY", "Read a value", "get 7 -v"},
		{"put", "put KEY VALUE", "Replace the value of a key that exists", "put 7 seven"},
		{"insert", "insert KEY VALUE", "Give a new key a value", "insert 7 'hello there' --from cn1"},
		{"upsert", "upsert KEY VALUE", "Give a key a value, whether it has one or not", "upsert 7 seven"},
		{"delete", "delete KEY", "Take a key away", "delete 7"},
	} {
		cmd.AddCommand(shermanOpCmd(op.name, op.use, op.short, op.example))
	}
	return cmd
}

// treeFlags are the flags of a tree as typed.
func treeFlags(cmd *cobra.Command, cfg *hostd.TreeConfig) {
	fs := cmd.Flags()
	fs.StringVar(&cfg.Layout, "layout", "", "pages: sound, or faithful as published (default sound)")
	fs.IntVar(&cfg.Page, "page", 0, "bytes of a page, a power of two from 256 to 16384 (default 1024)")
	fs.IntVar(&cfg.Value, "value", kv.MinValue, "longest value in bytes, 8 to 54 (published: 8; workloads and checks need 16)")
	fs.IntVar(&cfg.Locks, "locks", 0, "lock words of each memory server (default 32768)")
	fs.BoolVar(&cfg.HostLocks, "host-locks", false, "keep lock words in host memory, for comparison")
	fs.BoolVar(&cfg.Fresh, "fresh", false, "make an empty tree, whatever the memory holds")
	fs.DurationVar(&cfg.Lease, "lease", 0, "how long a node waits for a lock that does not move before it fences the owner (default 500ms)")
	fs.IntVar(&cfg.Cache, "cache", 0, "bytes of the index cache of each compute host; negative: none (default 64 MiB)")
	fs.IntVar(&cfg.HandOver, "hand-over", 0, "how often in a row a lock goes to the next client of the same host; negative: never (default 8)")
	fs.DurationVar(&cfg.BackOff, "back-off", 0, "longest pause after a failed CAS (default none, as published)")
}

func shermanStartCmd() *cobra.Command {
	cfg := hostd.TreeConfig{Format: true}
	cmd := &cobra.Command{
		Use:   "start",
		Short: "Make a tree, or find the one that is there, and let all compute hosts know it",
		Example: "  rdmalab sherman start\n" +
			"  rdmalab sherman start --fresh --value 54 --lease 2s",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			info, err := startTree(cmd, rack, cfg)
			if err != nil {
				return err
			}
			what := "found"
			if info.Made {
				what = "made"
			}
			where := "on the NICs"
			if info.HostLocks {
				where = "in host memory"
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s a tree on %d memory servers: %s pages of %d bytes, values of up to %d, %d locks a server %s\n",
				what, info.Servers, info.Layout, info.Page, info.Value, info.Locks, where)
			return err
		},
	}
	treeFlags(cmd, &cfg)
	complete(cmd, "layout", "sound", "faithful")
	return cmd
}

// startTree makes every compute host a node of the tree. The first makes the tree if there is none.
func startTree(cmd *cobra.Command, rack *spec.Rack, cfg hostd.TreeConfig) (info hostd.TreeInfo, err error) {
	for _, h := range rack.ByRole(spec.Memory) {
		cfg.Servers = append(cfg.Servers, h.Name)
	}
	if len(cfg.Servers) == 0 {
		return info, fmt.Errorf("rack %s has no memory server: give one `role: memory` in the rack file", rack.Name)
	}
	hosts := rack.ByRole(spec.Compute)
	if len(hosts) == 0 {
		return info, fmt.Errorf("rack %s has no compute host", rack.Name)
	}
	if err := noClover(rack, statusOf(cmd)); err != nil {
		return info, err
	}
	for i, h := range hosts {
		client, err := hostControl(cmd, h.Name)
		if err != nil {
			return info, err
		}
		var got hostd.TreeInfo
		if err := client.Call(cmd.Context(), http.MethodPost, hostd.PathTreeStart, cfg, &got); err != nil {
			if i > 0 {
				_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "host %s does not know the tree: %v\n", h.Name, err) // it may have crashed
				continue
			}
			return info, fmt.Errorf("host %s: %w", h.Name, err)
		}
		if i == 0 {
			info = got
		}
		cfg.Format, cfg.Fresh = false, false
	}
	return info, nil
}

// Names of stores.
const (
	storeClover  = "clover"
	storeSherman = "sherman"
)

// startTree makes sure of a tree for a workload, and loads one that was made now.
func (s *storeRun) startTree(rack *spec.Rack) error {
	info, err := startTree(s.cmd, rack, hostd.TreeConfig{Format: true, Keep: true, Value: s.flags.config.Value})
	if err != nil || !info.Made || s.flags.noLoad {
		return err
	}
	var out hostd.TreeLoaded
	s.loaded = true
	return treeRequest(s.cmd, "", hostd.PathTreeLoad, hostd.TreeLoad{Keys: s.flags.config.Keys, Records: true}, &out)
}

func shermanStopCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Let the compute hosts forget the tree; the memory servers keep it",
		Example: "  rdmalab sherman stop\n" +
			"  rdmalab sherman start # finds it again",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rack, _, err := rackOf(cmd)
			if err != nil {
				return err
			}
			for _, h := range rack.ByRole(spec.Compute) {
				client, err := hostControl(cmd, h.Name)
				if err != nil {
					return err
				}
				if err := client.Call(cmd.Context(), http.MethodPost, hostd.PathTreeStop, nil, nil); err != nil {
					return fmt.Errorf("host %s: %w", h.Name, err)
				}
			}
			return nil
		},
	}
}

// treeRequest has a host make a request of the tree. A host that does not know the tree says so, and what to do.
func treeRequest(cmd *cobra.Command, from, path string, in, out any) error {
	rack, _, err := rackOf(cmd)
	if err != nil {
		return err
	}
	return clientRequest(cmd, rack, from, path, in, out)
}

func shermanOpCmd(name, use, short, example string) *cobra.Command {
	var from string
	var verbose bool
	args := 2
	if name == "get" || name == "delete" {
		args = 1
	}
	cmd := &cobra.Command{
		Use:     use,
		Short:   short,
		Example: "  rdmalab sherman " + example,
		Args:    cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := hostd.TreeOp{Op: name}
			var err error
			if in.Key, err = parseKey(args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				in.Value = []byte(args[1])
			}
			var out hostd.TreeAnswer
			if err := treeRequest(cmd, from, hostd.PathTreeOp, in, &out); err != nil {
				return err
			}
			if name == "get" {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", out.Value)
			}
			return printTreeCost(cmd, verbose, &out)
		},
	}
	opFlags(cmd, &from, &verbose)
	return cmd
}

func printTreeCost(cmd *cobra.Command, verbose bool, a *hostd.TreeAnswer) error {
	if !verbose {
		return nil
	}
	c := &a.Cost
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%v, %d round trips, %d bytes; %d CAS for locks, %d handed over, %v waited for locks\n",
		a.Took.Round(time.Microsecond/10), c.RTTs, c.Bytes, c.CAS, c.HandOvers, c.Wait.Round(time.Microsecond/10))
	return err
}

func shermanScanCmd() *cobra.Command {
	var from string
	var verbose bool
	n := 20
	cmd := &cobra.Command{
		Use:   "scan FROM",
		Short: "List keys in order, with their values",
		Example: "  rdmalab sherman scan 0\n" +
			"  rdmalab sherman scan 1000 -n 5 -v",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := parseKey(args[0])
			if err != nil {
				return err
			}
			var out hostd.TreeAnswer
			if err := treeRequest(cmd, from, hostd.PathTreeOp, hostd.TreeOp{Op: "scan", Key: key, N: n}, &out); err != nil {
				return err
			}
			for _, r := range out.Records {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%d\t%s\n", r.Key, printable(r.Value))
			}
			return printTreeCost(cmd, verbose, &out)
		},
	}
	cmd.Flags().IntVarP(&n, "count", "n", n, "how many records at most")
	opFlags(cmd, &from, &verbose)
	return cmd
}

// printable is a value as it is if it is text, else in hexadecimal digits.
func printable(v []byte) string {
	for _, c := range v {
		if c < ' ' || c > '~' {
			return fmt.Sprintf("%x", v)
		}
	}
	return string(v)
}
