package experiment

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Twin is what senders have shown on a rack in slow motion, and in the simulator with the same rack file. All times
// and rates are by the rack's clock.
type Twin struct {
	// Slow is the factor of slow motion, Span how long the senders were observed; the second half of it is measured.
	Slow int
	Span time.Duration
	// Busy is the mean number of processes of the machine that ran or wanted to run in the minute before the end.
	Busy float64
	// Late is the share of the bursts that the senders' NICs sent later than their rate says, because the processor
	// was busy; 0 in virtual time.
	Late      float64
	Rack, Sim SenderStats
}

// SenderRun is a run of senders that meet in the port of the switch to their receiver.
type SenderRun struct {
	Samples []SenderSample
	// CNPs is how many notifications the receiver has sent in the measured time, Again how many packets the senders
	// have sent again.
	CNPs, Again uint64
}

// SenderSample is what the switch's counters say at a time.
type SenderSample struct {
	At time.Duration
	// Each has the bytes that came from each sender.
	Each []uint64
	// Queue is how many bytes wait in the port to the receiver. Bytes, Packets and Marked have left it.
	Queue                  int64
	Bytes, Packets, Marked uint64
}

// SenderStats are the numbers of a SenderRun. Jain's index is that of windows of a millisecond or, if samples are late,
// longer ones: its mean and its least value. There are Windows of them, Window long on average. Link is the share of
// the port's rate that was used. P50 and P90 are bytes in the queue at random times. Rates are those of the senders in
// bits a second, the least first. Marked and Again are shares of the packets, CNPs are notifications a second for each
// sender. Drift is how much more of the port's rate was used in the second half of the time than in the first, as a
// share of the first.
type SenderStats struct {
	Windows             int
	Window              time.Duration
	Drift               float64
	Jain, JainMin, Link float64
	P50, P90            float64
	Rates               []float64
	Marked, Again, CNPs float64
}

// twinWindow is the window in which Jain's index is computed.
const twinWindow = time.Millisecond

// Stats computes the numbers of a run behind a port of `rate` bits a second, on which a frame takes `overhead`
// bytes more than it has. There must be two samples at least.
func (r *SenderRun) Stats(rate int64, overhead int) (s SenderStats, err error) {
	if len(r.Samples) < 2 {
		return s, fmt.Errorf("%d samples of the switch's counters are too few", len(r.Samples))
	}
	first, last := &r.Samples[0], &r.Samples[len(r.Samples)-1]
	span, packets := (last.At - first.At).Seconds(), float64(last.Packets-first.Packets)
	if span <= 0 || packets == 0 {
		return s, fmt.Errorf("%.0f packets have left the port in %.3g s", packets, span)
	}
	s.JainMin = 1
	begin, middle := first, last
	var queue []int64
	for i := range r.Samples {
		x := &r.Samples[i]
		queue = append(queue, x.Queue)
		if middle == last && x.At-first.At >= (last.At-first.At)/2 {
			middle = x
		}
		if x.At-begin.At < twinWindow {
			continue
		}
		j := Jain(grown(begin.Each, x.Each))
		s.Jain, s.JainMin = s.Jain+j, min(s.JainMin, j)
		s.Windows++
		begin = x
	}
	if s.Windows == 0 {
		return s, fmt.Errorf("%v is shorter than a window of %v", last.At-first.At, twinWindow)
	}
	s.Jain, s.Window = s.Jain/float64(s.Windows), (begin.At-first.At)/time.Duration(s.Windows)
	s.Drift = leaving(middle, last)/leaving(first, middle) - 1
	slices.Sort(queue)
	s.P50, s.P90 = float64(queue[len(queue)/2]), float64(queue[len(queue)*9/10])
	bits := 8 * (float64(last.Bytes-first.Bytes) + packets*float64(overhead))
	s.Link = bits / span / float64(rate)
	for _, n := range grown(first.Each, last.Each) {
		s.Rates = append(s.Rates, 8*n/span)
	}
	slices.Sort(s.Rates)
	s.Marked, s.Again = float64(last.Marked-first.Marked)/packets, float64(r.Again)/packets
	s.CNPs = float64(r.CNPs) / span / float64(len(s.Rates))
	return s, nil
}

// leaving is the bytes that left the port in a second of the time between two samples.
func leaving(from, to *SenderSample) float64 {
	return float64(to.Bytes-from.Bytes) / (to.At - from.At).Seconds()
}

func grown(from, to []uint64) []float64 {
	out := make([]float64, len(to))
	for i := range to {
		out[i] = float64(to[i] - from[i])
	}
	return out
}

// twinRow is a number of SenderStats.
type twinRow struct {
	name string
	of   func(s *SenderStats) float64
}

