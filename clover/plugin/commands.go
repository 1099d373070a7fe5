package plugin

import (
	_ "embed" // of help.md
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/units"
)

//go:embed help.md
var helpText string

// Store is Clover's description.
var Store = store.Store{
	Name: "clover", Title: "Clover", Default: true, Shares: true, Steers: true, Server: store.MetadataHost, Cost: cost,
}

func init() {
	Store.Node = newNode
	Store.Commands = commands()
	store.Register(Store)
}

// cost describes what the last operation of a client took.
func cost(c kv.Store) string {
	k := c.Last()
	return fmt.Sprintf("%d round trips, %d calls of the metadata server, %d races lost", k.RTTs, k.RPCs, k.Retries)
}

func commands() store.Commands {
	return store.Commands{
		Short: "Run the key-value store Clover on the rack",
		Help:  helpText,
		Start: store.Command{
			Short:   "Start the metadata server, and with it the store",
			New:     newStart,
			Choices: map[string][]string{"format": {"hardened", "keyed", "published"}},
		},
		Stop: store.Command{
			Short: "Stop the metadata server; the store stays in memory",
		},
		Stat: store.Command{
			Short: "Show how much of the store is used, and the metadata server's counters",
			From:  true, Output: true, Running: true, New: func(*pflag.FlagSet) func(*store.Call) (store.Result, error) { return readStat },
		},
		Check: store.Command{
			Short: "Let clients work on a few keys, and check that their history is linearizable",
			From:  true, Output: true, Running: true, New: newCheck,
		},
		Further: map[string]store.Command{"calls": {
			Short:  "Measure how many calls a second the metadata server answers",
			Output: true, Running: true, New: newCalls,
		}},
		StatWord: "the metadata server's counters, and where the nodes are",
		Prepare:  prepare,
	}
}

func newStart(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	var cfg Config
	var region string
	fs.StringVar(&cfg.Format, "format", "", "what a node contains besides the value and its header, which names the next node: hardened (key, length, checksum), "+
		"keyed (key), or published (nothing, as in Clover's paper) (default hardened)")
	fs.IntVar(&cfg.Keys, "keys", 0, "how many keys a new store can hold (default 65536); no effect on a store that is found")
	fs.StringVar(&region, "region", "", "how many bytes of each memory server's memory a new store uses, like 1MiB (default: as many as the "+
		"memory server with the smallest memory has)")
	fs.DurationVar(&cfg.Lease, "lease", 0, "how long after the metadata server's last response a client may use the "+
		"addresses of nodes that it remembers; then it must ask the metadata server again (default 2s)")
	fs.Var((*threadsFlag)(&cfg.Threads), "threads", fmt.Sprintf("how many threads of the metadata server, 0 to %d, answer those requests for which it need not access a memory server; ", meta.MaxThreads)+
		"another thread does the rest (default 0: one thread does everything)")
	fs.IntVar(&cfg.Replicas, "replicas", 0, "copies of each node, each on another memory server: 1 to 3, at most the number of memory servers; "+
		"values survive while fewer memory servers than this number are away (default 1, or that of the store that is found). "+
		"Use more memory servers than copies: with 2 copies on 2 servers, changes can be rolled back without an error when one server does not answer and the other loses its memory; "+
		"a third server prevents this unless it fails, too")
	fs.BoolVar(&cfg.Balance, "balance", false, "place more new keys on memory servers that have more free room or answer faster "+
		"(default: on all in turn)")
	fs.BoolVar(&cfg.Fresh, "fresh", false, "make an empty store, whatever the memory holds; clients of an earlier store "+
		"lose their connections")
	return func(c *store.Call) (store.Result, error) {
		if region != "" {
			n, err := units.ParseSize(region)
			if err != nil {
				return nil, store.BadUse("--region: %w", err)
			}
			cfg.Region = int(n)
		}
		return nil, start(c, cfg)
	}
}

// threadsFlag is the value of --threads. Set refuses a number that the metadata server would refuse,
// so that `rdmalab run --start threads=64` fails before anything is started.
type threadsFlag int

func (f *threadsFlag) String() string { return strconv.Itoa(int(*f)) }
func (f *threadsFlag) Type() string   { return "int" }

func (f *threadsFlag) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > meta.MaxThreads {
		return fmt.Errorf("want 0 to %d", meta.MaxThreads)
	}
	*f = threadsFlag(n)
	return nil
}

func start(c *store.Call, cfg Config) error {
	host, err := store.MetadataHost(c.Rack)
	if err != nil {
		return err
	}
	if err := c.Free(); err != nil {
		return err
	}
	cfg.Servers = c.Memory()
	if most := min(layout.MaxBackups+1, len(cfg.Servers)); cfg.Replicas < 0 || cfg.Replicas > most {
		return store.BadUse("--replicas %d: want 1 to %d on %d memory servers", cfg.Replicas, most, len(cfg.Servers))
	}
	for _, r := range c.Rack.Switch.Rules {
		if r.Action == rules.Steer && cfg.Replicas > 1 {
			return store.BadUse("--replicas %d: %w, and rule %s of the rack's switch says that it steers", cfg.Replicas, errSteered, r.ID)
		}
	}
	var up started
	if err := c.PostStart(host, cfg, &up); err != nil || up.Fixed == "" {
		return err
	}
	_, err = fmt.Fprintf(c.Err, "each size of nodes has a fixed part of the memory, and can be full while others are not: %s\n", up.Fixed)
	return err
}

// errSteered refuses a store with several copies of each node while the switch steers. The switch
// learns chains and their newest nodes from one copy only, so it cannot steer appends to all
// copies.
var errSteered = errors.New("the switch cannot steer requests of a store with copies")

