package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// congestionFigures measures what the papers on congestion in RDMA networks show.
var congestionFigures = Experiment{
	Name:     "congestion-figures",
	Short:    "unfairness and victims of PFC, incast, convergence: DCQCN, TIMELY, Swift; IRN with and without PFC",
	Figure:   "DCQCN and TIMELY (SIGCOMM 2015), IRN (SIGCOMM 2018), Swift (SIGCOMM 2020)",
	Examples: []string{"--figures unfair,victim --out figures", "--quick"},
	Lists: func() map[string][]string {
		return map[string][]string{"Figures": titles(congestionPaper), "Choices": congestionChoices}
	},
	Sim: "40 min with two processors, with --quick 4 min", Rack: "6 min, with --quick 2 min", Cost: "connectx5",
	New: func() Body {
		return &congestionFiguresBody{figuresBody: figuresBody{
			all: congestionPaper, choices: congestionChoices, onRack: &figuresBody{all: congestionOnRack, choices: congestionRackChoices},
		}}
	},
}

// congestionChoices lists where the figures differ from the authors' testbeds and simulations.
var congestionChoices = []string{
	"one switch: flows that share an uplink in the DCQCN paper's Clos come from one host here, and its NIC is paused",
	"a port pauses a host at 100 KB of its frames, in figure irn at 220 KB; without PFC a queue has 240 KB",
	"incast and convergence have a port with memory for all that comes, and no PFC, so that queues can be compared",
	"irn, irn-tree: 16 hosts at 70 % load, messages of 1 KB, 32 KB and 1 MB (6 : 3 : 1) to random hosts, over one",
	"  switch, and over four leaves and four spines; IRN's window is 120 packets, three times what a round trip over",
	"  the spines takes; paper: 110 packets, in a fat tree of three levels with 54 hosts",
	"shared: requests of a packet, so that the switch moves them to its connection, which has 128 in flight",
	"stores: ports of 10 Gb/s, 240 KB for a queue without PFC; clients wait 10 s for an operation, leases of nodes last 5 s",
	"timely begins at the line rate, and is measured after 0.1 s, when its first overreaction is over",
}

const (
	ccPFC     = "PFC alone"
	ccUnequal = "dcqcn, 40 and 5 Gb/s"
	ccStraw   = "QCN strawman, 40 and 5 Gb/s"
	// ccXOFF is the threshold of pauses, irnXOFF and irnLimit those of the paper IRN.
	ccXOFF, irnXOFF, irnLimit = 100_000, 220_000, 240_000
	// unsteady is by how much the sum of rates may change in the measured half.
	unsteady = 0.05
)

// ccScene is a load of Platform.Scene.
type ccScene struct {
	figure    string
	algorithm string // ccPFC: none
	n         int
	lossless  bool
	recovery  selective.Kind
	quick     bool
}

func (l ccScene) label() string {
	return fmt.Sprintf("%s: %s, %v, n %d, PFC %v", l.figure, l.algorithm, l.recovery, l.n, l.lossless)
}

func (l ccScene) effort() float64 {
	return map[bool]float64{true: 20, false: 10}[strings.HasPrefix(l.figure, "irn")]
}

