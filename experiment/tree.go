package experiment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/store/kv"
)

// treeOperations measures the packets of single operations of the tree.
var treeOperations = Experiment{
	Name:   "tree-operations",
	Short:  "round trips and bytes of single operations of the tree Sherman",
	Figure: "Sherman §5: round trips of its operations, and the bytes of its formats",
	Sim:    "5 s", Cost: "connectx5-dpdk",
	New: func() Body { return operationsBody{} },
}

// noFlags is the part of a Body that has no parameters.
type noFlags struct{}

func (noFlags) Flags(*pflag.FlagSet) {}

type operationsBody struct{ noFlags }

func (operationsBody) Check(Place) error { return nil }

func (operationsBody) Run(ctx context.Context, pl Platform, r *Report) error {
	r.Columns(Column{Key: "operation", Title: "OPERATION, WARM CACHE"}, Column{Key: "rtts", Title: "ROUND TRIPS"},
		Column{Key: "bytes", Title: "BYTES (IP)"}, Column{Key: "packets", Title: "PACKETS"})
	r.begin(1, 1, "operations of the tree")
	list, err := pl.TreeOperations(ctx)
	if err != nil {
		return err
	}
	for _, o := range list {
		r.Add(Label(o.Name), Num(float64(o.RTTs)), Beside(float64(o.Bytes), float64(o.Published)), Num(float64(len(o.Packets))))
	}
	r.end("%d operations", len(list))
	return nil
}

// treeLocks measures the tree's performance for each place of its lock words.
var treeLocks = Experiment{
	Name:     "tree-locks",
	Short:    "throughput of Sherman's tree under YCSB A: locks in host or NIC memory, also if the switch replaces CAS by WRITE",
	Figure:   "the comparison of locks in Sherman §4, which has no figure; in addition, SwordBox's locks",
	Examples: []string{"--zipf 0.99 --clients 64", "--on rack"},
	Sim:      "1 min with two processors", Rack: "1 min", Cost: "connectx5-dpdk",
	New: func() Body { return &treeBody{zipfs: []float64{0.99, 1.2}} },
}

type treeBody struct {
	zipfs   []float64
	clients []int
	alone   []bool // values of Sherman.Alone to measure
	quick   bool
}

// treePlace is a place of lock words, as in Sherman.Locks. misses is as in Switch.Misses.
type treePlace struct{ locks, misses string }

var treePlaces = []treePlace{{LocksHost, ""}, {LocksDevice, ""}, {LocksSwitch, ""}, {LocksSwitch, "wait"}}

func (b *treeBody) Flags(fs *pflag.FlagSet) {
	floatsFlag(fs, &b.zipfs, "zipf", "values of Zipf's `exponent` of the popularity of keys, 0 (all equally popular) to 2, separated by commas")
	fs.IntSliceVar(&b.clients, "clients", nil, fmt.Sprintf("numbers of clients, 1 to %d, separated by commas (default 64,176; on a rack 16)", maxClients))
}

func (b *treeBody) Check(at Place) error {
	if b.alone = []bool{true, false}; at.On == OnRack {
		b.alone = []bool{false}
	}
	if b.clients == nil {
		if b.clients = []int{64, 176}; at.On == OnRack {
			b.clients = []int{rackClients}
		}
		if at.Quick {
			b.clients = []int{rackClients}
		}
	}
	if at.Quick {
		b.zipfs = b.zipfs[len(b.zipfs)-min(1, len(b.zipfs)):]
	}
	for _, z := range b.zipfs {
		if !(z >= 0 && z <= 2) { // also true for NaN
			return fmt.Errorf("--zipf %g: want 0 to 2", z)
		}
	}
	b.quick = at.Quick
	return checkClients(b.clients, maxClients)
}

func (b *treeBody) Run(ctx context.Context, pl Platform, r *Report) error {
	r.Columns(
		Column{Key: "nodes", Title: "COMPUTE NODES", Repeats: true}, Column{Key: "zipf", Title: "ZIPF", Repeats: true},
		Column{Key: "clients", Title: "CLIENTS", Repeats: true}, Column{Key: "locks", Title: "LOCKS IN"}, Column{Key: "mops", Title: "Mops", Format: "%.4g"},
		Column{Key: "gain", Title: "GAIN ×", Format: "%.2f"}, Column{Key: "updateP50us", Title: "UPDATE p50 us", Format: "%.1f"},
		Column{Key: "updateP99us", Title: "p99 us", Format: "%.1f"}, Column{Key: "lockP99us", Title: "LOCK p99 us", Format: "%.1f"},
		Column{Key: "casPerLock", Title: "CAS/LOCK", Format: "%.1f"}, Column{Key: "handedOver", Title: "HANDED OVER %", Format: "%.0f"},
		Column{Key: "rttsPerOp", Title: "RTT/OP", Format: "%.2f"}, Column{Key: "bytesPerOp", Title: "BYTES/OP", Format: "%.0f"},
		Column{Key: "failed", Title: "FAILED"},
	)
	loads := b.loads(pl.On())
	done, err := measureAll(ctx, pl, r.Watch, loads)
	base := 0.0
	for _, l := range loads {
		res := done[l].store
		if res == nil {
			continue
		}
		mops := res.Throughput() / 1e6
		if l.Locks == LocksHost {
			base = mops
		}
		res.judge(r, b.quick, l.label())
		r.Add(l.treeCells(res, ratio(mops, base))...)
	}
	return err
}

func (b *treeBody) loads(on string) (list []Sherman) {
	for alone, zipf := range pairs(b.alone, b.zipfs) {
		for clients, at := range pairs(b.clients, treePlaces) {
			l := Sherman{Clients: clients, Workload: ycsb("a"), Zipf: zipf, Locks: at.locks, Misses: at.misses, Alone: alone}
			if on == OnSim {
				l.Warm, l.Run = skewWarm, skewRun
			}
			if b.quick {
				l.hasten(on)
			}
			list = append(list, l)
		}
	}
	return list
}

// hasten shortens a load of the tree, for --quick.
func (l *Sherman) hasten(on string) {
	l.Keys, l.Warm = 2000, 0
	if l.Run = quickRun / 2; on == OnRack {
		l.Run = quickRackRun
	}
}

// place returns the name of the place of lock words.
func (l *Sherman) place() string {
	if l.Misses == "" {
		return l.Locks
	}
	return l.Locks + ", misses=" + l.Misses
}

func (l *Sherman) name() string {
	how := ""
	if l.Alone {
		how = " alone"
	}
	return fmt.Sprintf("Zipf %g, %d clients%s, locks in %s", l.Zipf, l.Clients, how, l.place())
}

func (l *Sherman) treeCells(res *StoreResult, gain float64) []Cell {
	us := func(d time.Duration) Cell { return unlessZero(float64(d) / 1e3) }
	nodes := "hosts"
	if l.Alone {
		nodes = "clients"
	}
	wait := None()
	if n := res.Tree; n != nil && n.Acquires > 0 {
		wait = us(n.WaitP99)
	}
	cas, handed := locksTaken(res.Tree)
	return []Cell{
		Label(nodes), Label(strconv.FormatFloat(l.Zipf, 'g', -1, 64)), Num(float64(l.Clients)), Label(l.place()), Num(res.Throughput() / 1e6), Num(gain),
		us(res.Percentile(kv.KindUpdate, 50)), us(res.Percentile(kv.KindUpdate, 99)), wait, cas, handed, Num(res.Summary().RTTsPerOp),
		Num(res.BytesPerOp), Num(float64(res.failures())),
	}
}
