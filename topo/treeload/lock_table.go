package treeload

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// LockSeries is one way to keep lock words, from one client to many.
type LockSeries struct {
	Name string `json:"name"`
	// Published are the CAS on one word in millions a second that the papers give, Source where they are from; 0: none does.
	Published float64     `json:"published"`
	Source    string      `json:"source"`
	Points    []LockPoint `json:"points"`

	load     LockLoad
	lineRate bool // the switch keeps up whatever it does
	direct   bool // and delays nothing, which no source says
	most     int  // clients; 0: any number
}

// LockPoint is one measurement. Rates are in millions a second.
type LockPoint struct {
	Clients  int           `json:"clients"`
	Attempts float64       `json:"attemptMops"`
	Acquired float64       `json:"acquiredMops"`
	P50      time.Duration `json:"p50Ns"`
	P99      time.Duration `json:"p99Ns"`
	Replaced float64       `json:"replaced"`
}

// LockClients are the numbers of clients of the table.
var LockClients = []int{1, 4, 16, 64, 256}

// Locks lists the series: all clients at one lock, which is what the figures of the papers are of.
func Locks() []LockSeries {
	return []LockSeries{
		{Name: "CAS, host memory", Published: 3, Source: "SwordBox fig. 4", lineRate: true},
		{Name: "CAS, device memory", Published: 9, Source: "SwordBox fig. 4", lineRate: true, load: LockLoad{Device: true}},
		{Name: "switch locks, hard", Published: 18.6, Source: "fig. 4: WRITE, 6.2 × CAS in host memory", lineRate: true, load: LockLoad{Mode: "hard"}},
		{Name: "switch locks, hard, device memory", Published: 22.5, Source: "fig. 4: WRITE, 2.5 × CAS in device memory", lineRate: true, load: LockLoad{Mode: "hard", Device: true}},
		{Name: "switch locks, hard, device memory, misses=switch", lineRate: true, load: LockLoad{Mode: "hard", Device: true, Misses: "switch"}},
		{Name: "switch locks, hard, device memory, misses=wait", lineRate: true, load: LockLoad{Mode: "hard", Device: true, Misses: "wait"}},
		{Name: "the same, switch without delay", lineRate: true, direct: true, load: LockLoad{Mode: "hard", Device: true, Misses: "wait"}},
		{Name: "switch locks, paper, 0/1 words", Published: 18.6, Source: "fig. 4: WRITE, 6.2 × CAS in host memory", lineRate: true, load: LockLoad{Mode: "paper", Bits: true}, most: paperClients},
		{Name: "switch locks, hard, one DPDK core", Published: 2.8, Source: "SwordBox fig. 10", load: LockLoad{Mode: "hard"}},
		{Name: "switch locks, hard, one DPDK core, misses=wait", load: LockLoad{Mode: "hard", Misses: "wait"}},
	}
}

// paperClients is the most for mode paper: with more, on one connection that it borrows from a client, answers come later than the
// ACK timers of those who wait.
const paperClients = 64

// PublishedPairs are lock and release of one lock in millions a second, whatever keeps its word (SwordBox §6).
const PublishedPairs = 0.5

// model is m with the switch of the series.
func (s *LockSeries) model(m *cost.Model) *cost.Model {
	if s.lineRate {
		m = m.AtLineRate()
	}
	if s.direct {
		direct := *m
		direct.Switch.Delay = 0
		m = &direct
	}
	return m
}

// Run measures all points of a series with model m, whose switch is the middlebox.
func (s *LockSeries) Run(m *cost.Model) error {
	m = s.model(m)
	for _, n := range LockClients {
		if s.most > 0 && n > s.most {
			break
		}
		l := s.load
		l.Clients, l.Seed = n, 1
		r, err := l.Measure(m)
		if err != nil {
			return fmt.Errorf("%s, %d clients: %w", s.Name, n, err)
		}
		s.Points = append(s.Points, LockPoint{n, r.Attempts / 1e6, r.Acquired / 1e6, r.P50, r.P99, r.Replaced})
	}
	return nil
}

// WriteLocks prints the series: what one lock yields.
func WriteLocks(w io.Writer, list []LockSeries) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "ONE LOCK\tCLIENTS\tCAS Mops\tPAPER\tLOCKED AND RELEASED Mops\tPAPER\tCAS/LOCK\tLOCK p50\tLOCK p99\tREPLACED\tPAPER'S CAS ARE FROM") // Flush reports
	for i := range list {
		s := &list[i]
		for j, p := range s.Points {
			name, paper, pairs, source := "", "", "", ""
			if j == 0 {
				name = s.Name
			}
			if j == len(s.Points)-1 { // papers give what many clients get
				pairs = fmt.Sprintf("%.2g", PublishedPairs)
				if s.Published > 0 {
					paper, source = fmt.Sprintf("%.3g", s.Published), s.Source
				}
			}
			tries := 0.0
			if p.Acquired > 0 {
				tries = p.Attempts / p.Acquired
			}
			fmt.Fprintf(t, "%s\t%d\t%.3g\t%s\t%.3g\t%s\t%.1f\t%v\t%v\t%.0f%%\t%s\n", name, p.Clients, p.Attempts, paper, p.Acquired, pairs, tries,
				p.P50.Round(10*time.Nanosecond), p.P99.Round(10*time.Nanosecond), 100*p.Replaced, source)
		}
	}
	return t.Flush()
}
