package storeload

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// Row is an experiment of the SwordBox paper: without steering, as package steer does it, and as the paper does it.
type Row struct {
	// Name says what it is, Paper what the paper says.
	Name  string `json:"name"`
	Paper string `json:"paper"`
	Load  Load   `json:"load"`
	Plain Point  `json:"plain"`
	Hard  Point  `json:"hard"`
	// Published is mode paper.
	Published Point `json:"published"`
}

// gain is how many times the operations of plain a second are.
func gain(plain, p Point) float64 { return ratio(p.Mops, plain.Mops) }

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// smallPool is four nodes for each key, and what clients hold back.
const smallPool = 4*1024 + 240*17

// Rows are the experiments; the results are missing.
func Rows() []Row {
	load := func(clients int, writes, zipf float64) Load {
		return Load{Clients: clients, Writes: writes, Zipf: zipf, Seed: 1, Steer: "both"}
	}
	hot := func(n int) Load {
		l := load(336, 50, 1.5)
		l.Hot = n
		return l
	}
	short := load(240, 100, 0.99)
	short.Pool = smallPool
	return []Row{
		{Name: "fig. 5: 50% writes, 240 clients", Paper: "first try <4% → >95%", Load: load(240, 50, 0.99)},
		{Name: "fig. 11-13: 0% writes, 400 clients", Paper: "×1.0, 40 Mops", Load: load(400, 0, 0.99)},
		{Name: "fig. 11-13: 5% writes, 400 clients", Paper: "×2.8, bytes ÷2.5, read p99 ÷8, write p99 ÷17", Load: load(400, 5, 0.99)},
		{Name: "fig. 11-13: 50% writes, 400 clients", Paper: "×32, bytes ÷16, read p99 ÷300, write p99 ÷189", Load: load(400, 50, 0.99)},
		{Name: "fig. 11-13: 100% writes, 400 clients", Paper: "×46, write p99 ÷252", Load: load(400, 100, 0.99)},
		{Name: "fig. 14: Zipf 1.5, 336 clients, 8 keys steered", Paper: "×9.5", Load: hot(8)},
		{Name: "fig. 14: Zipf 1.5, 336 clients, 64 keys steered", Paper: "×27", Load: hot(64)},
		{Name: "100% writes, 240 clients, nodes used again at once", Paper: "-", Load: short},
	}
}

// Fill makes the measurements of a row.
func (r *Row) Fill(m *cost.Model) error {
	plain, paper := r.Load, r.Load
	plain.Steer, plain.Hot, paper.Mode = None, 0, paperMode
	var err error
	if r.Plain, err = measure(m, plain); err != nil {
		return fmt.Errorf("%s, without steering: %w", r.Name, err)
	}
	if r.Hard, err = measure(m, r.Load); err != nil {
		return fmt.Errorf("%s, steered: %w", r.Name, err)
	}
	if r.Load.Pool != 0 {
		return nil // mode paper links nodes to themselves when versions differ (holes 26 and 29)
	}
	if r.Published, err = measure(m, paper); err != nil {
		return fmt.Errorf("%s, steered as published: %w", r.Name, err)
	}
	return nil
}

// WriteRows prints the rows beside what the paper says.
func WriteRows(w io.Writer, list []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "EXPERIMENT\tSTEER\tMops\tGAIN\tFIRST TRY\tBYTES/OP\tBYTES ÷\tREAD p99 us\t÷\tWRITE p99 us\t÷\tRPC/OP\tPAPER") // Flush reports
	for _, r := range list {
		for i, p := range []Point{r.Plain, r.Hard, r.Published} {
			if p.Clients == 0 {
				continue
			}
			name, paper, how := "", "", [...]string{"none", "hard", "paper"}[i]
			switch i {
			case 0:
				name = r.Name
			case 1:
				paper = r.Paper
			}
			times := func(x float64) string {
				if i == 0 || x == 0 {
					return "-"
				}
				return fmt.Sprintf("%.1f", x)
			}
			first := "-"
			if p.Writes > 0 {
				first = fmt.Sprintf("%.1f%%", 100*p.FirstTry)
			}
			us := func(x float64) string {
				if x == 0 {
					return "-"
				}
				return fmt.Sprintf("%.1f", x)
			}
			fmt.Fprintf(t, "%s\t%s\t%.2f\t%s\t%s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%.3f\t%s\n", name, how, p.Mops, times(gain(r.Plain, p)), first,
				p.Bytes, times(ratio(r.Plain.Bytes, p.Bytes)), us(p.ReadP99), times(ratio(r.Plain.ReadP99, p.ReadP99)),
				us(p.WriteP99), times(ratio(r.Plain.WriteP99, p.WriteP99)), p.RPCs, paper)
		}
	}
	return t.Flush()
}
