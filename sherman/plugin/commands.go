package plugin

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Store is Sherman's description.
var Store = store.Store{
	Name: "sherman", Title: "Sherman", Join: joinPatience, Broken: sherman.ErrBroken, Cost: cost, Upserts: true, Scans: true,
	Value: kv.MinValue, Note: "can scan, values of at most 54 bytes", Columns: columns,
}

func init() {
	Store.Node = newNode
	Store.Commands = commands()
	store.Register(Store)
}

// cost describes what the last operation of a client took.
func cost(s kv.Store) string {
	c := s.(*sherman.Client).LastCost()
	return fmt.Sprintf("%d round trips, %d bytes; %d CAS for locks, %d handed over, %v waited for locks",
		c.RTTs, c.Bytes, c.CAS, c.HandOvers, c.Wait.Round(time.Microsecond/10))
}

func commands() store.Commands {
	return store.Commands{
		Short: "Run the B+tree Sherman on the rack",
		Long: "Sherman is an ordered store (SIGMOD 2022), a B+tree in the memory of the rack's memory servers. Clients search and\n" +
			"change it by one-sided verbs alone. Before a client changes a page, it takes the page's lock by a CAS on a lock\n" +
			"word; unless flags of `rdmalab sherman start` say otherwise, the lock words are in device memory of the memory\n" +
			"servers' NICs. No process on a memory server takes part in an operation. The daemon of a memory server only shares\n" +
			"the memory, and ends the connections of a compute host that is taken for dead (it fences the host). Each compute\n" +
			"host is one compute node of the tree: its clients share an index cache and hand locks over to each other.",
		Example: "  rdmalab sherman start\n" +
			"  rdmalab sherman insert 7 hello && rdmalab sherman get 7 -v\n" +
			"  rdmalab run ycsb --store sherman --workload e\n" +
			"  rdmalab sherman stat && rdmalab sherman check",
		Start: store.Command{
			Short: "Find the tree, or make an empty one, and make every compute host a compute node of it",
			Long: "start looks for a tree in the memory of the memory servers, and makes an empty one if there is none. Then every\n" +
				"compute host is a compute node of the tree, and its clients can use the tree. start prints whether the tree was\n" +
				"found or made, and its layout. It fails while another store is up, if the memory has other data and --fresh is not\n" +
				"given, or if the first compute host does not answer; if another one does not answer, start prints a warning.\n\n" +
				"--page, --value, --locks, --host-locks and --layout are used only when a tree is made; but with --layout published,\n" +
				"searches of the compute hosts also have an error of the published code: in a published tree they can miss a key that\n" +
				"is being written. --back-off, --cache, --hand-over and --lease apply to the compute hosts, from now on; left out,\n" +
				"they have their defaults again. --step does both: it sets the layout of a new tree and the place of its locks, and\n" +
				"for the compute hosts how they take and release locks. If a tree is found, step sherman fits it always; another step\n" +
				"fails if the layout of the tree or the place of its locks is not that of the step and of --host-locks. Each step adds\n" +
				"one technique to the one before it:\n\n" +
				"  fg+           the baseline of Sherman's paper: a lock in each page, no queues for locks, whole pages with a checksum\n" +
				"  combine       the WRITE of a page and the release of its lock share a doorbell\n" +
				"  on-chip       lock words in device memory of the NICs\n" +
				"  hierarchical  clients of a compute node queue for locks, and hand them over to each other\n" +
				"  sherman       a write changes one record of a page, not the whole page",
			Example: "  rdmalab sherman start\n" +
				"  rdmalab sherman start --fresh --value 54 --lease 2s",
			New: newStart, Choices: map[string][]string{"layout": layouts, "step": sherman.StepNames()},
		},
		Stop: store.Command{
			Short: "Let the compute hosts forget the tree; it stays in memory",
			Long: "stop makes every compute host forget the tree, and prints nothing. New operations are refused until `rdmalab\n" +
				"sherman start`, which finds the tree again, because its pages stay in the memory of the memory servers. Only one\n" +
				"store can use the memory servers at a time: after stop, another one can be started with --fresh, which overwrites\n" +
				"the tree.",
			Example: "  rdmalab sherman stop\n" +
				"  rdmalab sherman start # finds its keys again",
		},
		Stat: store.Command{
			Short: "Show the tree, the locks that are held, and what a host's clients have done",
			Long: "stat shows the tree, and what the clients on the host of --from have done:\n\n" +
				"  tree     number and layout of the tree, bytes of a page and of the longest value, address of the root page\n" +
				"  server   bytes of each memory server that pages use, and how many they can use; free again: bytes of pages that have\n" +
				"           left the tree (at most 10,000 pages are counted); number of lock words\n" +
				"  locks    locks that clients got; handed over: got from a client of the same host; CAS for the other locks; how long\n" +
				"           clients waited for locks\n" +
				"  trouble  locks taken over from dead owners; how often this host was fenced; operations in doubt: a connection failed,\n" +
				"           and the client had to find out from the lock word whether its request was executed\n" +
				"  pages    pages that were split; new roots; separators (references in a parent) put in for a client that did not\n" +
				"           finish its split; steps of searches to the next page; pages read again, because they changed during a READ\n" +
				"  merges   pages that have left the tree, and that were used again; searches begun again, because their page had left\n" +
				"           the tree\n" +
				"  cache    size of the index cache; hits: searches that found their leaf in it; misses: the other searches\n\n" +
				"stat also reads all lock words. If a lock is held, it reads everything again after 20 ms, and lists the held locks\n" +
				"whose word has not changed:\n\n" +
				"  LOCK        memory server, and number of the lock word on it\n" +
				"  OWNER       number of the compute node that holds the lock\n" +
				"  HOST        host of this compute node, as far as the memory server knows it\n" +
				"  STATE       what the memory server knows of the owner: alive (it has connections), gone (it has none) or fenced (the\n" +
				"              server has ended its connections and refuses new ones)\n" +
				"  HELD FOR    how long the host of --from has seen the same lock word\n" +
				"  LEASE LEFT  how long the host of --from still waits before it takes the owner for dead and has it fenced, and the\n" +
				"              length of a lease. Each host measures leases by itself, so another host may show another time",
			Example: "  rdmalab sherman stat\n" +
				"  rdmalab sherman stat --all --from cn1",
			From: true, Output: true, New: newStat,
		},
		Check: store.Command{
			Short: "Check the structure of the whole tree; with --clients also the answers to clients",
			Long: "check reads every page of the tree from the memory servers and proves that key ranges cover every key exactly once,\n" +
				"that each page has the right neighbours and children, that no key is in the tree twice, that the owner (the compute\n" +
				"node) of each lock that is taken is alive, and that every written page is reachable from the root.\n\n" +
				"With --clients, that many clients on one host first read, write, insert, delete and scan a few keys. Then check\n" +
				"also proves that one order of the operations on each key explains all answers and agrees with their times (that\n" +
				"their history is linearizable). You may inject faults, and crash and restart hosts, while check runs.\n\n" +
				"check prints the verdict on the history, if there is one, what it has read of the tree, and the first 20 errors; of\n" +
				"further errors it prints only the number. If there is an error in a tree from which pages have been removed, check\n" +
				"reads the tree again, up to three times, because clients may have changed it meanwhile. The exit status is 1 if there\n" +
				"is still an error, if the history is not linearizable, or if the search for an order was given up.",
			Example: "  rdmalab sherman check\n" +
				"  rdmalab inject loss 5% --link ms0 && rdmalab sherman check --clients 8 --rounds 500",
			From: true, Output: true, New: newCheck,
		},
		Load: store.Command{
			Short: "Fill an empty tree with the keys from 0 to --keys minus 1",
			Long: "load fills an empty tree with the keys 0, 1, 2 and so on, as many as --keys says. It builds whole pages and\n" +
				"writes them, first the leaves. That is faster than inserting the keys one by one. load fails if the tree is not\n" +
				"empty. Each value has as many bytes as --value of `rdmalab sherman start` says. It contains its key and the number\n" +
				"of its write, from which its other bytes follow, so that `rdmalab run ycsb --no-load` can verify what it reads. load\n" +
				"prints the number of keys, the number of pages on each level, leaves first, the MiB written, and how long it took.",
			Example: "  rdmalab sherman start --fresh && rdmalab sherman load --keys 100000\n" +
				"  rdmalab run ycsb --store sherman --keys 100000 --no-load",
			From: true, New: newLoad,
		},
		ShellShort:   "Read commands, like get and scan, line by line",
		ShellExample: "insert 7 hello\\nscan 0",
		StatWord:     "the tree, its locks, and what the host's clients did",
		CheckWord:    "read the whole tree and prove that its structure is right",
		Retired:      map[string]string{"locks": "one-lock --on rack --series as-is,as-is-device"},
		Prepare:      prepare,
	}
}

func newStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	cfg := Config{Finding: store.Finding{Format: true}}
	fs.StringVar(&cfg.Layout, "layout", "", "layout of pages: hardened (a reader notices each page that it has read half old, half new), published (as in the paper), or checksummed (as in FG+, the baseline of the paper; the steps before sherman have only this one) (default hardened)")
	fs.StringVar(&cfg.Step, "step", "", "design, one of the list above: "+strings.Join(sherman.StepNames(), ", ")+
		" (default sherman)")
	fs.IntVar(&cfg.Page, "page", 0, "bytes of a page, a power of two from 256 to 16384 (default 1024)")
	fs.IntVar(&cfg.Value, "value", kv.MinValue, "bytes of the longest value, 8 to 54; workloads and checks need at least 16, Sherman's paper has 8")
	fs.IntVar(&cfg.Locks, "locks", 0, "number of lock words on each memory server, 1 to 1048576 (default 32768, or fewer if they do not fit); no effect with steps fg+ and combine, which have a lock word in each page")
	fs.BoolVar(&cfg.HostLocks, "host-locks", false, "keep lock words in host memory instead of device memory of the NICs, for comparison; no effect with steps fg+ and combine")
	fs.BoolVar(&cfg.Fresh, "fresh", false, "make an empty tree, whatever the memory holds")
	fs.DurationVar(&cfg.Lease, "lease", 0, "how long a compute host waits while a held lock word does not change, before it takes the owner for dead and lets the memory servers fence it (end its connections) (default 500ms)")
	fs.IntVar(&cfg.Cache, "cache", 0, "bytes of the cache of inner pages of each compute host; a negative number means no cache (default 67108864, 64 MiB)")
	fs.IntVar(&cfg.HandOver, "hand-over", 0, "how many times in succession a lock is handed over to a client of the same "+
		"host, 1 or more; a negative number means never (default 8); no effect with steps before hierarchical")
	fs.DurationVar(&cfg.BackOff, "back-off", 0, "upper limit of the random pause after a failed CAS for a lock; the limit begins at 1us and doubles with each failure up to this time (default: no pause, as in the paper)")
	return func(c *store.Call) (store.Result, error) {
		info, err := Start(c, cfg)
		if err != nil {
			return nil, err
		}
		return &info, nil
	}
}

