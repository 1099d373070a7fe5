package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/store/kv"
)

var cloverBaselines = Experiment{
	Name:     "clover-baselines",
	Short:    "Clover, pDPM-Direct and pDPM-Central under YCSB A, B and C: throughput, latency, round trips",
	Figure:   "the comparison of designs under YCSB in Clover's paper (ATC 2020); in addition, Clover with copies of nodes",
	Examples: []string{"--workloads a --clients 32 --servers 2"},
	Sim:      "7 min", Cost: "connectx5",
	New: func() Body {
		return &baselinesBody{workloads: []string{"a", "b", "c"}, clients: []int{8, 32, 64}, servers: []int{1, 2, 4}, replicas: []int{1, 2, 3}, cores: 12, keys: 1024, value: 1000, zipf: 0.99}
	},
}

type baselinesBody struct {
	workloads        []string
	clients, servers []int
	replicas         []int // how many copies Clover keeps of each node
	start            startFlag
	started          CloverStart // the parsed value of the flag --start
	cores            int
	keys             uint64
	value            int
	zipf             float64
	quick            bool
}

func (b *baselinesBody) Flags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&b.workloads, "workloads", b.workloads, "workloads of YCSB, separated by commas: a, b, c")
	clientsFlag(fs, &b.clients)
	fs.IntSliceVar(&b.servers, "servers", b.servers, "numbers of memory servers, 1 to 8, separated by commas")
	fs.IntSliceVar(&b.replicas, "replicas", b.replicas, "numbers of copies that Clover keeps, 1 to 3, separated by commas; those above the number of servers are left out")
	b.start.flag(fs, "threads and balance, like 'threads=4 balance'; the number of copies is in --replicas")
	fs.IntVar(&b.cores, "cores", b.cores, "cores of the coordinator of pDPM-Central, 1 to 64")
	fs.Uint64Var(&b.keys, "keys", b.keys, "number of keys, up to 20000, which are loaded before the measurement")
	fs.IntVar(&b.value, "value-size", b.value, "bytes of a value, 16 to 4000")
	fs.Float64Var(&b.zipf, "zipf", b.zipf, "Zipf's exponent of the popularity of keys, 0 (all equally popular) to 2")
}

// Largest values of the parameters: --servers, --cores, --keys and --value-size (in bytes).
const (
	baselineServers = 8
	baselineCores   = 64
	baselineKeys    = 20000
	baselineValue   = 4000
)

func (b *baselinesBody) Check(at Place) error {
	if b.quick = at.Quick; at.Quick {
		b.clients, b.servers = b.clients[:min(1, len(b.clients))], b.servers[:min(1, len(b.servers))]
	}
	for _, w := range b.workloads {
		if err := oneOf("workloads", w, "a", "b", "c"); err != nil {
			return err
		}
	}
	if len(b.servers) == 0 || slices.Min(b.servers) < 1 || slices.Max(b.servers) > baselineServers {
		return fmt.Errorf("--servers %v: want numbers of 1 to %d", b.servers, baselineServers)
	}
	if len(b.replicas) == 0 || slices.Min(b.replicas) < 1 || slices.Max(b.replicas) > maxReplicas {
		return fmt.Errorf("--replicas %v: want numbers of 1 to %d", b.replicas, maxReplicas)
	}
	var err error
	if b.started, err = b.start.parse(at.On); err != nil {
		return err
	}
	switch {
	case b.started.Replicas != 0:
		return errors.New("--start replicas: use --replicas, which has a row for each number")
	case b.cores < 1 || b.cores > baselineCores:
		return fmt.Errorf("--cores %d: want 1 to %d", b.cores, baselineCores)
	case b.keys < 1 || b.keys > baselineKeys:
		return fmt.Errorf("--keys %d: want 1 to %d", b.keys, baselineKeys)
	case b.value < kv.MinValue || b.value > baselineValue:
		return fmt.Errorf("--value-size %d: want %d to %d", b.value, kv.MinValue, baselineValue)
	case !(b.zipf >= 0 && b.zipf <= 2): // also true for NaN
		return fmt.Errorf("--zipf %g: want 0 to 2", b.zipf)
	}
	return checkClients(b.clients, maxClients)
}

// baselinePool is how many nodes (versions of values) each memory server has room for in a load of
// Clover: enough for all updates of a run.
const baselinePool = 1 << 16

