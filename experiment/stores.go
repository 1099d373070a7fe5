package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Values of the flag that selects the requests that the switch steers: writes, READs, both or none.
const (
	steerNone  = "none"
	steerWrite = "write"
	steerRead  = "read"
	steerBoth  = "both"
)

// Values of the flag that says whether clients report their appends themselves or together.
const (
	ofClient  = "client"
	ofProcess = "process"
)

// quickWarm and quickRun are times of a measurement with --quick: in the simulator, and on a rack.
const (
	quickWarm     = 500 * time.Microsecond
	quickRun      = time.Millisecond
	quickRackWarm = 200 * time.Millisecond
	quickRackRun  = 500 * time.Millisecond
)

// floatsFlag defines a flag for a list of numbers, whose default is the present value of list. The
// help shows the default with few digits.
func floatsFlag(fs *pflag.FlagSet, list *[]float64, name, usage string) {
	fs.Float64SliceVar(list, name, *list, usage)
	fs.Lookup(name).DefValue = strings.ReplaceAll(fmt.Sprint(*list), " ", ",")
}

// hasten shortens the times of a load of Clover, for --quick.
func (l *Clover) hasten(on string) {
	if l.Warm, l.Run = quickWarm, quickRun; on == OnRack {
		l.Warm, l.Run = quickRackWarm, quickRackRun
	}
}

// cloverFigures are the numbers of one run that tables show.
type cloverFigures struct {
	mops, firstTry, rtts, rpcs, bytes, readP99, writeP99 float64
	callsPerWrite, headersPerWrite                       float64
	absorbed                                             float64 // share of the writes; negative: not known
	failed                                               uint64
	wrote                                                bool   // true: the run had writes, so firstTry has a meaning
	unsteady                                             string // why the run was not in steady state
}

func (r *StoreResult) figures() cloverFigures {
	us := func(k kv.Kind) float64 { return float64(r.Percentile(k, 99)) / 1e3 }
	writes, absorbed := r.Throughput()*ratio(float64(r.Writes()), float64(r.Total())), -1.0
	if n := r.Writes(); n > 0 && r.Absorbed != nil {
		absorbed = float64(*r.Absorbed) / float64(n)
	}
	return cloverFigures{
		mops: r.Throughput() / 1e6, firstTry: r.FirstTryShare(), rtts: r.Summary().RTTsPerOp,
		rpcs: float64(r.RPCs) / float64(max(1, r.Total())), bytes: r.BytesPerOp, readP99: us(kv.KindRead), writeP99: us(kv.KindUpdate),
		callsPerWrite: ratio(r.MetaCalls, writes), headersPerWrite: ratio(r.MetaHeaders, writes), absorbed: absorbed, failed: r.failures(), wrote: r.Writes() > 0,
		unsteady: r.unsteady(),
	}
}

// ratio returns a / b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// cloverColumns are the columns for cloverFigures. Some compare a run with the run without
// steering.
var cloverColumns = []Column{
	{Key: "mops", Title: "Mops", Format: "%.4g"},
	{Key: "gain", Title: "GAIN ×", Format: "%.1f"},
	{Key: "firstTry", Title: "FIRST TRY %", Format: "%.1f"},
	{Key: "rttsPerOp", Title: "RTT/OP", Format: "%.2f"},
	{Key: "rpcsPerOp", Title: "RPC/OP", Format: "%.3f"},
	{Key: "bytesPerOp", Title: "BYTES/OP", Format: "%.0f"},
	{Key: "saved", Title: "BYTES ÷", Format: "%.1f"},
	{Key: "readP99us", Title: "READ p99 us", Format: "%.1f"},
	{Key: "readP99saved", Title: "÷", Format: "%.1f"},
	{Key: "writeP99us", Title: "WRITE p99 us", Format: "%.1f"},
	{Key: "writeP99saved", Title: "÷", Format: "%.1f"},
	{Key: "callsPerWrite", Title: "CALLS/WRITE", Format: "%.3g"},
	{Key: "headersPerWrite", Title: "HEADERS/WRITE", Format: "%.3g"},
	{Key: "absorbed", Title: "ABSORBED %", Format: "%.1f"},
	{Key: "failed", Title: "FAILED"},
	{Key: "steady", Title: "STEADY"},
}

