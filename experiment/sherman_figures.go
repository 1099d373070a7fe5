package experiment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/sherman"
	"github.com/rdmalab/rdmalab/store/kv"
)

// shermanFigures measures the comparison of Sherman's paper: FG+ (its baseline), and each technique
// of Sherman added to it.
var shermanFigures = Experiment{
	Name:     "sherman-figures",
	Short:    "Sherman, its baseline FG+ and the designs between them, beside the paper's claims",
	Figure:   "Sherman §5: throughput and latency from FG+ to Sherman, by workload and skew",
	Examples: []string{"--mixes write-intensive --zipf 0.99", "--on rack --clients 16"},
	Lists: func() map[string][]string {
		return map[string][]string{"Steps": lines(sherman.Steps(), func(_ int, s sherman.Step) string { return fmt.Sprintf("%-13s %s", s.Name, s.Adds) })}
	},
	Sim: "15 min with two processors, with --quick 3 min", Rack: "3 min", Cost: "connectx5",
	New: func() Body {
		return &stepsBody{zipfs: []float64{0, 0.99}, mixes: []string{"write-only", "write-intensive", "read-intensive", "range"}}
	},
}

// paperMixes are the mixes of operations of Sherman's paper; its inserts are updates here.
var paperMixes = []kv.Workload{
	{Name: "write-only", Update: 1},
	{Name: "write-intensive", Read: 0.5, Update: 0.5},
	{Name: "read-intensive", Read: 0.95, Update: 0.05},
	{Name: "range", Scan: 1},
	{Name: "range-write", Scan: 0.5, Update: 0.5},
}

// The claims of Sherman's paper for skewed, write-intensive load: by which factor Sherman has more
// throughput than FG+, and by which factor its 99th percentile of latency is smaller ("one order of
// magnitude", abstract).
const (
	claimedGain = 23
	claimedTail = "~10"
)

const (
	stepKeys    = 100_000
	stepClients = 176
	stepServers = 8
	stepRun     = 2 * time.Millisecond
	// Skewed writes are counted for skewRun, from the time skewWarm on: until then, more and more clients
	// come to wait for the hottest locks, and the throughput falls.
	skewWarm = 10 * time.Millisecond
	skewRun  = 10 * time.Millisecond
)

type stepsBody struct {
	zipfs   []float64
	mixes   []string
	clients int
	loads   []Sherman // in the order of the rows
	quick   bool
}

func (b *stepsBody) Flags(fs *pflag.FlagSet) {
	floatsFlag(fs, &b.zipfs, "zipf", "values of Zipf's `exponent` of the popularity of keys, 0 (all equally popular) to 2, separated by commas")
	fs.StringSliceVar(&b.mixes, "mixes", b.mixes, "mixes to measure, separated by commas: write-only, write-intensive, read-intensive, range, range-write")
	fs.IntVar(&b.clients, "clients", 0, fmt.Sprintf("number of clients, 1 to %d (default %d; on a rack %d)", maxClients, stepClients, rackClients))
}

func (b *stepsBody) Check(at Place) error {
	if b.clients == 0 {
		if b.clients = stepClients; at.On == OnRack {
			b.clients = rackClients
		}
	}
	if err := checkClients([]int{b.clients}, maxClients); err != nil {
		return err
	}
	b.loads, b.quick = b.loads[:0], at.Quick
	for _, name := range b.mixes {
		w, err := mixOf(name)
		if err != nil {
			return err
		}
		for _, z := range b.zipfs {
			if !(z >= 0 && z <= 2) { // also true for NaN
				return fmt.Errorf("--zipf %g: want 0 to 2", z)
			}
			for _, s := range sherman.StepNames() {
				l := Sherman{Clients: b.clients, Workload: w, Keys: stepKeys, Zipf: z, Step: s, Servers: stepServers}
				if at.On == OnSim {
					if l.Run = stepRun; z > 0 && w.Update > 0 {
						l.Warm, l.Run = skewWarm, skewRun
					}
				}
				if at.Quick {
					l.hasten(at.On)
				}
				b.loads = append(b.loads, l)
			}
		}
	}
	return nil
}

func mixOf(name string) (kv.Workload, error) {
	list := ""
	for _, w := range paperMixes {
		if w.Name == name {
			return w, nil
		}
		list += " " + w.Name
	}
	return kv.Workload{}, fmt.Errorf("--mixes %.40q: there are%s", name, list)
}

func (b *stepsBody) Run(ctx context.Context, p Platform, r *Report) error {
	r.Columns(
		Column{Key: "mix", Title: "MIX", Repeats: true}, Column{Key: "zipf", Title: "ZIPF", Repeats: true}, Column{Key: "step", Title: "STEP"},
		Column{Key: "mops", Title: "Mops", Format: "%.4g"}, Column{Key: "gain", Title: "GAIN ×", Format: "%.2f"},
		Column{Key: "p50us", Title: "p50 us", Format: "%.1f"}, Column{Key: "p99us", Title: "p99 us", Format: "%.1f"},
		Column{Key: "p99less", Title: "p99 ÷", Format: "%.1f"}, Column{Key: "casPerLock", Title: "CAS/LOCK", Format: "%.1f"},
		Column{Key: "handedOver", Title: "HANDED OVER %", Format: "%.0f"}, Column{Key: "rttsPerOp", Title: "RTT/OP", Format: "%.2f"},
		Column{Key: "bytesPerOp", Title: "BYTES/OP", Format: "%.0f"}, Column{Key: "failed", Title: "FAILED"},
	)
	done, err := measureAll(ctx, p, r.Watch, b.loads)
	var base *StoreResult
	for _, l := range b.loads {
		if l.Step == b.loads[0].Step {
			base = done[l].store
		}
		if res := done[l].store; res != nil {
			res.judge(r, b.quick, l.label())
			r.Add(l.stepCells(res, base)...)
		}
	}
	return err
}

// stepCells returns the cells of one row; base is the result of FG+, nil if it was not measured.
func (l *Sherman) stepCells(res, base *StoreResult) []Cell {
	kind := kv.KindUpdate
	if l.Workload.Update == 0 {
		kind = kv.KindScan
	}
	us := func(q float64) Cell { return unlessZero(float64(res.Percentile(kind, q)) / 1e3) }
	gain, less := None(), None()
	if base != nil {
		gain = Num(ratio(res.Throughput(), base.Throughput()))
		less = unlessZero(ratio(float64(base.Percentile(kind, 99)), float64(res.Percentile(kind, 99))))
	}
	if l.Step == "sherman" && l.Workload.Name == "write-intensive" && l.Zipf == 0.99 {
		gain.Paper, less.Claim = claimedGain, claimedTail
	}
	cas, handed := locksTaken(res.Tree)
	return []Cell{
		Label(l.Workload.Name), Label(strconv.FormatFloat(l.Zipf, 'g', -1, 64)), Label(l.Step), Num(res.Throughput() / 1e6), gain,
		us(50), us(99), less, cas, handed, Num(res.Summary().RTTsPerOp), Num(res.BytesPerOp), Num(float64(res.failures())),
	}
}

// locksTaken returns two cells: the mean number of CAS for a lock that was not handed over, and the
// percentage of locks that were handed over.
func locksTaken(n *TreeStats) (cas, handed Cell) {
	if n == nil || n.Acquires == 0 {
		return None(), None()
	}
	if asked := n.Acquires - n.HandOvers; asked > 0 {
		cas = Num(float64(n.CAS) / float64(asked))
	}
	return cas, Num(100 * float64(n.HandOvers) / float64(n.Acquires))
}
