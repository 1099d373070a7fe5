package experiment

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// steeringGain reproduces the SwordBox paper's measurements of steering: without steering, with
// hardened rules and with published rules.
var steeringGain = Experiment{
	Name:     "steering-gain",
	Short:    "Clover's throughput without steering, with hardened steering and with published steering",
	Figure:   "SwordBox fig. 5 (success of first attempts), 11 (throughput), 12 (bytes), 13 (p99), 14 (few keys steered)",
	Examples: []string{"--rows 4,5", "--rows 4 --switch 'line rate'", "--on rack --rows 4"},
	Lists: func() map[string][]string {
		return map[string][]string{"Loads": lines(steeringRows(), func(i int, r steeringRow) string { return fmt.Sprintf("%d  %s", i+1, r.name) })}
	},
	Sim: "40 min, with one load (--rows N) 2 to 8 min", Rack: "2 min", Cost: "connectx5-dpdk",
	New: func() Body { return &steeringBody{} },
}

type steeringBody struct {
	rows     []int
	switches []string
	clients  int
	times    times
	quick    bool
}

// steeringRow is one load with the paper's values for it.
type steeringRow struct {
	name string
	load Clover
	// plain and steered are the paper's values without and with steering.
	plain, steered published
	// sim is true if the row is measured only in the simulator, and false if it is also measured on
	// a rack.
	sim bool
}

// The switches of steering-gain, as in its column SWITCH. On a rack there is the rack's alone.
const (
	atLineRate = "line rate"
	asModelled = "cost model"
	ofRack     = "rack"
)

// smallPool is the number of nodes of a small pool: four for each of the 1,024 keys, and 17 for
// each of 240 clients, which hold free nodes in stock.
const smallPool = 4*1024 + 240*17

func steeringRows() []steeringRow {
	load := func(clients int, writes, zipf float64, hot int) Clover {
		return Clover{Clients: clients, Writes: writes, Zipf: zipf, Switch: steering(steerBoth, "", hot)}
	}
	at := func(writes float64, clients int) (plain, steered published) {
		c := steeringClaims[writes]
		return published{mops: paperMops(writes, steerNone, clients)}, published{mops: paperMops(writes, steerBoth, clients), gain: c.gain, saved: c.bytes}
	}
	row := func(writes float64) steeringRow {
		const clients = 400
		r := steeringRow{name: fmt.Sprintf("fig. 11-13: %g%% writes, %d clients", writes, clients), load: load(clients, writes, 0.99, 0)}
		r.plain, r.steered = at(writes, clients)
		return r
	}
	first := steeringRow{name: "fig. 5: 50% writes, 240 clients", load: load(240, 50, 0.99, 0)}
	first.plain, first.steered = at(50, 240)
	first.plain.firstTry, first.steered.firstTry = "<4", ">95"
	first.steered.gain, first.steered.saved = 0, 0
	none, few, half, all := row(0), row(5), row(50), row(100)
	few.steered.readP99, few.steered.writeP99 = 8, 17
	half.steered.readP99, half.steered.writeP99 = 300, 189
	all.steered.writeP99 = 252
	short := steeringRow{name: "100% writes, 240 clients, nodes reused at once", load: load(240, 100, 0.99, 0), sim: true}
	short.load.Pool = smallPool
	return []steeringRow{
		first, none, few, half, all,
		{name: "fig. 14: Zipf 1.5, 336 clients, 8 keys steered", load: load(336, 50, 1.5, 8), steered: published{gain: 9.5}},
		{name: "fig. 14: Zipf 1.5, 336 clients, 64 keys steered", load: load(336, 50, 1.5, 64), steered: published{gain: 27}},
		short,
	}
}

// rackClients is the number of clients on a rack; it is small because all hosts share this
// machine's processors.
const rackClients = 16

func (b *steeringBody) Flags(fs *pflag.FlagSet) {
	fs.IntSliceVar(&b.rows, "rows", nil, "numbers of the loads to measure, as in the list above, separated by commas (default: all)")
	fs.StringSliceVar(&b.switches, "switch", nil, "with --on sim: switches of the column SWITCH, separated by commas (default \""+atLineRate+","+asModelled+"\")")
	b.times.flags(fs)
	fs.IntVar(&b.clients, "clients", 0, fmt.Sprintf("clients of each row, 1 to %d (default: as the row says; on a rack 16)", maxClients))
}