// scene returns what the load runs.
func (l ccScene) scene(seed uint64) Scene {
	p, _ := congestion.Profile(congestion.ProfilePaper, paperRate)
	if p.Algorithm = l.algorithm; l.algorithm == ccPFC {
		p.Algorithm = congestion.AlgorithmNone
	}
	s := Scene{
		Params: p, Delay: dcqcnDelay, Lossless: l.lossless, XOFF: ccXOFF, Limit: irnLimit, Marks: paperMarks,
		Recovery: l.recovery, Window: 1024, Span: pick(l.quick, 60*time.Millisecond, 100*time.Millisecond),
	}
	switch l.figure {
	case "unfair": // host 0 has one flow to host 2, host 1 has three
		s.Hosts, s.Flows = 3, []SceneFlow{{From: 0, To: 2}, {From: 1, To: 2}, {From: 1, To: 2}, {From: 1, To: 2}}
	case "victim": // flow 0 is the victim: its host also sends to host 1, as n others do
		s.Hosts, s.Flows = l.n+3, []SceneFlow{{From: 0, To: 2}, {From: 0, To: 1}}
		for i := range l.n {
			s.Flows = append(s.Flows, SceneFlow{From: 3 + i, To: 1})
		}
	case "pauses":
		s.Hosts = l.n + 1
		for i := range l.n {
			s.Flows = append(s.Flows, SceneFlow{From: 1 + i, To: 0})
		}
	case "irn":
		s.Hosts, s.XOFF, s.Marks, s.Window = 16, irnXOFF, SceneMarks{}, BDP
		s.Flows = randomMessages(seed, s.Hosts, 0.7, pick(l.quick, time.Millisecond, 4*time.Millisecond))
	case "irn-tree":
		s.Hosts, s.Fabric, s.XOFF, s.Marks, s.Window = 16, SceneFabric{4, 4}, irnXOFF, SceneMarks{}, l.n
		s.Flows = randomMessages(seed, s.Hosts, 0.7, pick(l.quick, time.Millisecond, 3*time.Millisecond))
		if l.lossless {
			s.Timeout = treeTimeout
		}
	}
	return s
}

// ccIncast is a load of Platform.Congestion.
type ccIncast struct {
	series  string // an algorithm, ccUnequal or ccStraw
	senders int
	apart   time.Duration
	quick   bool
}

func (l ccIncast) label() string {
	return fmt.Sprintf("%s, %d senders, %v apart", l.series, l.senders, l.apart)
}

func (l ccIncast) effort() float64 { return l.load().Span.Seconds() * 400 }

func (l ccIncast) load() Congestion {
	c := paperCongestion(l.senders, pick(l.quick, 30*time.Millisecond, 60*time.Millisecond))
	c.Apart = l.apart
	switch l.series {
	case ccUnequal:
		c.Behind, c.Span = unequalStart, 80*time.Millisecond
	case ccStraw:
		c = strawman(80 * time.Millisecond)
	case congestion.AlgorithmTimely:
		c.Params.Algorithm, c.Span = l.series, 200*time.Millisecond
	default:
		c.Params.Algorithm = l.series
	}
	return c
}

func (l ccIncast) once(ctx context.Context, p Platform, seed uint64) (outcome, error) {
	c := l.load()
	c.Seed = seed
	res, err := p.Congestion(ctx, c)
	return outcome{congestion: &res}, err
}

// congestionPaper lists the figures.
func congestionPaper(quick bool) []figure {
	return []figure{ccUnfair(quick), ccVictim(quick), ccPauses(quick), ccIncasts(quick), ccConverge(quick), ccIRN(quick), ccTree(quick), ccSharing(quick), ccReading(quick), ccCAS(quick), ccCrowd(quick), ccLocks(quick), ccStall(quick), ccKeyValue(quick)}
}

// ccBesidePFC are PFC alone, and the algorithms that are compared with it.
var ccBesidePFC = []string{ccPFC, congestion.AlgorithmDCQCN, congestion.AlgorithmSwift}

func ccUnfair(quick bool) figure {
	f := figure{
		key: "unfair", title: "one flow from a host, and three from another, to a third host: share of the link of each flow", x: "congestion control", unit: "share of the link", format: "%.3f",
		why: []string{
			"DCQCN, figures 3 and 8: of four hosts, the one that is alone at its port of the switch gets 20 of 40 Gb/s, the others 10 or less; with DCQCN all get the same",
		},
	}
	for _, a := range ccBesidePFC {
		l := play(ccScene{figure: f.key, algorithm: a, lossless: true, quick: quick})
		alone := ours("", "alone at its port", a, l, func(o *outcome) float64 { return o.scene.Shares[0] })
		if alone.their = "H4"; a == ccPFC {
			alone.theirs = 0.5
		}
		f.add(alone, ours("", "one of three at a port", a, l, func(o *outcome) float64 { return (o.scene.Shares[1] + o.scene.Shares[2] + o.scene.Shares[3]) / 3 }))
	}
	return f
}