func (b *baselinesBody) Run(ctx context.Context, pl Platform, r *Report) error {
	r.Columns(
		Column{Key: "workload", Title: "YCSB", Repeats: true}, Column{Key: "servers", Title: "SERVERS", Repeats: true},
		Column{Key: "clients", Title: "CLIENTS", Repeats: true}, Column{Key: "store", Title: "STORE"}, Column{Key: "copies", Title: "COPIES"}, Column{Key: "mops", Title: "Mops", Format: "%.3g"},
		Column{Key: "readP50us", Title: "READ p50 us", Format: "%.1f"}, Column{Key: "readP99us", Title: "p99", Format: "%.1f"},
		Column{Key: "updateP50us", Title: "UPDATE p50 us", Format: "%.1f"}, Column{Key: "updateP99us", Title: "p99", Format: "%.1f"},
		Column{Key: "rttsPerOp", Title: "RTT/OP", Format: "%.2f"}, Column{Key: "firstTry", Title: "FIRST TRY %", Format: "%.1f"},
		Column{Key: "bytesPerOp", Title: "BYTES/OP", Format: "%.0f"}, Column{Key: "failed", Title: "FAILED"},
	)
	n, all := 0, 0
	for _, servers := range b.servers {
		all += len(b.systems(servers)) * len(b.workloads) * len(b.clients)
	}
	for name, servers := range pairs(b.workloads, b.servers) {
		w := ycsb(name)
		for clients, store := range pairs(b.clients, b.systems(servers)) {
			n++
			r.begin(n, all, "%s, workload %s, %d servers, %d clients", store, name, servers, clients)
			res, paper, err := b.measure(ctx, pl, store, w, servers, clients)
			if err != nil {
				return fmt.Errorf("%s, workload %s, %d servers, %d clients: %w", store, name, servers, clients, err)
			}
			r.end("%.3g Mops", res.Throughput()/1e6)
			res.judge(r, b.quick, fmt.Sprintf("%s, workload %s, %d servers, %d clients", store, name, servers, clients))
			us := func(k kv.Kind, p float64) Cell { return unlessZero(float64(res.Percentile(k, p)) / 1e3) }
			first := None()
			if res.Writes() > 0 {
				first = Num(100 * res.FirstTryShare())
			}
			r.Add(Label(name), Num(float64(servers)), Num(float64(clients)), Label(store.name), Num(float64(store.copies)), Num(res.Throughput()/1e6),
				us(kv.KindRead, 50), us(kv.KindRead, 99), us(kv.KindUpdate, 50), us(kv.KindUpdate, 99),
				Beside(res.Summary().RTTsPerOp, w.Read*paper[0]+w.Update*paper[1]), first, Num(res.BytesPerOp), Num(float64(res.failures())))
		}
	}
	return nil
}

// measure runs the load on one store. paper has the numbers of round trips of a GET and a PUT in
// the authors' code.
func (b *baselinesBody) measure(
	ctx context.Context, pl Platform, store system, w kv.Workload, servers, clients int,
) (res StoreResult, paper [2]float64, err error) {
	if store.name == "Clover" {
		l := Clover{
			Clients: clients, Writes: 100 * w.Update, Keys: b.keys, Value: b.value, Zipf: b.zipf, Servers: servers, Pool: baselinePool,
			Start: b.started, Switch: Switch{LineRate: true},
		}
		l.Start.Replicas = store.copies
		if b.quick {
			l.hasten(pl.On())
		}
		paper = [2]float64{1, 2}
		if store.copies > 1 {
			paper[1] = 3
		}
		res, err = pl.Clover(ctx, l)
		return res, paper, err
	}
	l := Direct{Clients: clients, Workload: w, Keys: b.keys, Value: b.value, Zipf: b.zipf, Servers: servers, Warm: 2 * quickRun, Run: 5 * quickRun}
	if b.quick {
		l.Warm, l.Run = quickWarm, quickRun
	}
	paper = [2]float64{1, 4}
	if store.name == "pDPM-Central" {
		l.Central, paper = b.cores, [2]float64{2, 2}
	}
	res, err = pl.Direct(ctx, l)
	return res, paper, err
}

// system is a store of the comparison. copies is how many copies Clover keeps of each node, which
// is a version of a value; it is 1 for the other stores.
type system struct {
	name   string
	copies int
}

// systems lists the stores that are compared on the given number of memory servers: Clover with
// each number of copies that does not exceed it, and both pDPM designs.
func (b *baselinesBody) systems(servers int) (list []system) {
	for _, n := range b.replicas {
		if n <= servers {
			list = append(list, system{"Clover", n})
		}
	}
	return append(list, system{"pDPM-Direct", 1}, system{"pDPM-Central", 1})
}

func (s system) String() string {
	if s.copies == 1 {
		return s.name
	}
	return fmt.Sprintf("%s with %d copies", s.name, s.copies)
}
