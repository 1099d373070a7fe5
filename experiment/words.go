package experiment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/contention"
)

// wordSeries is a series of measurements with several numbers of clients. It has one place of the
// contended words and one way to access them.
type wordSeries struct {
	key, name string
	load      Words
	// limit is the paper's value for many clients, in millions of CAS a second, 0 if the paper has
	// none; source says where in the paper it is.
	limit  float64
	source string
	// at has the paper's values by number of clients, in millions of CAS a second; nil if the paper
	// has only the limit.
	at map[int]float64
	// on is the platform to which the series is restricted; "" means that it runs on both. If
	// chosen is true, the series runs only if --series names it.
	on     string
	chosen bool
	// most is the largest number of clients; 0 means that there is no limit.
	most int
}

// wordBody is an experiment with clients that contend for words.
type wordBody struct {
	list    []wordSeries
	names   []string // values of --series; none means all series except those with wordSeries.chosen set
	clients []int
	iters   int
	span    time.Duration
	locks   bool
	short   bool // --quick was given
}

const usualIters = 20000

func (b *wordBody) Flags(fs *pflag.FlagSet) {
	clientsFlag(fs, &b.clients)
	fs.Lookup("clients").Usage += fmt.Sprintf("; on a rack at most %d for each compute host", contention.MaxClients)
	fs.StringSliceVar(&b.names, "series", nil, "series to measure, separated by commas: "+strings.Join(strings.Fields(b.keys("")), ", ")+" (default: all that --on allows"+b.exceptions()+")")
	if b.locks {
		fs.DurationVar(&b.span, "span", 0, "on a rack: how long each measurement takes (default 1s; in slow motion 2ms by the rack's clock)")
	} else {
		fs.IntVar(&b.iters, "iters", 0, "on a rack: CASes of all clients together in each measurement (default 20000)")
	}
}

// exceptions lists the series that run only when --series names them.
func (b *wordBody) exceptions() string {
	var list []string
	for _, s := range b.list {
		if s.chosen {
			list = append(list, s.key)
		}
	}
	if len(list) == 0 {
		return ""
	}
	return ", except " + strings.Join(list, " and ")
}

// Explain describes the series, a line each below a title.
func (b *wordBody) Explain() string {
	out := "Series:\n"
	for _, s := range b.list {
		where := ""
		switch s.on {
		case OnSim:
			where = "; simulator only"
		case OnRack:
			where = "; rack only, and only if --series names it"
		}
		out += fmt.Sprintf("  %-15s %s%s\n", s.key, s.name, where)
	}
	return strings.TrimSuffix(out, "\n")
}

// keys returns the keys of the series that can run on a platform, separated by spaces. If `on` is
// "", it returns the keys of all series.
func (b *wordBody) keys(on string) string {
	out := ""
	for _, s := range b.list {
		if on == "" || s.on == "" || s.on == on {
			out += " " + s.key
		}
	}
	return out[min(1, len(out)):]
}

func (b *wordBody) Check(at Place) error {
	most := maxClients
	if at.On == OnRack {
		most = at.Hosts * contention.MaxClients
	}
	if err := checkClients(b.clients, most); err != nil {
		return err
	}
	if b.iters < 0 || b.span < 0 {
		return fmt.Errorf("--iters %d, --span %v: want a positive value", b.iters, b.span)
	}
	var list []wordSeries
	for _, s := range b.list {
		here := s.on == "" || s.on == at.On
		if slices.Contains(b.names, s.key) && here || len(b.names) == 0 && here && !s.chosen {
			list = append(list, s)
		}
	}
	for _, name := range b.names {
		if !slices.ContainsFunc(list, func(s wordSeries) bool { return s.key == name }) {
			return fmt.Errorf("--series %.40q: %son %s there are %s", name, nearest.Meant(name, strings.Fields(b.keys(at.On))), at.On, b.keys(at.On))
		}
	}
	b.list = list
	b.iters = cmp.Or(b.iters, usualIters)
	if at.Quick {
		b.iters, b.short = b.iters/10, true
		b.clients = few(b.clients, true)
	}
	return nil
}