// crowd is the number of clients on one machine up to which the default lease is long enough.
const crowd = 64

// prepare starts the store for a workload. With many clients on a machine, each of them gets the
// processor rarely, and a client whose lease has ended must ask the metadata server for all keys
// again. So prepare makes the lease longer with the number of clients. A store that runs already
// keeps its lease. prepare returns an error if the workload steers and the store has copies.
func prepare(c *store.Call, w store.Workload) (loaded bool, err error) {
	cfg := Config{}
	if w.Clients > crowd {
		cfg.Lease = meta.DefaultLease * time.Duration(w.Clients) / crowd
	}
	err = start(c, cfg)
	var answer *control.Error
	if cfg.Lease != 0 && errors.As(err, &answer) && answer.Status == http.StatusConflict {
		err = start(c, Config{})
	}
	if err == nil && w.Steered {
		var st rpc.Stats
		if st, err = Stats(c); err == nil && st.Copies > 1 {
			err = errSteered
		}
	}
	return false, err
}

type stats struct {
	rpc.Stats
	names []string // names of the memory servers
}

func readStat(c *store.Call) (store.Result, error) {
	st, err := Stats(c)
	return &stats{st, c.Memory()}, err
}

// Stats asks the metadata server for its counters.
func Stats(c *store.Call) (st rpc.Stats, err error) {
	o, err := c.Options()
	if err != nil {
		return st, err
	}
	return st, c.Post("", Store.Path(pathStat), o, &st)
}

func (st *stats) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(w, "keys\t%d of %d\tlost %d\n", st.Keys, st.Slots, st.LostKeys)
	_, _ = fmt.Fprintf(w, "nodes\t%d\tfree %d, held by clients %d, in chains %d, waiting for an epoch "+
		"%d\n", st.Nodes, st.Free, st.Held, st.Linked, st.Worn)
	if st.Copies > 1 {
		_, _ = fmt.Fprintf(w, "copies\t%d of each node\tmemory servers without any %d\n", st.Copies, st.Away)
	}
	if st.Segments > 0 {
		_, _ = fmt.Fprintf(w, "segments\t%d\twithout a class %d, waiting for an epoch %d\n", st.Segments, st.Unused, st.Resting)
	}
	for c, n := range st.ClassNodes {
		if n > 0 {
			_, _ = fmt.Fprintf(w, "  %v\t%d\tfree %d\n", layout.Class(c), n, st.ClassFree[c])
		}
	}
	for i, x := range st.Servers {
		if i < len(st.names) {
			_, _ = fmt.Fprintf(w, "  %s\t%d\tfree %d, gives %.1f %% of the nodes for new keys\n", st.names[i], x.Nodes, x.Free, float64(x.Permille)/10)
		}
	}
	_, _ = fmt.Fprintf(w, "clients\t%d\tepoch %d\n", st.Clients, st.Epoch)
	_, _ = fmt.Fprintf(w, "requests\t%d\trefused %d\n", st.Requests, st.Refused)
	_, _ = fmt.Fprintf(w, "chains\t%d headers read\tkeys recovered %d, memories lost %d, chains broken "+
		"%d\n", st.Walked, st.Recovered, st.Losses, st.Broken)
	return w.Flush()
}

// verdict is the result of a check of a history. The field after has the metadata server's counters
// after the check; nil means that they were not asked for.
type verdict struct {
	store.Verdict
	after *stats
}

func newCheck(fs *pflag.FlagSet) func(*store.Call) (store.Result, error) {
	in := store.HistoryRequest{Clients: 8, Keys: 4}
	store.HistoryFlags(fs, &in)
	fs.IntVar(&in.Value, "value-size", 100, "bytes of a value; less than 16 counts as 16")
	store.Renamed(fs, map[string]string{"value": "value-size"})
	fs.IntVar(&in.Share, "share-qp", 0, "how many clients share a queue pair to each memory server, up to 256 (default: each client has its own)")
	fs.StringVar(&in.Reporter, "reporter", "", "how the metadata server learns of appends (new versions of values): each client reports its own (client), or one thread reports those of all clients (process) (default client)")
	fs.BoolVar(&in.Loss, "loss", false, "a memory server may crash while check runs: accept that values are missing that were in its memory")
	return func(c *store.Call) (store.Result, error) {
		v := new(verdict)
		var err error
		if in.MaxValue = in.Value; in.Value <= 0 {
			in.Value, in.MaxValue = kv.MinValue, kv.MinValue
		}
		if v.Verdict, err = c.History(in); err != nil {
			return nil, err
		}
		if c.JSON || !v.Linearizable || c.Context.Err() != nil { // after an interrupt no more is asked
			return v, nil
		}
		st, err := readStat(c)
		if err == nil {
			v.after = st.(*stats)
		}
		return v, err
	}
}

func (v *verdict) Bad() bool { return !v.Linearizable }

func (v *verdict) Write(out io.Writer) error {
	err := errors.Join(v.Verdict.Write(out, true), v.HintLoss(out))
	st := v.after
	if err != nil || st == nil {
		return err
	}
	// A node that is neither free, worn nor held by a client is in a chain. After the check each
	// chain has one linked node if the server has followed it to the end.
	leaked := st.Linked - min(st.Linked, st.Keys-st.LostKeys)
	_, err = fmt.Fprintf(out, "chains broken %d, nodes leaked %d; %d free, held %d, in chains %d of %d "+
		"keys\n", st.Broken, leaked, st.Free, st.Held,
		st.Linked, st.Keys)
	return err
}
