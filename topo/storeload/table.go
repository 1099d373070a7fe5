package storeload

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// Point is one row of the table.
type Point struct {
	Writes  float64 `json:"writes"`
	Clients int     `json:"clients"`
	// Mops are operations a second in millions, FirstTry the share of writes that won their first race.
	Mops     float64 `json:"mops"`
	FirstTry float64 `json:"firstTry"`
	// RTTs and Bytes are an operation's, Bytes as the switch took them in.
	RTTs  float64 `json:"rttsPerOp"`
	Bytes float64 `json:"bytesPerOp"`
	// ReadP99 and WriteP99 are in microseconds; 0: no such operation.
	ReadP99  float64 `json:"readP99Usec"`
	WriteP99 float64 `json:"writeP99Usec"`
	Failed   uint64  `json:"failed"`
	// Steer is what the switch steered, RPCs calls to the metadata server per operation.
	Steer string  `json:"steer"`
	RPCs  float64 `json:"rpcsPerOp"`
	// Gain is Mops against the row without steering, Saved bytes per operation of that row against this one; 0: no such row.
	Gain  float64 `json:"gain,omitempty"`
	Saved float64 `json:"saved,omitempty"`
}

// Percentages of writes and numbers of clients that the table has.
var (
	Percentages = []float64{0, 5, 50, 100}
	Clients     = []int{8, 64, 240}
)

// published is what the SwordBox paper says of Clover without help.
var published = map[float64]string{
	0:  "about 40 Mops (fig. 11, 400 cores)",
	50: "first try under 4% at 240 (fig. 5)",
}

// steered is what it says of throughput and bytes with steering of reads and writes against none.
var steered = map[float64]string{
	0:   "×1.0 Mops (fig. 11)",
	5:   "×2.8 Mops, bytes ÷2.5 (fig. 11, 12)",
	50:  "×32 Mops, bytes ÷16 (fig. 11, 12)",
	100: "×46 Mops (fig. 11)",
}

// Table measures all rows: 1024 keys, Zipf 0.99, nodes of 128 bytes. With steering, each row stands behind the one without.
// share is Load.Share.
func Table(m *cost.Model, steer string, share int, progress func(Point)) ([]Point, error) {
	kinds := []string{None}
	if steer != None && steer != "" {
		kinds = append(kinds, steer)
	}
	var out []Point
	for _, w := range Percentages {
		for _, n := range Clients {
			var plain Point
			for _, k := range kinds {
				p, err := measure(m, Load{Clients: n, Writes: w, Zipf: 0.99, Seed: 1, Steer: k, Share: share})
				if err != nil {
					return out, fmt.Errorf("%g%% writes, %d clients, steer %s: %w", w, n, k, err)
				}
				if k == None {
					plain = p
				} else if plain.Mops > 0 && p.Bytes > 0 {
					p.Gain, p.Saved = p.Mops/plain.Mops, plain.Bytes/p.Bytes
				}
				out = append(out, p)
				if progress != nil {
					progress(p)
				}
			}
		}
	}
	return out, nil
}

func measure(m *cost.Model, l Load) (Point, error) {
	r, err := l.Measure(m)
	if err != nil {
		return Point{}, err
	}
	us := func(k kv.Kind) float64 { return float64(r.Percentile(k, 99)) / 1e3 }
	sum := r.Summary()
	return Point{
		Writes: l.Writes, Clients: l.Clients, Mops: r.Throughput() / 1e6, FirstTry: r.FirstTryShare(), RTTs: sum.RTTsPerOp,
		Bytes: r.BytesPerOp, ReadP99: us(kv.KindRead), WriteP99: us(kv.KindUpdate), Failed: r.Failed + r.Wrong + r.NotFound,
		Steer: l.Steer, RPCs: float64(r.RPCs) / float64(max(1, r.Total())),
	}, nil
}

// WriteTable prints the rows with the paper's words beside.
func WriteTable(w io.Writer, list []Point) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "WRITES\tCLIENTS\tSTEER\tMops\tFIRST TRY\tRTT/OP\tRPC/OP\tBYTES/OP\tREAD p99 us\tWRITE p99 us\tGAIN\tBYTES ÷\tPAPER") // Flush reports
	last := make(map[string]int)
	for i, p := range list {
		last[fmt.Sprint(p.Writes, p.Steer)] = i
	}
	for i, p := range list {
		paper := ""
		if last[fmt.Sprint(p.Writes, p.Steer)] == i {
			if paper = published[p.Writes]; p.Steer == "both" {
				paper = steered[p.Writes]
			}
		}
		dash := func(x float64) string {
			if x == 0 {
				return "-"
			}
			return fmt.Sprintf("%.1f", x)
		}
		fmt.Fprintf(t, "%g%%\t%d\t%s\t%.2f\t%.1f%%\t%.2f\t%.3f\t%.0f\t%s\t%s\t%s\t%s\t%s\n", p.Writes, p.Clients, p.Steer, p.Mops, 100*p.FirstTry,
			p.RTTs, p.RPCs, p.Bytes, dash(p.ReadP99), dash(p.WriteP99), dash(p.Gain), dash(p.Saved), paper)
	}
	return t.Flush()
}
