package contention

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// Series is one line of the figure: a way to do CAS on one word, with the published limit beside it.
type Series struct {
	Name string `json:"name"`
	// Published is what the paper has for many clients, in millions a second, and Source where; 0: it has none.
	Published float64 `json:"published,omitempty"`
	Source    string  `json:"source"`
	// Points are in the order of Clients.
	Points []Point `json:"points"`

	load     Load
	lineRate bool // the switch keeps up whatever it does
}

// Point is one measurement.
type Point struct {
	Clients int     `json:"clients"`
	Mops    float64 `json:"mops"`
	// Succeeded are those that changed the word, in millions a second.
	Succeeded float64       `json:"succeeded"`
	Replaced  float64       `json:"replaced"`
	Latency   time.Duration `json:"latencyNs"`
}

// Clients are the numbers of clients that the figure has.
var Clients = []int{1, 2, 4, 8, 16, 32, 64}

// Figure lists the series of fig. 10. The switch of those that replace is the middlebox of the model.
func Figure() []Series {
	return []Series{
		{Name: "CAS, host memory", Published: 3, Source: "fig. 4, 10: the server's NIC", lineRate: true},
		{Name: "CAS, device memory", Published: 9, Source: "fig. 4: the server's NIC", lineRate: true, load: Load{Device: true}},
		{Name: "CAS→WRITE, hard", Published: 2.8, Source: "fig. 10: one core of the middlebox", load: Load{Mode: "hard"}},
		{Name: "CAS→WRITE, paper", Published: 2.8, Source: "fig. 10: one core of the middlebox", load: Load{Mode: "paper"}},
		{Name: "CAS→WRITE, hard, switch at line rate", Published: 18.6, Source: "fig. 4: WRITEs on one queue pair", load: Load{Mode: "hard"}, lineRate: true},
	}
}

// Run measures all points of a series with model m.
func (s *Series) Run(m *cost.Model) error {
	if s.lineRate {
		m = m.AtLineRate()
	}
	for _, n := range Clients {
		l := s.load
		l.Clients, l.Seed = n, 1
		r, err := l.Run(m)
		if err != nil {
			return fmt.Errorf("%s, %d clients: %w", s.Name, n, err)
		}
		s.Points = append(s.Points, Point{n, r.CAS / 1e6, r.Succeeded / 1e6, r.Replaced, r.Latency})
	}
	return nil
}

// WriteTable prints the series, clients across.
func WriteTable(w io.Writer, series []Series) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "CAS ON ONE WORD, Mops\t")
	for _, n := range Clients {
		fmt.Fprintf(t, "%d\t", n)
	}
	fmt.Fprintln(t, "PAPER\tREPLACED\tLATENCY\tPAPER'S LIMIT IS FROM")
	for i := range series {
		s := &series[i]
		fmt.Fprintf(t, "%s\t", s.Name)
		for _, p := range s.Points {
			fmt.Fprintf(t, "%s\t", mops(p.Mops))
		}
		last := s.Points[len(s.Points)-1]
		paper := "-"
		if s.Published > 0 {
			paper = fmt.Sprintf("%.3g", s.Published)
		}
		fmt.Fprintf(t, "%s\t%.0f%%\t%v\t%s\n", paper, 100*last.Replaced, last.Latency.Round(10*time.Nanosecond), s.Source)
	}
	return t.Flush()
}

// mops prints a rate with digits enough for a machine that does all in software.
func mops(v float64) string {
	if v < 0.1 {
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