func (b *steeringBody) Check(at Place) error {
	all := steeringRows()
	if len(b.rows) == 0 {
		for i, r := range all {
			if !r.sim || at.On == OnSim {
				b.rows = append(b.rows, i+1)
			}
		}
	}
	for _, n := range b.rows {
		if n < 1 || n > len(all) {
			return fmt.Errorf("--rows %d: there are rows 1 to %d", n, len(all))
		}
		if all[n-1].sim && at.On != OnSim {
			return fmt.Errorf("--rows %d: only the simulator has a small pool of nodes", n)
		}
	}
	if at.On == OnRack {
		if len(b.switches) > 0 {
			return errors.New("--switch: a rack has one switch; leave the flag out, or measure with --on sim")
		}
		b.switches = []string{ofRack}
	}
	if len(b.switches) == 0 {
		b.switches = []string{atLineRate, asModelled}
	}
	for _, s := range b.switches {
		if at.On != OnRack && s != atLineRate && s != asModelled {
			return fmt.Errorf("--switch %q: want %q or %q", s, atLineRate, asModelled)
		}
	}
	if b.clients == 0 && at.On == OnRack {
		b.clients = rackClients
	}
	if b.clients != 0 {
		if err := checkClients([]int{b.clients}, maxClients); err != nil {
			return err
		}
	}
	b.quick = at.Quick
	return b.times.check()
}

func (b *steeringBody) Run(ctx context.Context, pl Platform, r *Report) error {
	r.Columns(append([]Column{{Key: "load", Title: "LOAD", Repeats: true}, {Key: "clients", Title: "CLIENTS", Repeats: true}, {Key: "switch", Title: "SWITCH", Repeats: true}, {Key: "steer", Title: "STEERING"}},
		cloverColumns...)...)
	all := steeringRows()
	if why := b.LeftOut(pl.On()); why != "" {
		r.Summary = append(r.Summary, why)
	}
	total := 0
	for _, n := range b.rows {
		total += len(b.switches) * len(all[n-1].steerings(pl.On()))
	}
	done := 0
	for _, n := range b.rows {
		row := &all[n-1]
		for _, box := range b.switches {
			if err := b.row(ctx, pl, r, row, box, done, total); err != nil {
				return fmt.Errorf("%s, switch: %s, %w", row.name, box, err)
			}
			done += len(row.steerings(pl.On()))
		}
	}
	return nil
}

// LeftOut says which measurements are not made on a platform and why; "" means that all are made.
func (*steeringBody) LeftOut(on string) string {
	if on != OnRack {
		return ""
	}
	return "published steering is not measured on a rack: requests of a store with several memory servers, or with nodes that are used again, " +
		"would fail (holes 26, 27 and 29); with --on sim it is measured"
}

// steerings lists how the switch steers in the measurements of a row. Where nodes have versions, the
// published program links nodes to themselves (holes 26 and 29). Nodes have them with a small pool
// in the simulator, and always on a rack.
func (r *steeringRow) steerings(on string) []string {
	if r.load.Pool != 0 || on == OnRack {
		return []string{steerNone, Hardened}
	}
	return []string{steerNone, Hardened, Published}
}

// row measures one load behind one switch with each of its steerings. For the display of progress, total is the
// number of measurements of all rows, and before the number of those that have ended.
func (b *steeringBody) row(ctx context.Context, pl Platform, r *Report, row *steeringRow, box string, before, total int) error {
	l := row.load
	if b.clients > 0 {
		l.Clients = b.clients
	}
	if b.times.set(&l, pl.On()); b.quick {
		l.hasten(pl.On())
		if b.clients == 0 {
			l.Clients /= 8
		}
	}
	var plain *cloverFigures
	for i, how := range row.steerings(pl.On()) {
		one, says := l, row.steered
		if one.Switch.Mode = how; how == steerNone {
			one.Switch, says = Switch{}, row.plain
		}
		one.Switch.LineRate = box == atLineRate
		what := fmt.Sprintf("%s, switch: %s, steering %s", row.name, box, how)
		r.begin(before+i+1, total, "%s", what)
		res, err := pl.Clover(ctx, one)
		if err != nil {
			return fmt.Errorf("steering %s: %w", how, err)
		}
		f := res.figures()
		r.end("%.3g Mops", f.mops)
		res.judge(r, b.quick, what)
		r.Add(append([]Cell{Label(row.name), Num(float64(l.Clients)), Label(box), Label(how)}, f.cells(plain, says)...)...)
		if plain == nil {
			plain = &f
		}
	}
	return nil
}
