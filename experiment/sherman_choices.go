package experiment

import (
	"context"
	"time"
)

// shermanChoices measures how much each choice of the simulator's model changes Sherman's gain over
// FG+, the baseline of its paper.
var shermanChoices = Experiment{
	Name:   "sherman-choices",
	Short:  "how much Sherman's gain over FG+ in the simulator depends on each choice of the model",
	Figure: "Sherman §5 (throughput under skewed, write-intensive load), in a table that the paper does not have",
	Lists: func() map[string][]string {
		return map[string][]string{"Changes": lines(treeChoices[1:], func(_ int, c treeChoice) string { return c.name })}
	},
	Sim: "2 min with two processors, with --quick 10 s", Cost: "connectx5",
	New: func() Body { return new(treeChoicesBody) },
}

// treeChoice is one row of the experiment's table. change replaces one choice of the model in a
// load.
type treeChoice struct {
	name   string
	change func(l *Sherman)
}

// treeChoices are the rows of the table. The first changes nothing.
var treeChoices = []treeChoice{
	{"all choices", func(*Sherman) {}},
	{"counted from 0.2 to 2.2 ms, not from 10 to 20 ms", func(l *Sherman) { l.Warm, l.Run = 200*time.Microsecond, 2*time.Millisecond }},
	{"FG+'s locks in a table in host memory, not in its pages", func(l *Sherman) {
		if l.Step == "fg+" {
			l.Locks = LocksHost
		}
	}},
	{"atomics exclude each other by 12 bits of the address", func(l *Sherman) { l.Slots = 4096 }},
	{"10,000 keys, not 100,000", func(l *Sherman) { l.Keys /= 10 }},
	{"88 clients, not 176", func(l *Sherman) { l.Clients /= 2 }},
	{"1 memory server, not 8", func(l *Sherman) { l.Servers = 1 }},
	{"4 hand-overs in a row, not 8", func(l *Sherman) { l.HandOver = 4 }},
	{"another seed", func(l *Sherman) { l.Seed = 2 }},
}

type treeChoicesBody struct {
	noFlags
	quick bool
}

func (b *treeChoicesBody) Check(at Place) error {
	b.quick = at.Quick
	return nil
}

// of returns the load for a row of the table and a step of sherman.Steps.
func (b *treeChoicesBody) of(row treeChoice, step string) Sherman {
	w, _ := mixOf("write-intensive") // paperMixes has this mix
	l := Sherman{
		Clients: stepClients, Workload: w, Keys: stepKeys, Zipf: 0.99, Step: step, Servers: stepServers, Seed: 1, Warm: skewWarm, Run: skewRun,
	}
	if b.quick {
		l.hasten(OnSim)
	}
	row.change(&l)
	return l
}

func (b *treeChoicesBody) Run(ctx context.Context, p Platform, r *Report) error {
	r.Columns(
		Column{Key: "model", Title: "MODEL"}, Column{Key: "base", Title: "FG+ Mops", Format: "%.4g"}, Column{Key: "mops", Title: "SHERMAN Mops", Format: "%.4g"},
		Column{Key: "gain", Title: "GAIN ×", Format: "%.1f"}, Column{Key: "p99less", Title: "p99 ÷", Format: "%.1f"},
		Column{Key: "casPerLock", Title: "CAS/LOCK", Format: "%.1f"}, Column{Key: "failed", Title: "FAILED"},
	)
	var list []Sherman
	for row, step := range pairs(treeChoices, []string{"fg+", "sherman"}) {
		list = append(list, b.of(row, step))
	}
	done, err := measureAll(ctx, p, r.Watch, list)
	for i, row := range treeChoices {
		base, mine := b.of(row, "fg+"), b.of(row, "sherman")
		from, to := done[base].store, done[mine].store
		if from == nil || to == nil {
			continue
		}
		cells := mine.stepCells(to, from)
		gain, less := cells[4], cells[7]
		if i > 0 {
			gain.Paper, less.Claim = 0, ""
		}
		cas, _ := locksTaken(from.Tree)
		failed := from.failures() + to.failures()
		from.judge(r, b.quick, row.name+", FG+")
		to.judge(r, b.quick, row.name+", Sherman")
		r.Add(Label(row.name), Num(from.Throughput()/1e6), Num(to.Throughput()/1e6), gain, less, cas, Num(float64(failed)))
	}
	return err
}