// published has the paper's values for the cells of one row. mops and firstTry (in words) are those
// of the row itself. The others are the factors by which steering raises the throughput (gain), and
// lowers the bytes of an operation (saved) and the 99th percentiles of latency (readP99, writeP99).
// 0 and "" mean that the paper has none.
type published struct {
	mops, gain, saved, readP99, writeP99 float64
	firstTry                             string
}

// writeCell returns a cell with a number that only some runs have.
func writeCell(known bool, v float64) Cell {
	if !known {
		return None()
	}
	return Num(v)
}

// cells returns the numbers as cells, compared with plain, the run without steering. plain is nil
// if f is that run itself.
func (f *cloverFigures) cells(plain *cloverFigures, p published) []Cell {
	times := func(a, b, paper float64) Cell {
		if v := ratio(a, b); plain != nil && v != 0 {
			return Beside(v, paper)
		}
		return None()
	}
	base := cmp.Or(plain, new(cloverFigures))
	first := None()
	if f.wrote {
		first = Cell{Value: 100 * f.firstTry, Number: true, Claim: p.firstTry}
	}
	return []Cell{
		Beside(f.mops, p.mops), times(f.mops, base.mops, p.gain), first, Num(f.rtts), Num(f.rpcs), Num(f.bytes), times(base.bytes, f.bytes, p.saved),
		unlessZero(f.readP99), times(base.readP99, f.readP99, p.readP99), unlessZero(f.writeP99), times(base.writeP99, f.writeP99, p.writeP99),
		unlessZero(f.callsPerWrite), writeCell(f.wrote, f.headersPerWrite), writeCell(f.absorbed >= 0, 100*f.absorbed), Num(float64(f.failed)),
		Label(cmp.Or(f.unsteady, "yes")),
	}
}

// writeContention measures the collapse of Clover's throughput under writes.
var writeContention = Experiment{
	Name:     "write-contention",
	Short:    "throughput of the store Clover with 0 to 100 % writes by 8 to 240 clients; with --steer also with steering",
	Figure:   "SwordBox fig. 5 (success of first attempts), 11 (throughput) and 12 (bytes)",
	Examples: []string{"--steer both --writes 50 -o csv", "--on rack --clients 8"},
	Sim:      "5 min, with --steer 10 min", Rack: "1 min", Cost: "connectx5",
	New: func() Body {
		return &contentionBody{writes: []float64{0, 5, 50, 100}, steer: steerNone}
	},
}

type contentionBody struct {
	writes  []float64
	clients []int
	steer   string
	share   int
	// reporter says how appends are reported to the metadata server: each client reports its own
	// (ofClient), or one reporter reports for all clients of a process (ofProcess).
	reporter string
	start    startFlag
	started  CloverStart // the parsed value of the flag --start
	times    times
	quick    bool
}

func (b *contentionBody) Flags(fs *pflag.FlagSet) {
	floatsFlag(fs, &b.writes, "writes", "`percentages` of operations that are writes, 0 to 100, separated by commas")
	fs.IntSliceVar(&b.clients, "clients", nil, fmt.Sprintf("numbers of clients, 1 to %d, separated by commas (default 8,64,240; on a rack 8,32)", maxClients))
	fs.StringVar(&b.steer, "steer", b.steer, "add rows with a switch that steers appends (write), READs (read) or both, by hardened rules (mode=hardened of rdmalab switch rules add); none adds no rows")
	fs.IntVar(&b.share, "share-qp", 0, fmt.Sprintf("how many clients of a host share a queue pair to the memory server, 1 to %d (default: each client has its own)", clover.MaxGroup))
	fs.StringVar(&b.reporter, "reporter", ofClient, "how Clover's metadata server learns of appends: from each client itself (client) or from all clients of a host "+
		"together (process)")
	b.times.flags(fs)
	b.start.rackFlag(fs, "threads, replicas and balance, like 'threads=4 replicas=2'; replicas only with --steer none")
}

