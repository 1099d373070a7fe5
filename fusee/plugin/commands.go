package plugin

import (
	_ "embed" // of help.md
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

//go:embed help.md
var helpText string

// Store is FUSEE's description.
var Store = store.Store{
	Name: "fusee", Title: "FUSEE", Join: 20 * time.Second, Cost: cost, Note: "needs no process but its clients",
}

func init() {
	Store.Node = newNode
	Store.Commands = commands()
	store.Register(Store)
}

// cost describes in words what the last operation of the client s took.
func cost(s kv.Store) string {
	c := s.(*fusee.Client).Last()
	return fmt.Sprintf("%d round trips, %d attempts again, %d requests for blocks", c.RTTs, c.Retries, c.RPCs)
}

func commands() store.Commands {
	return store.Commands{
		Short: "Run the hash table FUSEE on the rack",
		Help:  helpText,
		Start: store.Command{
			Short: "Find the table, or make an empty one, and tell every compute host where it is",
			New:   newStart,
		},
		Stop: store.Command{
			Short: "Let the hosts forget the store; its keys stay in the memory servers",
		},
		Stat: store.Command{
			Short: "Show the table: its keys, and the blocks that clients have taken",
			From:  true, Output: true, New: newStat,
		},
		Check: store.Command{
			Short: "Check the whole table; with --clients also the responses to clients",
			From:  true, Output: true, New: newCheck,
		},
		StatWord:  "the keys of the table, and its memory",
		CheckWord: "read the whole table and prove that it is right",
		Prepare:   prepare,
	}
}

func newStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	cfg := Config{Finding: store.Finding{Format: true}}
	var master, standby string
	var lease time.Duration
	fs.StringVar(&master, "master", "", "a compute host whose daemon runs the master: it lets the store go on without memory servers that have crashed (default: start no master)")
	fs.StringVar(&standby, "standby", "", "with --master: another compute host, whose daemon takes the master's place when the master dies or hangs (default: none)")
	fs.DurationVar(&lease, "lease", 0, "with --master: how long a memory server may be silent before the master takes it for crashed, at least 1ms (default: that of the master or standby that runs, or 500ms)")
	fs.BoolVar(&cfg.Fresh, "fresh", false, "make an empty table, whatever the memory holds")
	fs.IntVar(&cfg.Replicas, "replicas", 0, "how many memory servers have a copy of each object, 1 to all (default 2, or 1 with one server)")
	fs.IntVar(&cfg.IndexReplicas, "index-replicas", 0, "how many memory servers have a replica of the index, 1 to all (default 1)")
	fs.IntVar(&cfg.Groups, "groups", 0, "size of the index, in groups of three buckets, which have 21 slots together, 1 to 1048576 (default: as many as fit into an eighth "+
		"of a server's memory)")
	fs.IntVar(&cfg.Grow, "grow", 0, "how many times the index may double when it is full, 0 to 16; more than 0 only with up to 3 --index-replicas (default 0)")
	fs.IntVar(&cfg.Block, "block", 0, "bytes of a block, a multiple of 16384; an object must fit into one block (default 262144, or less so "+
		"that a server has about 1,000 blocks)")
	fs.IntVar(&cfg.Cache, "cache", 0, "number of keys of which a client remembers slot and object, so that a GET can READ the object in the same round trip as the "+
		"index; a negative number means none (default 16384)")
	fs.Float64Var(&cfg.Threshold, "threshold", 0.1, "a GET READs the remembered object of a key together with the index, unless more than this share of the "+
		"operations on the key found the remembered slot out of date; above 0, up to 1 (always)")
	return func(c *store.Call) (store.Result, error) {
		if cfg.Grow < 0 || cfg.Grow > layout.MaxDepth {
			return nil, fmt.Errorf("--grow %d: want 0 to %d", cfg.Grow, layout.MaxDepth)
		}
		if !(cfg.Threshold > 0 && cfg.Threshold <= 1) { // also if it is not a number
			return nil, fmt.Errorf("--threshold %v: want a share above 0, up to 1; for a GET that trusts no key that was out of date once, give 0.0001", cfg.Threshold)
		}
		if master == "" && lease != 0 {
			return nil, errors.New("--lease is the lease of a master: name its host with --master")
		}
		if standby != "" && (master == "" || standby == master) {
			return nil, errors.New("--standby is another host than that of the master: name both, --master A --standby B")
		}
		if lease != 0 && lease < fusee.MinMasterLease {
			return nil, fmt.Errorf("--lease %v: want %v at least", lease, fusee.MinMasterLease)
		}
		for _, host := range []string{master, standby} {
			if hosts, err := c.Store.Places(c.Rack); err != nil || host != "" && !slices.Contains(hosts, host) {
				return nil, errors.Join(err, fmt.Errorf("a master runs on a compute host, not on %q: use one of %s", host, strings.Join(hosts, ", ")))
			}
		}
		info, err := Start(c, cfg)
		if err != nil {
			return nil, err
		}
		if master != "" {
			if lease, err = oneLease(c, lease); err != nil {
				return nil, err
			}
			in := MasterConfig{Servers: c.Memory(), Lease: lease, Paired: standby != ""}
			limit := c.Store.StartLimit() + confirmLimit(lease)
			if err := c.PostWithin(limit, master, Store.Path(PathMaster), in, nil); err != nil {
				return nil, err
			}
			info.Master = master
			if in.Standby = true; standby != "" {
				if err := c.PostWithin(limit, standby, Store.Path(PathMaster), in, nil); err != nil {
					return nil, err
				}
				info.Standby = standby
			}
		}
		return &info, nil
	}
}