func ccVictim(quick bool) figure {
	f := figure{
		key: "victim", title: "a flow to an idle host, whose own host also sends to a port that n other hosts fill", x: "other hosts", unit: "share of the link of the victim", format: "%.3f",
		why: []string{
			"the authors' victim (DCQCN, figures 4 and 9) shares an uplink, which is paused with all of its hosts: 20, 10, 4.5 of 40 Gb/s",
			"here its own NIC is paused, which sends by turns to both hosts",
		},
	}
	theirs := map[int]float64{0: 20. / 40, 1: 10. / 40, 2: 4.5 / 40}
	for _, a := range ccBesidePFC {
		for _, n := range []int{0, 1, 2, 4} {
			c := ours("", a, fmt.Sprint(n), play(ccScene{figure: f.key, algorithm: a, n: n, lossless: true, quick: quick}), func(o *outcome) float64 { return o.scene.Shares[0] })
			if v, ok := theirs[n]; ok && a == ccPFC {
				c.theirs, c.their = v, "PFC"
			}
			f.add(c)
		}
	}
	return f
}

func ccPauses(quick bool) figure {
	f := figure{
		key: "pauses", title: "eight hosts send to one, with PFC: pause frames of the switch, and use of the link", x: "congestion control", unit: "pause frames a ms, share of the link", format: "%.3g",
		why: []string{"DCQCN, figure 15: the spines receive orders of magnitude fewer pause frames with DCQCN than without; the paper has no numbers beside the curves"},
	}
	for _, a := range ccBesidePFC {
		of := ccScene{figure: f.key, algorithm: a, n: 8, lossless: true, quick: quick}
		l, half := play(of), of.scene(1).Span.Seconds()*1000/2
		f.add(
			ours("", "pause frames a ms", a, l, func(o *outcome) float64 { return float64(o.scene.Pauses) / half }),
			ours("", "use of the link", a, l, func(o *outcome) float64 { return sumOf(o.scene.Shares) }),
			ours("", "packets dropped", a, l, func(o *outcome) float64 { return float64(o.scene.Dropped) }),
		)
	}
	return f
}

func sumOf(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum
}

func ccIncasts(quick bool) figure {
	f := figure{
		key: "incast", title: "n hosts send to one: use of the link, the queue's 90th percentile in KB, Jain's index", x: "senders", unit: "share, KB, index", format: "%.3f",
		why: []string{
			"DCQCN with Pmax 1 %: 8 and more senders need more marks than 1 %, so that the queue is at Kmax, 200 KB; the authors' figure 19 has 76.6 KB at 20 : 1",
			"swift: its target of 20 to 120 us is a queue of 100 to 600 KB at 40 Gb/s; timely: T_low of 50 us is 250 KB",
		},
	}
	for _, a := range []string{congestion.AlgorithmDCQCN, congestion.AlgorithmTimely, congestion.AlgorithmSwift} {
		for _, n := range few([]string{"2", "8", "20"}, quick) {
			l := repeated{ccIncast{series: a, senders: int(number(n)), quick: quick}, 1}
			link := ours("use of the link", a, n, l, func(o *outcome) float64 { return o.congestion.Utilisation })
			p90 := ours("queue p90, KB", a, n, l, func(o *outcome) float64 { return float64(o.congestion.P90) / 1000 })
			if n == "20" && a == congestion.AlgorithmDCQCN {
				link.theirs, link.their, p90.theirs, p90.their = 39./40, "DCQCN", 76.6, "DCQCN"
			}
			f.add(link, p90, ours("Jain's index", a, n, l, func(o *outcome) float64 { return o.congestion.Jain }))
		}
	}
	return f
}

