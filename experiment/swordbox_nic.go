package experiment

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/experiment/papers"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/chipcost"
)

// NIC is a load of one kind of one-sided operations on a memory server.
type NIC struct {
	// Op is write, read or cas; Bytes is the size of a WRITE or READ.
	Op    string
	Bytes int
	// Pairs is the number of queue pairs, each used by its own thread; Depth is the number of
	// operations that each has in flight.
	Pairs, Depth int
	// Device places the memory on the server's NIC instead of in host memory. With OneWord, all
	// queue pairs access the same word. Without it, each has its own.
	Device, OneWord bool
}

func (l NIC) label() string {
	where := ""
	if l.OneWord {
		where = " on one word"
	}
	if l.Device {
		where += " in device memory"
	}
	return fmt.Sprintf("%s%s, %d queue pairs, %d in flight each", l.Op, where, l.Pairs, l.Depth)
}

func (l NIC) effort() float64 { return 0.01 * float64(l.Pairs*l.Depth) }

func (l NIC) measure(ctx context.Context, p Platform) (outcome, error) {
	rate, err := p.NIC(ctx, l)
	return outcome{rate: rate}, err
}

func pairsFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig1"), scale: 1e-6, key: "1", title: "WRITE of 8 bytes by number of queue pairs", unit: "Mops",
		inputs: []string{"the whole curve: the cost file has 18.6 million WRITEs a second of a queue pair and 118 million of the NIC"},
	}
	for _, n := range few(f.data.Columns, quick) {
		f.add(figureCell{
			series: "WRITE", their: "WRITE", x: n, theirs: f.at("", "write", n),
			load: NIC{Op: "write", Bytes: 8, Pairs: int(number(n)), Depth: 128}, value: (*outcome).mops,
		})
	}
	return f
}

// Order is a load of READs, WRITEs and CASes, a third each, of random words. The order in which they
// arrive at the switch is compared with that in which their answers leave it.
type Order struct {
	Clients, Words int
	// Zipf is the skew with which clients choose words: 0.99 as in YCSB, 0 for all words alike.
	Zipf float64
	// Rate is the rate of all clients together, in requests a second.
	Rate float64
	// Loss is the probability that a frame on the server's link is lost.
	Loss float64
	// Stall says which requests stall at the server's NIC, in place of what the cost model says.
	Stall cost.Stall
	// If Mapped is true, the switch moves requests to one shared connection. If it is false, the
	// switch only forwards.
	Mapped bool
}

func (l Order) label() string {
	how := "not mapped"
	if l.Mapped {
		how = "mapped"
	}
	if l.Loss > 0 {
		how += fmt.Sprintf(", %g%% loss", 100*l.Loss)
	}
	if l.Stall.Share > 0 {
		how += ", stalls"
	}
	return fmt.Sprintf("order of %d clients' requests, %s", l.Clients, how)
}

func (l Order) effort() float64 { return 0.1 * float64(l.Clients) }

func (l Order) measure(ctx context.Context, p Platform) (outcome, error) {
	shares, err := p.Order(ctx, l)
	return outcome{order: shares}, err
}

func orderFigure() figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig2"), key: "2", title: "distances of answers from the order of their requests, 32 connections, 1M requests a second", format: "%.3g",
		why: []string{
			"in the model a READ or CAS takes 0.2 us longer than a WRITE (RedN's figure 7), and a WRITE that follows one overtakes it; two answers that change places have no distance of 1, and neither has the next one",
			"with 3 % the authors' NIC has a third of these: how much longer its READs take is not published",
			"a client that has lost a packet waits for its ACK timer: with losses there are fewer requests a second",
			"only stalls give distances beyond 6; the authors' tail ends at 13 in the caption, and at 15 in the text",
		},
		inputs: []string{"the series with stalls: 0.5 % of the requests wait for 2 us on average, which is chosen to give the authors' tail"},
	}
	load := Order{Clients: 32, Words: 1024, Zipf: 0.99, Rate: 1e6}
	stalled, lossy, mapped := load, load, load
	stalled.Stall, lossy.Loss, mapped.Mapped = cost.Stall{Share: 0.005, Mean: 2 * time.Microsecond}, 1e-4, true
	for _, s := range []struct {
		name, data string
		load       Order
	}{{"without mapping", "none", load}, {"without mapping, NIC stalls", "none", stalled}, {"without mapping, 0.01% loss", "none", lossy}, {"with mapping, hardened", "mapped", mapped}} {
		for d := range orderColumns {
			column := strconv.Itoa(d)
			f.add(figureCell{
				series: s.name, their: s.name, x: column, theirs: f.at("", s.data, column), load: s.load, value: func(o *outcome) float64 { return 100 * o.order[d] },
			})
		}
		f.add(figureCell{
			series: s.name, their: s.name, x: "not 1", theirs: 100 - f.at("", s.data, "1"), load: s.load, value: func(o *outcome) float64 { return 100 * (1 - o.order[1]) },
		})
	}
	return f
}

