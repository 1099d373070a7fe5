package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/units"
)

// Congestion is a load of senders that WRITE to one receiver all the time, each on a connection of its
// own, so that all meet in the port of the switch to the receiver. The port marks packets (RED with
// ECN), and nothing is lost: it has memory for all that comes.
//
// A rack runs it with the congestion control, the links and the queues of its own rack file: only Senders, Span and
// Seed count there, and Span may be 0, which means 40 s of real time.
type Congestion struct {
	Senders int
	// Params are those of all NICs; their MaxRate is the rate of all links. Delay is that of a link.
	Params congestion.Params
	Delay  time.Duration
	// KMin and KMax in bytes, and PMax from 0 to 1, say when packets are marked.
	KMin, KMax int
	PMax       float64
	// Behind, unless 0, is the rate that the first sender has at its first CNP, in bits a second: it
	// begins with less than the others.
	Behind int64
	// Apart is the time between the starts of two senders. Span is how long they send after the last
	// start; the second half of it is measured.
	Apart, Span time.Duration
	Seed        uint64
	// Controller, if not nil, makes the congestion control of each connection, instead of DCQCN.
	Controller func(p *congestion.Params) congestion.Controller
}

// CongestionResult has what a Congestion has shown.
type CongestionResult struct {
	// Jain's index of the senders' rates, in windows of a millisecond of the measured time: its mean
	// and its least value.
	Jain, JainMin float64
	// Converged is the time from the last start to the end of the first window with an index of 0.95;
	// 0 means that there was none.
	Converged time.Duration
	// Utilisation is the share of the port's rate that was used.
	Utilisation float64
	// The bytes in the queue of the port when packets left it: percentiles of the measured time, and
	// the largest of all time.
	P50, P90, P99, Peak int
	// CNPs is how many CNPs a second each sender got.
	CNPs float64
	// Marked, Sent and Handled are how many packets were marked at the receiver, and how many CNPs its
	// NIC sent and the NICs of the senders handled, in the whole run.
	Marked, Sent, Handled uint64
	// Again is how many packets were sent again.
	Again uint64
	// Trace is a hash of the measured departures from the queue, in their order: whose packet, and the length of the queue.
	Trace uint64
	// Twin is the result of a rack in slow motion, which has no other field; nil in the simulator.
	Twin *Twin
}

var dcqcnExperiment = Experiment{
	Name:   "dcqcn",
	Short:  "DCQCN: shares, use of the link and the queue of 2 to 64 senders that meet in one port; its collapse",
	Figure: "DCQCN (SIGCOMM 2015): shares, convergence and queue of an incast, beside a model of the algorithm",
	Examples: []string{
		"--senders 2,16", "--senders 16 --pmax 10%", "--senders 2 --profile mlx --rate 100Gbit --kmin 400KiB --kmax 1600KiB --pmax 20%",
		"--on rack --senders 2",
	},
	Sim: "1 min", Rack: "1 min for each number of senders, with slow: 40 2 min", Target: "memory to which all senders WRITE", Cost: "connectx5",
	New: func() Body { return &dcqcnBody{} },
}

// dcqcnBody is the experiment dcqcn.
type dcqcnBody struct {
	senders       []int
	profile, pmax string
	rate          string
	kmin, kmax    string
	span          time.Duration
	given         func(flag string) bool // a flag was given; nil means none
	cases         []dcqcnCase
}

// dcqcnCase is a line of the experiment: a load, and what it must show.
type dcqcnCase struct {
	name    string
	load    Congestion
	demands []demand
}

// demand is what a line demands of a measurement.
type demand struct {
	text string
	met  func(r *CongestionResult) bool
}

const (
	paperRate  = 40_000_000_000
	paperKMin  = 5_000
	paperKMax  = 200_000
	paperPMax  = 0.01
	maxSenders = 384
	// unequalStart is the rate with which the slower sender begins in the authors' sweeps, beside 40
	// Gbit/s.
	unequalStart = 5_000_000_000
	// A round trip of 4 us crosses four links.
	dcqcnDelay = time.Microsecond
)

func paperCongestion(senders int, span time.Duration) Congestion {
	p, _ := congestion.Profile(congestion.ProfilePaper, paperRate)
	return Congestion{
		Senders: senders, Params: p, Delay: dcqcnDelay, KMin: paperKMin, KMax: paperKMax, PMax: paperPMax, Span: span, Seed: 1,
	}
}