func ccConverge(quick bool) figure {
	f := figure{
		key: "converge", title: "ms from the last start until Jain's index of a ms is 0.95, and the mean index afterwards", x: "senders", unit: "ms, index", format: "%.3g",
		why: []string{
			"DCQCN, figure 14: two flows with the QCN strawman (cut-off marking, byte counter of 150 KB, timer of 1.5 ms) never converge; there is no number",
			"senders start 2 ms apart, but those with 40 and 5 Gb/s together; - : not within the run",
		},
	}
	add := func(series, n string, apart time.Duration) {
		l := repeated{ccIncast{series: series, senders: int(number(n)), apart: apart, quick: quick}, 1}
		f.add(
			ours("converged", series, n, l, func(o *outcome) float64 {
				if o.congestion.Converged == 0 {
					return math.NaN()
				}
				return o.congestion.Converged.Seconds() * 1000
			}),
			ours("Jain's index", series, n, l, func(o *outcome) float64 { return o.congestion.Jain }),
		)
	}
	for _, a := range []string{congestion.AlgorithmDCQCN, congestion.AlgorithmTimely, congestion.AlgorithmSwift} {
		for _, n := range few([]string{"2", "8", "16"}, quick) {
			add(a, n, 2*time.Millisecond)
		}
	}
	add(ccUnequal, "2", 0)
	add(ccStraw, "2", 0)
	return f
}

// figureDemand is what must hold in a figure; at returns a number of it.
type figureDemand struct {
	figure, text string
	met          func(at func(panel, series, x string) float64) bool
}

var congestionDemands = []figureDemand{
	{"unfair", "PFC alone: the lone flow has at least 1.7 times the share of the others", func(at func(p, s, x string) float64) bool {
		return at("", "alone at its port", ccPFC) >= 1.7*at("", "one of three at a port", ccPFC)
	}},
	{"unfair", "dcqcn: the lone flow has at most 1.1 times the share of the others", func(at func(p, s, x string) float64) bool {
		return at("", "alone at its port", "dcqcn") <= 1.1*at("", "one of three at a port", "dcqcn")
	}},
	{"victim", "PFC alone: with 1, 2 and 4 other hosts the victim has at most 0.9, 0.7 and 0.4 of what it has without", func(at func(p, s, x string) float64) bool {
		first := at("", ccPFC, "0")
		return at("", ccPFC, "1") <= .9*first && at("", ccPFC, "2") <= .7*first && at("", ccPFC, "4") <= .4*first
	}},
	{"victim", "dcqcn: the victim has at least 0.9 of what it has without other hosts", func(at func(p, s, x string) float64) bool {
		first := at("", "dcqcn", "0")
		return at("", "dcqcn", "1") >= .9*first && at("", "dcqcn", "2") >= .9*first && at("", "dcqcn", "4") >= .9*first
	}},
	{"pauses", "dcqcn: at most 5 % of the pause frames without it; nothing dropped", func(at func(p, s, x string) float64) bool {
		const name = "pause frames a ms"
		return at("", name, ccPFC) > 0 && at("", name, "dcqcn") <= .05*at("", name, ccPFC) && at("", "packets dropped", ccPFC) == 0 && at("", "packets dropped", "dcqcn") == 0
	}},
	{"incast", "dcqcn and swift: 0.975 of the link, Jain's index 0.95, with 2 and 20 senders", func(at func(p, s, x string) float64) bool {
		ok := true
		for _, a := range []string{"dcqcn", "swift"} {
			for _, n := range []string{"2", "20"} {
				ok = ok && at("use of the link", a, n) >= .975 && at("Jain's index", a, n) >= .95
			}
		}
		return ok
	}},
	{"incast", "swift: the queue's p90 is below 600 KB, its largest target", func(at func(p, s, x string) float64) bool {
		return at("queue p90, KB", "swift", "20") <= 600
	}},
	{"converge", "dcqcn: senders that start 2 ms apart within 20 ms, those with 40 and 5 Gb/s within 40 ms", func(at func(p, s, x string) float64) bool {
		return at("converged", "dcqcn", "2") <= 20 && at("converged", "dcqcn", "8") <= 20 && at("converged", "dcqcn", "16") <= 20 && at("converged", ccUnequal, "2") <= 40
	}},
	{"converge", "QCN strawman: mean index below 0.9", func(at func(p, s, x string) float64) bool {
		return at("Jain's index", ccStraw, "2") < .9
	}},
	{"irn", "IRN without PFC takes at most 1.1 times as long as go-back-N with PFC, on average", func(at func(p, s, x string) float64) bool {
		return at("mean", "irn", "no PFC") <= 1.1*at("mean", "go-back-n", "PFC")
	}},
	{"irn", "with PFC nothing is dropped; without it packets are, and go-back-N sends more packets again than IRN", func(at func(p, s, x string) float64) bool {
		return at("dropped", "go-back-n", "PFC") == 0 && at("dropped", "irn", "PFC") == 0 && at("dropped", "irn", "no PFC") > 0 &&
			at("sent again", "go-back-n", "no PFC") > at("sent again", "irn", "no PFC")
	}},
	{"irn-tree", "IRN without PFC takes at most as long as go-back-N with PFC, on average; with PFC nothing is dropped or sent again", func(at func(p, s, x string) float64) bool {
		return at("mean time, us", "irn", "no PFC") <= at("mean time, us", "go-back-n", "PFC") &&
			at("packets dropped", "irn", "no PFC") > 0 && at("packets dropped", "go-back-n", "PFC") == 0 && at("packets sent again", "go-back-n", "PFC") == 0
	}},
}

