package treeload

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// TreePoint is one row of the table of trees.
type TreePoint struct {
	Workload string  `json:"workload"`
	Zipf     float64 `json:"zipf"`
	Clients  int     `json:"clients"`
	Locks    string  `json:"locks"`
	// HandOver says that locks are handed over in a node.
	HandOver bool `json:"handOver"`
	// Mops are operations a second in millions; P99 of updates and the waits for locks are in microseconds.
	Mops      float64 `json:"mops"`
	UpdateP50 float64 `json:"updateP50Usec"`
	UpdateP99 float64 `json:"updateP99Usec"`
	WaitP99   float64 `json:"waitP99Usec"`
	// CAS are tries for each lock that was got, HandOvers the share of locks that were handed over.
	CAS       float64 `json:"casPerLock"`
	HandOvers float64 `json:"handOvers"`
	RTTs      float64 `json:"rttsPerOp"`
	Bytes     float64 `json:"bytesPerOp"`
	Failed    uint64  `json:"failed"`
	// Gain is Mops against the row with locks in host memory, and else the same.
	Gain float64 `json:"gain"`
}

// What the table of trees has.
var (
	TreeZipfs   = []float64{0.99, 1.2}
	TreeClients = []int{64, 176}
	treePlaces  = []string{LocksHost, LocksDevice, LocksSwitch}
)

// Tree measures YCSB A with model m, whose switch keeps up with whatever it does.
func Tree(m *cost.Model, progress func(TreePoint)) ([]TreePoint, error) {
	w, err := kv.FindWorkload("a")
	if err != nil {
		return nil, err
	}
	var out []TreePoint
	for _, zipf := range TreeZipfs {
		for _, n := range TreeClients {
			for _, hand := range []int{-1, 0} {
				base := 0.0
				for _, place := range treePlaces {
					p, err := measureTree(m.AtLineRate(), TreeLoad{Clients: n, Workload: w, Zipf: zipf, Locks: place, HandOver: hand, Seed: 1})
					if err != nil {
						return out, fmt.Errorf("tree with %d clients, Zipf %g, locks in %s: %w", n, zipf, place, err)
					}
					if place == LocksHost {
						base = p.Mops
					}
					if base > 0 {
						p.Gain = p.Mops / base
					}
					out = append(out, p)
					if progress != nil {
						progress(p)
					}
				}
			}
		}
	}
	return out, nil
}

func measureTree(m *cost.Model, l TreeLoad) (TreePoint, error) {
	r, err := l.Measure(m)
	if err != nil {
		return TreePoint{}, err
	}
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	p := TreePoint{
		Workload: l.Workload.Name, Zipf: l.Zipf, Clients: l.Clients, Locks: l.Locks, HandOver: l.HandOver >= 0, Mops: r.Throughput() / 1e6,
		UpdateP50: us(r.Percentile(kv.KindUpdate, 50)), UpdateP99: us(r.Percentile(kv.KindUpdate, 99)), WaitP99: us(r.WaitP99),
		RTTs: r.Summary().RTTsPerOp, Bytes: r.BytesPerOp, Failed: r.Failed + r.Wrong + r.NotFound,
	}
	if n := &r.Node; n.Acquires > 0 {
		p.HandOvers = float64(n.HandOvers) / float64(n.Acquires)
		if asked := n.Acquires - n.HandOvers; asked > 0 {
			p.CAS = float64(n.CAS) / float64(asked)
		}
	}
	return p, nil
}

// WriteTree prints the rows.
func WriteTree(w io.Writer, list []TreePoint) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "YCSB\tZIPF\tCLIENTS\tHAND-OVER\tLOCKS IN\tMops\tGAIN\tUPDATE p50 us\tp99 us\tLOCK p99 us\tCAS/LOCK\tHANDED OVER\tRTT/OP\tBYTES/OP\tFAILED") // Flush reports
	for _, p := range list {
		hand := "no"
		if p.HandOver {
			hand = "yes"
		}
		fmt.Fprintf(t, "%s\t%g\t%d\t%s\t%s\t%.3f\t×%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f%%\t%.2f\t%.0f\t%d\n", p.Workload, p.Zipf, p.Clients, hand, p.Locks,
			p.Mops, p.Gain, p.UpdateP50, p.UpdateP99, p.WaitP99, p.CAS, 100*p.HandOvers, p.RTTs, p.Bytes, p.Failed)
	}
	return t.Flush()
}
