package experiment

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
)

// cloverChoices measures how much each choice of the simulator's model of Clover (see Choice)
// changes the results.
var cloverChoices = Experiment{
	Name:     "clover-choices",
	Short:    "how much Clover's throughput in the simulator depends on each choice of the model",
	Figure:   "SwordBox fig. 11 (throughput), in a table that the paper does not have",
	Examples: []string{"--threads 56 --quick"},
	Lists: func() map[string][]string {
		return map[string][]string{"Changes": lines(choices[1:len(choices)-1], func(_ int, c choice) string { return c.name })}
	},
	Sim: "10 min with two processors, with --quick 1 min", Cost: "connectx5",
	New: func() Body { return &choicesBody{threads: 392} },
}

// choice is one row of the table. undo is the set of choices of the model that the row replaces.
type choice struct {
	undo Choice
	name string
}

var choices = []choice{
	{0, "all choices"},
	{OldTotals, "NIC limits of RedN (65M READs/s, 63M WRITEs/s), not the authors' (84.5M, 118M)"},
	{ShortPatience, "a client gives up an operation after 10 ms, not 1 s"},
	{OtherKeys, "1,024 keys and Zipf 0.99, not 1,000 and 1.0"},
	{OwnCaches, "a location cache for each client, not each machine"},
	{NoProgram, "the program of a client takes no time, not what the authors measured"},
	{OneThread, "a metadata server of one thread, not twelve"},
	{OldShortcuts, "shortcuts as the published client uses them (one READ in an operation, WRITEs with reports), not ours"},
	{AllChoices, "none of the choices"},
}

type choicesBody struct {
	threads int
	quick   bool
}

func (b *choicesBody) Flags(fs *pflag.FlagSet) {
	fs.IntVar(&b.threads, "threads", b.threads, fmt.Sprintf("number of clients, 1 to %d, which the authors call threads; 392 is their largest number", maxClients))
}

func (b *choicesBody) Check(at Place) error {
	if b.threads < 1 || b.threads > maxClients {
		return fmt.Errorf("--threads %d: want 1 to %d", b.threads, maxClients)
	}
	b.quick = at.Quick
	return nil
}

// choiceColumn is one column of the table: a load with `writes` percent of writes, and box as the
// state of the switch. data is the name of the authors' series in their data.
type choiceColumn struct {
	key, title string
	writes     float64
	box        Switch
	data       string
	// value is what the column has of a measurement; nil means the throughput, beside the authors'.
	value func(*outcome) float64
}

func choiceColumns() []choiceColumn {
	published, hardened := steering(steerBoth, Published, 0), steering(steerBoth, Hardened, 0)
	return []choiceColumn{
		{key: "none0", title: "0 %", data: "none"},
		{key: "none5", title: "5 %", writes: 5, data: "none"},
		{key: "none50", title: "50 %", writes: 50, data: "none"},
		{key: "none100", title: "100 %", writes: 100, data: "none"},
		{key: "published50", title: "50 %, PUBLISHED", writes: 50, box: published, data: "both"},
		{key: "published100", title: "100 %, PUBLISHED", writes: 100, box: published, data: "both"},
		{key: "hardened50", title: "50 %, HARDENED", writes: 50, box: hardened, data: "both"},
		{key: "hardened100", title: "100 %, HARDENED", writes: 100, box: hardened, data: "both"},
		{key: "readP99", title: "50 %: READ p99 us", writes: 50, value: func(o *outcome) float64 { return o.store.figures().readP99 }},
		{key: "bytes", title: "50 %: BYTES/OP", writes: 50, value: func(o *outcome) float64 { return o.store.BytesPerOp }},
	}
}

func (b *choicesBody) Run(ctx context.Context, p Platform, r *Report) error {
	columns := choiceColumns()
	list := []Column{{Key: "model", Title: "Mops WITH"}}
	for _, c := range columns {
		list = append(list, Column{Key: c.key, Title: c.title, Format: "%.4g"})
	}
	r.Columns(append(list, Column{Key: "failed", Title: "FAILED"})...)
	of := func(row choice, c choiceColumn) Clover {
		l := cloverLoad(b.threads, c.writes, c.box, b.quick)
		l.Undo = row.undo
		return l
	}
	var all []Clover
	for row, c := range pairs(choices, columns) {
		all = append(all, of(row, c))
	}
	done, err := measureAll(ctx, p, r.Watch, all)
	for _, row := range choices {
		cells, failed := []Cell{Label(row.name)}, uint64(0)
		for _, c := range columns {
			o, ok := done[of(row, c)]
			switch {
			case !ok:
				cells = append(cells, None())
				continue
			case c.value != nil:
				cells = append(cells, Num(c.value(&o)))
				continue
			case row.undo == 0:
				cells = append(cells, Beside(o.mops(), paperMops(c.writes, c.data, b.threads)))
			default:
				cells = append(cells, Num(o.mops()))
			}
			failed += o.store.failures()
			o.store.judge(r, b.quick, row.name+", "+c.title)
		}
		r.Add(append(cells, Num(float64(failed)))...)
	}
	return err
}