// congestionFiguresBody is the experiment congestion-figures.
type congestionFiguresBody struct {
	figuresBody
	seeds int
}

func (b *congestionFiguresBody) Flags(fs *pflag.FlagSet) {
	b.figuresBody.Flags(fs)
	fs.IntVar(&b.seeds, "seeds", 0, fmt.Sprintf("runs of each load, with seeds from 1; numbers are means (default %d; with --quick, and on a rack, 1)", congestionSeeds))
}

// congestionSeeds is how many seeds are run, maxCongestionSeeds how many can be.
const congestionSeeds, maxCongestionSeeds = 3, 1000

func (b *congestionFiguresBody) Check(at Place) error {
	if b.seeds < 0 || b.seeds > maxCongestionSeeds {
		return fmt.Errorf("--seeds: use a number from 1 to %d", maxCongestionSeeds)
	}
	if err := b.figuresBody.Check(at); err != nil {
		return err
	}
	repeat(b.list, cmp.Or(b.seeds, pick(at.Quick || at.On == OnRack, 1, congestionSeeds)))
	return nil
}

func (b *congestionFiguresBody) Run(ctx context.Context, p Platform, r *Report) error {
	for _, c := range b.choices {
		r.Platform += "\n  choice: " + c
	}
	demands := slices.Concat(congestionDemands, sharedDemands, atomicsDemands, reactionDemands, storesDemands)
	if p.On() == OnRack {
		demands = slices.Concat(congestionRackDemands, waitsRackDemands)
	}
	done, err := measureAll(ctx, p, r.Watch, loads(b.list))
	for i := range b.list {
		f := &b.list[i]
		part := f.report(p, done)
		f.judge(part, b.quick, done)
		part.Summary = append(part.Summary, f.spread(done)...)
		if err == nil {
			f.demand(part, demands, done)
		}
		r.Parts = append(r.Parts, part)
	}
	return err
}

// demand adds what must hold in the figure to its report.
func (f *figure) demand(r *Report, list []figureDemand, done map[load]outcome) {
	at := func(panel, series, x string) float64 {
		for i := range f.cells {
			if c := &f.cells[i]; c.panel == panel && c.series == series && c.x == x {
				return c.ours(done)
			}
		}
		return math.NaN()
	}
	for _, d := range list {
		switch {
		case d.figure != f.key:
		case d.met(at):
			r.Summary = append(r.Summary, "holds: "+d.text)
		default:
			r.Summary = append(r.Summary, "DOES NOT HOLD: "+d.text)
			r.fail("figure %s: %s", f.key, d.text)
		}
	}
}

// unsteadyScene says why a load of flows counts for nothing; "" means that it counts.
func unsteadyScene(s *SceneResult) string {
	most := unsteady
	if s.Twin != nil {
		most = twinDrift
	}
	switch {
	case s.Twin != nil && s.Twin.Unsteady > unsteady:
		return fmt.Sprintf("in the simulator the sum of the rates changes by %.1f %% in the measured half", 100*s.Twin.Unsteady)
	case s.Unsteady > most:
		return fmt.Sprintf("the sum of the rates changes by %.1f %% in the measured half", 100*s.Unsteady)
	case s.Messages < s.Posted:
		return fmt.Sprintf("%d of %d messages have not ended", s.Posted-s.Messages, s.Posted)
	}
	return ""
}