// orderColumns are the distances 0 to 15 of figure 2: the authors' text has distances up to 15.
const orderColumns = 16

func independentFigure() figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig3"), scale: 1e-6, key: "3", title: "CAS on independent words by number of queue pairs", unit: "Mops",
		inputs: []string{"the whole curve: the cost file has 2.7 million CAS a second of a queue pair and 55 million of the NIC"},
	}
	for _, n := range []string{"1", "4", "8", "16", "20", "24"} {
		f.add(figureCell{series: "CAS", their: "CAS", x: n, theirs: f.at("", "cas", n), load: NIC{Op: "cas", Bytes: 8, Pairs: int(number(n)), Depth: 16}, value: (*outcome).mops})
	}
	return f
}

func oneWordFigure() figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig4"), scale: 1e-6, key: "4", title: "CAS on one word, and WRITE on one queue pair", unit: "Mops",
		inputs: []string{"all numbers: the cost file has CAS of one word (3 and 9 million a second), CAS of one queue pair, and WRITEs of one queue pair (18.6 and 22.5 million)"},
	}
	for _, s := range []struct {
		name, data string
		load       NIC
	}{
		{"CAS, one queue pair", "cas one queue pair", NIC{Op: "cas", Bytes: 8, Pairs: 1, Depth: 16, OneWord: true}},
		{"CAS, many queue pairs", "cas many queue pairs", NIC{Op: "cas", Bytes: 8, Pairs: 20, Depth: 4, OneWord: true}},
		{"WRITE, one queue pair", "write one queue pair", NIC{Op: "write", Bytes: 8, Pairs: 1, Depth: 128}},
	} {
		for _, where := range f.data.Columns {
			l := s.load
			l.Device = where == "device"
			f.add(figureCell{series: s.name, their: s.name, x: where, theirs: f.at("", s.data, where), load: l, value: (*outcome).mops})
		}
	}
	return f
}

// inFlightFigure has the rates of verbs by the number of operations in flight. The authors'
// repository has these data; the paper does not show them.
func inFlightFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/verbs"), scale: 1e-6, key: "verbs", title: "operations of 8 bytes on one server", unit: "Mops",
		why: []string{
			"one operation in flight of each thread; the authors do not say how they spread theirs over queue pairs",
			"what makes CAS slower at 384 than at 240 in flight is not in the model: a rate of the NIC never falls with load",
		},
		inputs: []string{"the last column: the cost file has the NIC's totals of READs (84.5 million a second, from these data), of WRITEs (118, figure 1) and of CAS (55, figure 3)"},
	}
	for op, n := range pairs([]string{"write", "read", "cas"}, few(f.data.Columns, quick)) {
		f.add(figureCell{series: op, their: op, x: n, theirs: f.at("", op, n), load: NIC{Op: op, Bytes: 8, Pairs: int(number(n)), Depth: 1}, value: (*outcome).mops})
	}
	return f
}

