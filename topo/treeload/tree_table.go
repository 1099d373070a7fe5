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
	// Misses says how the switch treats CAS that fail; "": the server answers them.
	Misses string `json:"misses,omitempty"`
	// Alone says that each client is a compute node of its own.
	Alone bool `json:"alone"`
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
	treePlaces  = []treePlace{{LocksHost, ""}, {LocksDevice, ""}, {LocksSwitch, ""}, {LocksSwitch, "wait"}}
)

// treePlace is where lock words are, and what becomes of CAS that fail.
type treePlace struct{ locks, misses string }

// Tree measures YCSB A with model m, whose switch keeps up with whatever it does: with clients that share nothing, and with clients on
// eight compute nodes, which hand locks over.
func Tree(m *cost.Model, progress func(TreePoint)) ([]TreePoint, error) {
	w, err := kv.FindWorkload("a")
	if err != nil {
		return nil, err
	}
	var out []TreePoint
	for _, alone := range []bool{true, false} {
		for _, zipf := range TreeZipfs {
			for _, n := range TreeClients {
				base := 0.0
				for _, at := range treePlaces {
					p, err := measureTree(m.AtLineRate(), TreeLoad{
						Clients: n, Workload: w, Zipf: zipf, Locks: at.locks, Misses: at.misses, Alone: alone, Seed: 1,
					})
					if err != nil {
						return out, fmt.Errorf("tree with %d clients, Zipf %g, locks in %s: %w", n, zipf, at.locks, err)
					}
					if at.locks == LocksHost {
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
		Workload: l.Workload.Name, Zipf: l.Zipf, Clients: l.Clients, Locks: l.Locks, Misses: l.Misses, Alone: l.Alone,
		HandOver: l.HandOver >= 0 && !l.Alone, Mops: r.Throughput() / 1e6,
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
	fmt.Fprintln(t, "YCSB\tZIPF\tCLIENTS\tLOCKS IN\tMops\tGAIN\tUPDATE p50 us\tp99 us\tLOCK p99 us\tCAS/LOCK\tHANDED OVER\tRTT/OP\tBYTES/OP\tFAILED") // Flush reports
	for _, p := range list {
		clients, locks := fmt.Sprintf("%d on %d nodes", p.Clients, treeHosts), p.Locks
		if p.Alone {
			clients = fmt.Sprintf("%d alone", p.Clients)
		}
		if p.Misses != "" {
			locks += ", misses=" + p.Misses
		}
		fmt.Fprintf(t, "%s\t%g\t%s\t%s\t%.3f\t×%.2f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f%%\t%.2f\t%.0f\t%d\n", p.Workload, p.Zipf, clients, locks,
			p.Mops, p.Gain, p.UpdateP50, p.UpdateP99, p.WaitP99, p.CAS, 100*p.HandOvers, p.RTTs, p.Bytes, p.Failed)
	}
	return t.Flush()
}