// Jain returns Jain's index of rates: 1 if all are equal, 1/n if one of n has all.
func Jain(rates []float64) float64 {
	sum, squares := 0.0, 0.0
	for _, x := range rates {
		sum, squares = sum+x, squares+x*x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / squares / float64(len(rates))
}

func jain(mean, least float64) []demand {
	list := []demand{{fmt.Sprintf("Jain >= %v", mean), func(r *CongestionResult) bool { return r.Jain >= mean }}}
	if least > 0 {
		list = append(list, demand{fmt.Sprintf("least >= %v", least), func(r *CongestionResult) bool { return r.JainMin >= least }})
	}
	return list
}

func used(share float64) demand {
	return demand{fmt.Sprintf("link >= %v", share), func(r *CongestionResult) bool { return r.Utilisation >= share }}
}

func queue(what string, low, high int, of func(r *CongestionResult) int) demand {
	return demand{fmt.Sprintf("%s %d-%d KB", what, low/1000, high/1000), func(r *CongestionResult) bool { return of(r) >= low && of(r) <= high }}
}

func converged(within time.Duration) demand {
	return demand{fmt.Sprintf("converged <= %v", within), func(r *CongestionResult) bool { return r.Converged > 0 && r.Converged <= within }}
}

func p50(r *CongestionResult) int { return r.P50 }
func p90(r *CongestionResult) int { return r.P90 }

// nothingLost demands that CNPs are counted alike at both ends, and that no packet was sent again.
var nothingLost = demand{"nothing sent again, all CNPs handled", func(r *CongestionResult) bool { return r.Again == 0 && r.Sent == r.Handled }}

// strawman is the authors' first parameters, those of QCN, for two senders with 40 and 5 Gbit/s: marks by a
// cut-off, a slow timer and a fast byte counter.
func strawman(span time.Duration) Congestion {
	c := paperCongestion(2, span)
	c.KMin, c.KMax, c.PMax = 40_000, 40_000, 1
	c.Params.TimeReset, c.Params.ByteReset = 1500*time.Microsecond, 150_000
	c.Behind = unequalStart
	return c
}

// dcqcnCases are the lines; quick leaves out the long ones.
func dcqcnCases(quick bool) []dcqcnCase {
	tenPercent := paperCongestion(16, 80*time.Millisecond)
	tenPercent.PMax = 0.1
	unequal := paperCongestion(2, 80*time.Millisecond)
	unequal.Behind = unequalStart
	crowd := paperCongestion(384, 40*time.Millisecond)
	crowd.Apart = 500 * time.Microsecond / 4
	list := []dcqcnCase{
		{"2 senders", paperCongestion(2, 80*time.Millisecond), append(jain(0.98, 0.95), used(0.99), queue("p50", 15_000, 30_000, p50), queue("p90", 0, 80_000, p90), converged(2*time.Millisecond), nothingLost)},
		{"16 senders", paperCongestion(16, 80*time.Millisecond), append(jain(0.95, 0), used(0.99), queue("p90", 160_000, 210_000, p90), converged(10*time.Millisecond), nothingLost)},
		{"16 senders, Pmax 10 %", tenPercent, append(jain(0.95, 0), used(0.99), queue("p90", 0, 75_000, p90), nothingLost)},
		{"2 senders, 40 and 5 Gb/s", unequal, append(jain(0.98, 0.95), converged(40*time.Millisecond))},
		{"the same, QCN strawman", strawman(80 * time.Millisecond), []demand{{"Jain < 0.9", func(r *CongestionResult) bool { return r.Jain < 0.9 }}}},
		{"64 senders", paperCongestion(64, 100*time.Millisecond), append(jain(0.93, 0), used(0.99), converged(30*time.Millisecond), nothingLost)},
		{"384 senders: collapse", crowd, []demand{{"Jain < 0.5", func(r *CongestionResult) bool { return r.Jain < 0.5 }}}},
	}
	if quick {
		return list[:5]
	}
	return list
}

func (b *dcqcnBody) Flags(fs *pflag.FlagSet) {
	b.given = fs.Changed
	fs.IntSliceVar(&b.senders, "senders", nil, fmt.Sprintf("measure these numbers of senders, 1 to %d, without demands; the flags below are for them; on a rack with demands (default: all compute hosts)", maxSenders))
	fs.StringVar(&b.profile, "profile", congestion.ProfilePaper, "with --senders: profile of the parameters: "+strings.Join(congestion.Profiles(), " or "))
	fs.StringVar(&b.rate, "rate", "40Gbit", "with --senders: rate of all links")
	fs.StringVar(&b.kmin, "kmin", "5000", "with --senders: bytes of the queue up to which no packet is marked")
	fs.StringVar(&b.kmax, "kmax", "200000", "with --senders: bytes of the queue above which all packets are marked")
	fs.StringVar(&b.pmax, "pmax", "1%", "with --senders: share of the packets that are marked at kmax")
	fs.DurationVar(&b.span, "span", 0, "on a rack: how long senders send, by the rack's clock (default 40s of real time); its second half is measured")
}

func (b *dcqcnBody) Check(at Place) error {
	b.cases = nil
	switch {
	case at.On == OnRack:
		return b.checkRack(at)
	case b.span != 0:
		return errors.New("--span is for a rack: add --on rack")
	}
	if len(b.senders) == 0 {
		b.cases = dcqcnCases(at.Quick)
		return b.noneOf("--%s is for a load of your own: add --senders")
	}
	form, err := b.incast()
	if err != nil {
		return err
	}
	for _, n := range b.senders {
		if n < 1 || n > maxSenders {
			return fmt.Errorf("--senders %d: want 1 to %d", n, maxSenders)
		}
		load := form
		load.Senders = n
		b.cases = append(b.cases, dcqcnCase{fmt.Sprintf("%d senders", n), load, nil})
	}
	return nil
}

// checkRack makes the cases of a rack, whose file says everything else.
func (b *dcqcnBody) checkRack(at Place) error {
	list := b.senders
	if len(list) == 0 {
		list = []int{at.Hosts}
	}
	for _, n := range list {
		if n < 1 || n > at.Hosts {
			return fmt.Errorf("--senders %d: want 1 to %d, each on a compute host of its own", n, at.Hosts)
		}
		b.cases = append(b.cases, dcqcnCase{name: fmt.Sprintf("%d senders", n), load: Congestion{Senders: n, Span: b.span, Seed: 1}})
	}
	if b.span < 0 {
		return fmt.Errorf("--span %v: want a time like 50ms", b.span)
	}
	return b.noneOf("--%s is for virtual time: on a rack, its file says it")
}

// noneOf returns an error with this text if one of the flags of a load was given, which would have no effect.
func (b *dcqcnBody) noneOf(text string) error {
	for _, name := range []string{"profile", "rate", "kmin", "kmax", "pmax"} {
		if b.given != nil && b.given(name) {
			return fmt.Errorf(text, name)
		}
	}
	return nil
}

func (b *dcqcnBody) Run(ctx context.Context, p Platform, r *Report) error {
	if p.On() == OnRack {
		return b.onRack(ctx, p, r)
	}
	r.Columns(
		Column{Key: "case", Title: "CASE"}, Column{Key: "jain", Title: "JAIN", Format: "%.3f"}, Column{Key: "jain_least", Title: "LEAST", Format: "%.3f"},
		Column{Key: "link", Title: "LINK", Format: "%.3f"}, Column{Key: "p50", Title: "P50 KB", Format: "%.0f"}, Column{Key: "p90", Title: "P90 KB", Format: "%.0f"},
		Column{Key: "peak", Title: "PEAK KB", Format: "%.0f"}, Column{Key: "converged", Title: "CONVERGED ms", Format: "%.0f"},
		Column{Key: "cnps", Title: "CNP/s", Format: "%.0f"}, Column{Key: "demand", Title: "DEMANDED"},
	)
	for i := range b.cases {
		c := &b.cases[i]
		r.begin(i+1, len(b.cases), "%s", c.name)
		out, err := p.Congestion(ctx, c.load)
		if err != nil {
			r.end("%v", err)
			return fmt.Errorf("%s: %w", c.name, err)
		}
		r.end("Jain %.3f", out.Jain)
		r.Add(Label(c.name), Num(out.Jain), Num(out.JainMin), Num(out.Utilisation), Num(float64(out.P50)/1000), Num(float64(out.P90)/1000),
			Num(float64(out.Peak)/1000), unlessZero(float64(out.Converged.Milliseconds())), Num(out.CNPs), Label(c.judge(r, &out)))
	}
	return nil
}

// judge returns the demands of a case, and notes those that are not met as failures of the report.
func (c *dcqcnCase) judge(r *Report, out *CongestionResult) string {
	var all, missed []string
	for _, d := range c.demands {
		all = append(all, d.text)
		if !d.met(out) {
			missed = append(missed, d.text)
		}
	}
	if len(missed) > 0 {
		r.fail("%s: not met: %s", c.name, strings.Join(missed, ", "))
		return "NOT MET: " + strings.Join(missed, ", ")
	}
	if len(all) == 0 {
		return ""
	}
	return "met: " + strings.Join(all, ", ")
}

// incast returns the load that the flags describe.
func (b *dcqcnBody) incast() (l Congestion, err error) {
	l = paperCongestion(0, 80*time.Millisecond)
	rate, err := units.ParseRate(b.rate)
	if err != nil {
		return l, fmt.Errorf("--rate: %w", err)
	}
	p, ok := congestion.Profile(b.profile, rate)
	if !ok {
		return l, oneOf("profile", b.profile, congestion.Profiles()...)
	}
	if err := p.Validate(); err != nil {
		return l, fmt.Errorf("--rate %s: %w", b.rate, err)
	}
	l.Params = p
	for _, f := range []struct {
		name, text string
		to         *int
	}{{"kmin", b.kmin, &l.KMin}, {"kmax", b.kmax, &l.KMax}} {
		n, err := units.ParseSize(f.text)
		if err != nil {
			return l, fmt.Errorf("--%s: %w", f.name, err)
		}
		*f.to = int(min(n, 1<<30))
	}
	if l.PMax, err = units.ParseProbability(b.pmax); err != nil {
		return l, fmt.Errorf("--pmax: %w", err)
	}
	if l.KMin > l.KMax {
		return l, fmt.Errorf("--kmin %s is above --kmax %s", b.kmin, b.kmax)
	}
	return l, nil
}