func middleboxFigure(quick bool) figure {
	f := figure{
		data: papers.MustLoad("swordbox/fig10"), scale: 1e-6, key: "10", title: "CAS on one word, through the middlebox on DPDK",
		unit: "Mops", base: "CAS", gains: []string{"64", "208"},
		why: []string{
			"plain CAS takes the NIC's rate on one word here; the authors' middlebox slows it down, also where it replaces nothing",
			"a request waits at the middlebox and at the NIC in turn; what makes the authors' rise so slowly with requests in flight is not known",
		},
		inputs: []string{"the height of both curves: the cost file has 3 million CAS a second of one word, and 2.8 million packets of one core of the middlebox"},
	}
	for _, s := range []struct {
		name, their, data string
		box               Switch
	}{
		{"CAS", "CAS", "cas", Switch{Action: Forward}},
		{"CAS→WRITE, published", "CAS→WRITE", "replaced", Switch{Action: ReplaceAtomics, Mode: Published}},
		{"CAS→WRITE, hardened", "CAS→WRITE", "replaced", Switch{Action: ReplaceAtomics, Mode: Hardened}},
	} {
		for _, n := range few(f.data.Columns, quick) {
			c := figureCell{series: s.name, their: s.their, x: n, theirs: f.at("", s.data, n), value: (*outcome).mops, load: Words{Clients: int(number(n)), Switch: s.box}}
			f.add(c)
		}
	}
	return f
}

// chipPairs names, for a part of our switch program, the line of the authors' Figure 8 with which
// it is compared. Our steering is one part for writes and READs. It is compared with the authors'
// line "+ read steering", and not with "+ write steering".
var chipPairs = map[string]string{
	"tracking":        "+ connection tracking",
	"steer published": "+ read steering",
	"steer":           "+ read steering",
}

// chipFigure is Figure 8 of the SwordBox paper: the estimates of package chipcost beside the
// reports of the authors' compiler. Lines and parts without a counterpart have rows of their own.
func chipFigure() figure {
	f := figure{data: papers.MustLoad("swordbox/fig8"), key: "8", title: "share of a switching chip's resources that the program takes", logY: true, why: []string{
		"published steering has whole addresses where the authors' P4 has tags of 8 bits, and hardened steering has a table of nodes; " +
			"logical tables of ours hold state, theirs also are what a compiler makes of matches and actions",
		"exact crossbar, hash bits, gateways and map RAM are results of a compiler: our estimate places tables and registers in stages, and has " +
			"no number for them",
		"no number of ours: our program declares no state for parsing and forwarding, has one part for steering of writes and READs, which is " +
			"beside + read steering, and nothing like simple switch.p4",
		"no number of theirs: the authors ran serialisation (published, hardened) on a middlebox, and have nothing like hot, count, buffer and lookup",
		"0 is shown as -: hot takes no stateful units, and theirs takes no gateways, map RAM and stateful units for parsing and forwarding",
	}}
	uses, err := chipUses()
	if err != nil {
		panic("experiment: the switch program cannot be laid out: " + err.Error()) // the rack file is a constant of this file
	}
	row := func(series, their string, u *chipcost.Use) {
		for _, column := range f.data.Columns {
			c := figureCell{series: series, their: their, x: column, theirs: math.NaN()}
			if their != "" {
				c.theirs = f.at("", their, column)
			}
			if u != nil {
				c.known = map[string]float64{"SRAM": u.SRAM, "stateful units": u.Units, "logical tables": u.Tables}[column]
			}
			f.add(c)
		}
	}
	for _, r := range f.data.Rows {
		paired := false
		for i := range uses {
			if u := &uses[i]; chipPairs[u.Part] == r.Series {
				row(u.Part+" (theirs: "+r.Series+")", r.Series, u)
				paired = true
			}
		}
		if !paired {
			row("(theirs: "+r.Series+")", r.Series, nil)
		}
	}
	for i := range uses {
		if u := &uses[i]; chipPairs[u.Part] == "" {
			row(u.Part, "", u)
		}
	}
	return f
}

// chipUses lays out the switch program on a chip, and returns what each part uses: the figures that
// `switch budget` prints for a running switch.
func chipUses() (list []chipcost.Use, err error) {
	s, err := rackfile.Parse([]byte("name: chip\nhosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]\nswitch: {program: swordbox}\n"))
	if err != nil {
		return nil, err
	}
	program, err := apps.New(s, apps.Config{Rand: rand.New(rand.NewPCG(1, 1)), Nodes: apps.SteeredNodes})
	if err != nil {
		return nil, err
	}
	for _, m := range chipcost.Of(program.Spec(), chipcost.Tofino()).Modes {
		for _, u := range m.Uses {
			if !slices.ContainsFunc(list, func(o chipcost.Use) bool { return o.Part == u.Part }) {
				list = append(list, u)
			}
		}
	}
	return list, nil
}