var twinRows = []twinRow{
	{"Jain's index", func(s *SenderStats) float64 { return s.Jain }},
	{"Jain's index, least", func(s *SenderStats) float64 { return s.JainMin }},
	{"use of the link", func(s *SenderStats) float64 { return s.Link }},
	{"queue p50, KB", func(s *SenderStats) float64 { return s.P50 / 1000 }},
	{"queue p90, KB", func(s *SenderStats) float64 { return s.P90 / 1000 }},
	{"slowest sender, Gb/s", func(s *SenderStats) float64 { return s.Rates[0] / 1e9 }},
	{"fastest sender, Gb/s", func(s *SenderStats) float64 { return s.Rates[len(s.Rates)-1] / 1e9 }},
	{"packets marked, %", func(s *SenderStats) float64 { return 100 * s.Marked }},
	{"CNPs a second and sender", func(s *SenderStats) float64 { return s.CNPs }},
	{"packets sent again, %", func(s *SenderStats) float64 { return 100 * s.Again }},
}

// table adds a row for each number: the rack's, the simulator's, and their difference in percent of the
// simulator's.
func (t *Twin) table(r *Report, name string) {
	for _, row := range twinRows {
		a, b := row.of(&t.Rack), row.of(&t.Sim)
		differ := None()
		if b != 0 {
			differ = Num(100 * (a/b - 1))
		}
		r.Add(Label(name), Label(row.name), Num(a), Num(b), differ)
	}
}

// What line C10 demands of a rack.
const (
	twinJain, twinLink = 0.95, 0.93
	// twinQueue is by which factor the median of the queue may differ from the simulator's, twinRate by which share
	// the rate of a sender may.
	twinQueue, twinRate = 2, 0.10
	// twinWindows is how many windows there are at least, twinLength how long they are at most on average (Jain's index
	// of longer ones is larger), and twinDrift by which share the use of the link may change in the measured time.
	twinWindows, twinLength, twinDrift = 10, 3 * twinWindow / 2, 0.10
)

// judge adds what line C10 demands to the report.
func (t *Twin) judge(r *Report, name string) {
	a, b := &t.Rack, &t.Sim
	r.line("C10", a.Windows >= twinWindows && a.Window <= twinLength, "%s: %d windows of %v (at least %d, on average at most %v): a larger `slow`, or a longer --span, makes more and shorter ones",
		name, a.Windows, a.Window.Round(10*time.Microsecond), twinWindows, twinLength)
	r.line("C10", math.Abs(a.Drift) <= twinDrift, "%s: in the second half of the measured time %+.1f %% of the link's use is added (steady: at most %.0f %%)", name, 100*a.Drift, 100*twinDrift)
	r.line("C10", a.Jain >= twinJain, "%s: Jain's index is %.3f (at least %.2f)", name, a.Jain, twinJain)
	r.line("C10", a.Link >= twinLink, "%s: %.3f of the link is used (at least %.2f)", name, a.Link, twinLink)
	ratio := a.P50 / b.P50
	r.line("C10", ratio <= twinQueue && ratio >= 1./twinQueue, "%s: the queue's median is %.2f times that of the simulator (within a factor of %d)", name, ratio, twinQueue)
	worst := 0.0
	for i := range a.Rates {
		d := a.Rates[i]/b.Rates[i] - 1
		if math.IsNaN(d) { // both are 0
			d = math.Inf(1)
		}
		if math.Abs(d) > math.Abs(worst) {
			worst = d
		}
	}
	r.line("C10", math.Abs(worst) <= twinRate, "%s: in the order of their rates, no sender is more than %.1f %% from the simulator's (at most %.0f %%)", name, 100*math.Abs(worst), 100*twinRate)
}

// onRack runs the experiment dcqcn on a rack: numbers of senders that use the congestion control, the links and the
// queues of the rack file, beside the simulator with the same rack file.
func (b *dcqcnBody) onRack(ctx context.Context, p Platform, r *Report) error {
	r.Columns(
		Column{Key: "case", Title: "CASE", Repeats: true}, Column{Key: "number", Title: "NUMBER"}, Column{Key: "rack", Title: "RACK", Format: "%.4g"},
		Column{Key: "simulator", Title: "SIMULATOR", Format: "%.4g"}, Column{Key: "difference", Title: "DIFFERENCE %", Format: "%+.1f"},
	)
	for i := range b.cases {
		c := &b.cases[i]
		r.begin(i+1, len(b.cases), "%s", c.name)
		out, err := p.Congestion(ctx, c.load)
		if err != nil {
			r.end("%v", err)
			return fmt.Errorf("%s: %w", c.name, err)
		}
		t := out.Twin
		r.end("Jain %.3f", t.Rack.Jain)
		name := fmt.Sprintf("%s, s = %d", c.name, t.Slow)
		t.table(r, name)
		t.judge(r, name)
		r.Summary = append(r.Summary, fmt.Sprintf("%s: measured for %v by the rack's clock, %v of real time; load average of the machine %.1f; %.1f %% of the senders' bursts since their begin were late, which no line counts",
			name, t.Span/2, (t.Span/2*time.Duration(t.Slow)).Round(time.Second), t.Busy, 100*t.Late))
	}
	return nil
}
