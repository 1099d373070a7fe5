package calibrate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Figure is one comparison of a published number with the result of a cost model.
type Figure struct {
	Name string `json:"name"`
	// Source says where the published value is from.
	Source string `json:"source"`
	Unit   string `json:"unit"`
	// Published and Measured are in Unit.
	Published float64 `json:"published"`
	Measured  float64 `json:"measured"`
	// Tolerance is how far Measured may be from Published, as a fraction of Published.
	Tolerance float64 `json:"tolerance"`

	measure func(*cost.Model) (float64, error)
	// middlebox is true if the figure was measured with a switch whose program runs on cores. Such
	// a figure is compared only for a cost model with cores. All other figures were measured on
	// NICs behind a switch at line rate, or without a switch.
	middlebox bool
}

// Deviation returns the difference as a fraction of the published value.
func (f *Figure) Deviation() float64 { return f.Measured/f.Published - 1 }

func (f *Figure) OK() bool { return math.Abs(f.Deviation()) <= f.Tolerance }

// fleet is the largest number of queue pairs of a load, as in SwordBox fig. 3.
const fleet = 20

// ops returns the function that measures the rate of a load, in millions of operations a second.
func ops(l Load) func(*cost.Model) (float64, error) {
	return func(m *cost.Model) (float64, error) {
		v, err := l.throughput(m)
		return v / 1e6, err
	}
}

// backToBack returns the function that measures the latency of an operation in microseconds,
// between two hosts without a switch.
func backToBack(op verbs.WROpcode, size int) func(*cost.Model) (float64, error) {
	return func(m *cost.Model) (float64, error) {
		d, err := Load{Op: op, Bytes: size, Pairs: 1, Depth: 1}.latency(m.BackToBack())
		return d.Seconds() * 1e6, err
	}
}

// goodput returns the function that measures the rate of a load's payload, in gigabits a second.
func goodput(l Load) func(*cost.Model) (float64, error) {
	return func(m *cost.Model) (float64, error) {
		v, err := l.throughput(m)
		return v * float64(l.Bytes) * 8 / 1e9, err
	}
}

// Figures lists the comparisons that can be made with ConnectX-5, in the order in which WriteTable
// prints them.
func Figures() []Figure {
	const mops, us, gbps = "Mops", "us", "Gb/s"
	cas, write, read := verbs.OpCmpSwap, verbs.OpWrite, verbs.OpRead
	return []Figure{
		{Name: "CAS, one word of host memory", Source: "SwordBox fig. 4", Unit: mops, Published: 3, Tolerance: 0.03, measure: ops(Load{Op: cas, Bytes: 8, Pairs: fleet, Depth: 4, OneWord: true})},
		{Name: "CAS, one word of device memory", Source: "SwordBox fig. 4", Unit: mops, Published: 9, Tolerance: 0.03, measure: ops(Load{Op: cas, Bytes: 8, Pairs: fleet, Depth: 4, OneWord: true, Device: true})},
		{Name: "WRITE, one QP, one word of host memory", Source: "SwordBox fig. 4", Unit: mops, Published: 18.6, Tolerance: 0.03, measure: ops(Load{Op: write, Bytes: 8, Pairs: 1, Depth: 128})},
		{Name: "WRITE, one QP, one word of device memory", Source: "SwordBox fig. 4", Unit: mops, Published: 22.5, Tolerance: 0.03, measure: ops(Load{Op: write, Bytes: 8, Pairs: 1, Depth: 128, Device: true})},
		{Name: "CAS, independent words, one QP", Source: "SwordBox fig. 3", Unit: mops, Published: 2.7, Tolerance: 0.03, measure: ops(Load{Op: cas, Bytes: 8, Pairs: 1, Depth: 16})},
		{Name: "CAS, independent words, 20 QPs", Source: "SwordBox fig. 3", Unit: mops, Published: 55, Tolerance: 0.03, measure: ops(Load{Op: cas, Bytes: 8, Pairs: fleet, Depth: 16})},
		{Name: "READ of 8 B, 20 QPs", Source: "SwordBox data", Unit: mops, Published: 84.5, Tolerance: 0.03, measure: ops(Load{Op: read, Bytes: 8, Pairs: fleet, Depth: 16})},
		{Name: "WRITE of 8 B, 20 QPs", Source: "SwordBox fig. 1", Unit: mops, Published: 117.9, Tolerance: 0.03, measure: ops(Load{Op: write, Bytes: 8, Pairs: fleet, Depth: 32})},
		{Name: "READ of 64 B, latency, no switch", Source: "RedN fig. 7", Unit: us, Published: 1.8, Tolerance: 0.05, measure: backToBack(read, 64)},
		{Name: "WRITE of 64 B, latency, no switch", Source: "RedN fig. 7", Unit: us, Published: 1.6, Tolerance: 0.05, measure: backToBack(write, 64)},
		{Name: "CAS, latency, no switch", Source: "RedN fig. 7", Unit: us, Published: 1.8, Tolerance: 0.05, measure: backToBack(cas, 8)},
		{Name: "WRITE of 64 KiB, payload", Source: "RedN table 4", Unit: gbps, Published: 92, Tolerance: 0.1, measure: goodput(Load{Op: write, Bytes: 64 << 10, Pairs: 8, Depth: 4})},
		{Name: "QPs for 95 % of all 8 B WRITEs", Source: "SwordBox fig. 1", Unit: "QPs", Published: 7, measure: pairsForFullRate},
		{Name: "WRITE, one QP, rewritten by the switch", Source: "SwordBox fig. 10", Unit: mops, Published: 2.8, Tolerance: 0.03, measure: ops(Load{Op: write, Bytes: 8, Pairs: 1, Depth: 64, wrap: rewriter}), middlebox: true},
	}
}