func (i *Info) Write(out io.Writer) error {
	what := "found"
	if i.Made {
		what = "made"
	}
	locks := fmt.Sprintf("%d locks a server", i.Locks)
	if i.PageLocks {
		locks = "locks"
	}
	_, err := fmt.Fprintf(out, "%s a tree on %d memory servers: %s pages of %d bytes, values of up to %d, %s %s\n",
		what, i.Servers, i.Layout, i.Page, i.Value, locks, lockPlace(i.PageLocks, i.HostLocks))
	return err
}

// Start makes every compute host a compute node of the tree that cfg describes, on the rack's
// memory servers instead of cfg.Servers. The first host makes the tree if there is none.
func Start(c *store.Call, cfg Config) (Info, error) {
	return store.StartHosts[Info](c, "tree", func(servers []string, first bool) any {
		cfg := cfg
		cfg.Finding = cfg.For(servers, first)
		return cfg
	})
}

// prepare makes a tree for a workload if there is none. If it made one and w.Load is true, it loads
// the keys of the workload.
func prepare(c *store.Call, w store.Workload) (loaded bool, err error) {
	info, err := Start(c, Config{Finding: store.Finding{Format: true}, Keep: true, Value: w.Config.Value})
	if err != nil || !info.Made || !w.Load {
		return false, err
	}
	var out Loaded
	return true, c.Post("", Store.Path(PathLoad), LoadRequest{Keys: w.Config.Keys, Records: true}, &out)
}

func newCheck(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	in := store.HistoryRequest{Keys: 64}
	var tree CheckRequest
	store.HistoryFlags(fs, &in)
	fs.IntVar(&tree.Unreachable, "unreachable", 0, "how many written pages may be without a reference from another page, "+
		"because a split was interrupted (default 0; -1 means any number)")
	fs.IntVar(&tree.HalfSplits, "half-splits", -1, "how many pages may lack a reference from their parent, because a split was interrupted; clients reach them through the page on their left; -1 means any number")
	fs.IntVar(&tree.DeadLocks, "dead-locks", 0, "how many locks may have owners that are dead (default 0; -1 means any number)")
	return func(c *store.Call) (store.Result, error) {
		h, err := c.HistoryIfAny(in)
		if err != nil {
			return nil, err
		}
		out := new(Checked)
		if err := c.Post("", Store.Path(PathCheck), tree, out); err != nil {
			return nil, err
		}
		out.History = h
		return out, nil
	}
}

func (c *Checked) Write(out io.Writer) error {
	memory := ""
	if c.Tree != nil {
		memory = fmt.Sprintf("%v\n%d MiB in %d reads, %v\n", c.Tree, c.Tree.Bytes>>20, c.Tree.Reads, c.Took.Round(time.Millisecond))
	}
	return c.Print(out, memory, "the tree is whole")
}

func newLoad(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	in := LoadRequest{Records: true}
	fs.Uint64Var(&in.Keys, "keys", 1024, fmt.Sprintf("number of keys; fails if the tree was made with --value less than %d (see rdmalab sherman start)", kv.MinValue))
	return func(c *store.Call) (store.Result, error) {
		var out Loaded
		if err := c.Post("", Store.Path(PathLoad), in, &out); err != nil {
			return nil, err
		}
		return &out, nil
	}
}

func (l *Loaded) Write(out io.Writer) error {
	_, err := fmt.Fprintf(out, "%d keys in %v pages of levels 0 to %d, %d MiB, in %v\n", l.Keys, l.Pages, len(l.Pages)-1,
		l.Bytes>>20, l.Took.Round(time.Millisecond))
	return err
}