// points lists all measurements, ordered by series.
func (b *wordBody) points() (out []wordPoint) {
	for i := range b.list {
		s := &b.list[i]
		var mine []wordPoint
		for _, n := range b.clients {
			if s.most == 0 || n <= s.most {
				l := s.load
				l.Clients, l.Locks, l.Iters, l.Span, l.Short = n, b.locks, b.iters, b.span, b.short
				mine = append(mine, wordPoint{series: s, load: l})
			}
		}
		if len(mine) > 0 {
			mine[len(mine)-1].last = true
		}
		out = append(out, mine...)
	}
	return out
}

// wordPoint is one measurement: a series with one number of clients.
type wordPoint struct {
	series *wordSeries
	load   Words
	last   bool // true for the point with the most clients of its series
}

// paper returns the CAS rate that the paper has for this point, in millions a second: the value in
// its figure for this number of clients. If the paper has only the limit of the series for many
// clients, paper returns this limit for the series' last point. 0 means that the paper has no rate.
func (p *wordPoint) paper() float64 {
	if v := p.series.at[p.load.Clients]; v != 0 {
		return v
	}
	if p.last && p.series.at == nil {
		return p.series.limit
	}
	return 0
}

func (b *wordBody) Run(ctx context.Context, pl Platform, r *Report) error {
	r.Columns(b.columns()...)
	points := b.points()
	for i := range points {
		p := &points[i]
		r.begin(i+1, len(points), "%s, %d clients", p.series.name, p.load.Clients)
		res, err := pl.Words(ctx, p.load)
		if err != nil {
			return fmt.Errorf("%s, %d clients: %w", p.series.name, p.load.Clients, err)
		}
		r.end("%.3g Mops", res.CAS/1e6)
		if res.Succeeded == 0 {
			r.fail("%s, %d clients: no CAS succeeded", p.series.name, p.load.Clients)
		}
		r.Add(b.row(p, &res)...)
	}
	return nil
}

func (b *wordBody) columns() []Column {
	head := []Column{
		{Key: "series", Title: "SERIES", Repeats: true},
		{Key: "clients", Title: "CLIENTS"},
		{Key: "mops", Title: "CAS Mops", Format: "%.3g"},
	}
	tail := []Column{
		{Key: "replaced", Title: "REPLACED %", Format: "%.0f"},
		{Key: "limit", Title: "PAPER'S LIMIT Mops", Format: "%.3g"},
		{Key: "source", Title: "FROM"},
	}
	if !b.locks {
		return slices.Concat(head, []Column{
			{Key: "succeededMops", Title: "SUCCEEDED Mops", Format: "%.3g"}, {Key: "latencyUs", Title: "LATENCY us", Format: "%.2f"},
		}, tail)
	}
	return slices.Concat(head, []Column{
		{Key: "acquiredMops", Title: "LOCKED AND RELEASED Mops", Format: "%.3g"},
		{Key: "casPerLock", Title: "CAS/LOCK", Format: "%.1f"},
		{Key: "p50us", Title: "LOCK p50 us", Format: "%.2f"},
		{Key: "p99us", Title: "p99 us", Format: "%.2f"},
	}, tail)
}

func (b *wordBody) row(p *wordPoint, res *WordsResult) []Cell {
	us := func(d time.Duration) Cell { return Num(float64(d) / 1e3) }
	cells := []Cell{Label(p.series.name), Num(float64(p.load.Clients)), Beside(res.CAS/1e6, p.paper())}
	if !b.locks {
		cells = append(cells, Num(res.Succeeded/1e6), us(res.Mean))
	} else {
		pairs, tries := 0.0, 0.0
		if p.last {
			pairs = publishedPairs
		}
		if res.Succeeded > 0 {
			tries = res.CAS / res.Succeeded
		}
		cells = append(cells, Beside(res.Succeeded/1e6, pairs), Num(tries), us(res.P50), us(res.P99))
	}
	limit, source := None(), None()
	if p.series.limit > 0 {
		limit, source = Num(p.series.limit), Label(p.series.source)
	}
	return append(cells, Num(100*res.Replaced), limit, source)
}