func (b *contentionBody) Check(at Place) error {
	if b.clients == nil {
		if b.clients = []int{8, 64, 240}; at.On == OnRack {
			b.clients = []int{8, 32}
		}
		if at.Quick {
			b.clients = b.clients[:1]
		}
	}
	if err := checkClients(b.clients, maxClients); err != nil {
		return err
	}
	for _, w := range b.writes {
		if !(w >= 0 && w <= 100) { // also true for NaN
			return fmt.Errorf("--writes %g: want a percentage", w)
		}
	}
	if b.share < 0 || b.share > clover.MaxGroup {
		return fmt.Errorf("--share-qp %d: want 0 to %d clients on a queue pair", b.share, clover.MaxGroup)
	}
	b.quick = at.Quick
	if err := b.times.check(); err != nil {
		return err
	}
	if err := oneOf("reporter", b.reporter, ofClient, ofProcess); err != nil {
		return err
	}
	var err error
	if b.started, err = b.start.parse(at.On); err != nil {
		return err
	}
	if b.started.Replicas > 1 && b.steer != steerNone {
		return errCopiesSteered
	}
	return oneOf("steer", b.steer, steerNone, steerWrite, steerRead, steerBoth)
}

func (b *contentionBody) Run(ctx context.Context, pl Platform, r *Report) error {
	r.Columns(append([]Column{
		{Key: "writes", Title: "WRITES %", Repeats: true}, {Key: "clients", Title: "CLIENTS", Repeats: true}, {Key: "steer", Title: "STEER"},
	}, cloverColumns...)...)
	kinds := []string{steerNone}
	if b.steer != steerNone {
		kinds = append(kinds, b.steer)
	}
	n := 0
	for w, clients := range pairs(b.writes, b.clients) {
		var plain *cloverFigures
		for _, steer := range kinds {
			l := Clover{Clients: clients, Writes: w, Zipf: 0.99, Share: b.share, Merge: b.reporter == ofProcess, Start: b.started, Switch: steering(steer, "", 0)}
			if b.times.set(&l, pl.On()); b.quick {
				l.hasten(pl.On())
			}
			n++
			r.begin(n, len(b.writes)*len(b.clients)*len(kinds), "%g%% writes, %d clients, steer %s", w, clients, steer)
			res, err := pl.Clover(ctx, l)
			if err != nil {
				return fmt.Errorf("%g%% writes, %d clients, steer %s: %w", w, clients, steer, err)
			}
			f := res.figures()
			r.end("%.3g Mops", f.mops)
			res.judge(r, b.quick, fmt.Sprintf("%g%% writes, %d clients, steer %s", w, clients, steer))
			says := b.paper(w, clients, steer)
			r.Add(append([]Cell{Num(w), Num(float64(clients)), Label(steer)}, f.cells(plain, says)...)...)
			plain = &f
		}
	}
	return nil
}

// paper returns the paper's values for a row. The factors that the paper claims are for many
// clients, so only rows with the most clients have them.
func (b *contentionBody) paper(writes float64, clients int, steer string) (p published) {
	switch p.mops = paperMops(writes, steer, clients); {
	case steer == steerNone && writes == 50 && clients >= 240:
		p.firstTry = "<4"
	case steer == steerBoth && clients == slices.Max(b.clients):
		p.gain, p.saved = steeringClaims[writes].gain, steeringClaims[writes].bytes
	}
	return p
}

// steering returns the state of a switch that steers the requests that `what` names (writes, READs
// or both) of the `hot` hottest keys; 0 means all keys. If what is steerNone, the switch forwards.
func steering(what, mode string, hot int) Switch {
	if what == steerNone {
		return Switch{}
	}
	return Switch{Action: Steer, Mode: mode, Steer: what, Hot: hot}
}
