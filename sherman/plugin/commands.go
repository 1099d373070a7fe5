package plugin

import (
	_ "embed" // of help.md
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
)

//go:embed help.md
var helpText string

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
		Help:  helpText,
		Start: store.Command{
			Short: "Find the tree, or make an empty one, and make every compute host a compute node of it",
			New:   newStart, Choices: map[string][]string{"layout": layouts, "step": sherman.StepNames()},
		},
		Stop: store.Command{
			Short: "Let the compute hosts forget the tree; it stays in memory",
		},
		Stat: store.Command{
			Short: "Show the tree, the locks that are held, and what a host's clients have done",
			From:  true, Output: true, New: newStat,
		},
		Check: store.Command{
			Short: "Check the structure of the whole tree; with --clients also the answers to clients",
			From:  true, Output: true, New: newCheck,
		},
		Load: store.Command{
			Short: "Fill an empty tree with the keys from 0 to --keys minus 1",
			From:  true, New: newLoad,
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