// pairsForFullRate returns the smallest number of queue pairs that together have 95 % of the rate
// of WRITEs of 20 queue pairs.
func pairsForFullRate(m *cost.Model) (float64, error) {
	full, err := Load{Op: verbs.OpWrite, Bytes: 8, Pairs: fleet, Depth: 32}.throughput(m)
	for n := 1; n < fleet && err == nil; n++ {
		var v float64
		if v, err = (Load{Op: verbs.OpWrite, Bytes: 8, Pairs: n, Depth: 128}).throughput(m); v >= 0.95*full {
			return float64(n), err
		}
	}
	return fleet, err
}

// Run sets Measured: it measures the figure on a simulated rack with the cost model m.
func (f *Figure) Run(m *cost.Model) (err error) {
	if !f.middlebox {
		m = m.AtLineRate()
	}
	if f.Measured, err = f.measure(m); err != nil {
		return fmt.Errorf("calibrate: %s: %w", f.Name, err)
	}
	return nil
}

func Run(m *cost.Model) ([]Figure, error) {
	var out []Figure
	for _, f := range Figures() {
		if f.middlebox && m.Switch.Cores == 0 {
			continue
		}
		if err := f.Run(m); err != nil {
			return out, err
		}
		out = append(out, f)
	}
	return out, nil
}

func WriteTable(w io.Writer, figures []Figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tPUBLISHED\tIN SIM\tOFF BY\tALLOWED\tSOURCE")
	for i := range figures {
		f := &figures[i]
		verdict := ""
		if !f.OK() {
			verdict = "; WRONG"
		}
		fmt.Fprintf(t, "%s\t%.3g %s\t%.3g %s\t%+.1f%%\t%.0f%%\t%s%s\n",
			f.Name, f.Published, f.Unit, f.Measured, f.Unit, 100*f.Deviation(), 100*f.Tolerance, f.Source, verdict)
	}
	return t.Flush()
}

// rewriter is a Load.wrap that decrements the time to live of each packet before the switch gets
// it. So each packet that leaves the switch differs from the one that came over the link, and
// cost.Box charges Switch.Rewrite, not Switch.Forward.
func rewriter(name string, n simnet.Node) simnet.Node {
	if name != rackfile.SwitchName {
		return n
	}
	var frame wire.Frame
	var buf []byte
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
		if wire.ParseFrame(f.Data, &frame) == nil && frame.IPv4.TTL > 0 {
			frame.IPv4.TTL--
			buf = frame.AppendTo(buf[:0])
			f.Data = buf
		}
		return true
	}}
}