// oneLease returns the lease of the masters and standbys that run, or `lease` if none runs. It
// fails if `lease` is neither 0 nor the lease of those that run: a standby whose lease is shorter
// than the master's would take the place of a master that is alive.
func oneLease(c *store.Call, lease time.Duration) (time.Duration, error) {
	hosts, err := c.Store.Places(c.Rack)
	for _, host := range hosts {
		var on Lease
		switch err := c.PostWithin(store.Patience, host, Store.Path(PathLease), nil, &on); {
		case err != nil || on.Lease == 0: // start has printed a warning about a host that does not answer
		case lease == 0:
			lease = on.Lease
		case lease != on.Lease:
			return 0, fmt.Errorf("%s runs a master or standby with a lease of %v: give the same --lease or none, or end all of them with `rdmalab fusee stop`, "+
				"which keeps the table, and start again", host, on.Lease)
		}
	}
	return lease, err
}

// Write prints the table that start has found or made.
func (i *Info) Write(out io.Writer) error {
	what := "found"
	if i.Made {
		what = "made"
	}
	_, err := fmt.Fprintf(out, "%s a table on %d memory servers: %d slots, %d replicas of the index and %d of objects, "+
		"%d blocks of %d bytes on each server\n",
		what, i.Servers, i.Slots, i.IndexReplicas, i.Replicas, i.Blocks, i.Block)
	if err == nil && i.Most > i.Slots {
		_, err = fmt.Fprintf(out, "the index can grow to %d slots\n", i.Most)
	}
	if err == nil && i.Master != "" {
		_, err = fmt.Fprintf(out, "%s runs the master\n", i.Master)
	}
	if err == nil && i.Standby != "" {
		_, err = fmt.Fprintf(out, "%s is its standby\n", i.Standby)
	}
	return err
}

// Start tells every compute host to use the table that cfg describes, on the memory servers of the
// rack instead of cfg.Servers. The first host makes the table if there is none.
func Start(c *store.Call, cfg Config) (Info, error) {
	return store.StartHosts[Info](c, "table", func(servers []string, first bool) any {
		cfg := cfg
		cfg.Finding = cfg.For(servers, first)
		return cfg
	})
}

// prepare makes a table for a workload if there is none.
func prepare(c *store.Call, _ store.Workload) (loaded bool, err error) {
	_, err = Start(c, Config{Finding: store.Finding{Format: true}})
	return false, err
}

func newStat(*pflag.FlagSet) func(*store.Call) (store.Result, error) {
	return func(c *store.Call) (store.Result, error) {
		st := new(Stat)
		if err := c.Post("", Store.Path(PathStat), nil, st); err != nil {
			return nil, err
		}
		return st, nil
	}
}

// Write prints the table.
func (st *Stat) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "table\t%016x\t%d replicas of the index, %d of "+
		"objects\n", st.Table.Generation, st.Table.IndexReplicas, st.Table.Replicas)
	_, _ = fmt.Fprintf(w, "keys\t%d\tin %d slots; %d slots have changes that are not finished\n", st.Keys, st.Slots, st.Unfinished)
	for i, n := range st.Taken {
		if i < len(st.Servers) {
			switch {
			case slices.Contains(st.Members, i):
				_, _ = fmt.Fprintf(w, "%s\t%d of %d blocks taken\tof %d bytes each\n", st.Servers[i], n, st.Report.Blocks, st.Table.Block)
			case slices.Contains(st.Filling, i):
				_, _ = fmt.Fprintf(w, "%s\tno member\tthe master fills it\n", st.Servers[i])
			default:
				_, _ = fmt.Fprintf(w, "%s\tno member\tits memory was lost\n", st.Servers[i])
			}
		}
	}
	_, _ = fmt.Fprintf(w, "left\t%d blocks\twait for another client\n", st.Left)
	for _, d := range st.Defects {
		_, _ = fmt.Fprintf(w, "wrong\t%s\t\n", d)
	}
	return w.Flush()
}

func newCheck(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	in := store.HistoryRequest{Keys: 16, Value: 200}
	var table CheckRequest
	store.HistoryFlags(fs, &in)
	fs.IntVar(&table.Unfinished, "unfinished", 0, "how many slots may have changes that clients have begun and not "+
		"finished, because they died (default 0; -1 means any number)")
	fs.BoolVar(&table.Recover, "recover", false, "first recover all clients that own blocks: those that died, and those at work")
	return func(c *store.Call) (store.Result, error) {
		h, err := c.HistoryIfAny(in)
		if err != nil {
			return nil, err
		}
		out := new(Checked)
		if err := c.Post("", Store.Path(PathCheck), table, out); err != nil {
			return nil, err
		}
		out.History = h
		return out, nil
	}
}

// Write prints the result of the check.
func (c *Checked) Write(out io.Writer) error {
	memory := ""
	if c.Table != nil {
		memory = fmt.Sprintf("%d keys in %d slots, read in %v\n", c.Table.Keys, c.Table.Slots, c.Took.Round(time.Millisecond))
	}
	if len(c.Recovered) > 0 {
		memory = fmt.Sprintf("recovered the clients %d\n", c.Recovered) + memory
	}
	return c.Print(out, memory, "the table is right")
}
