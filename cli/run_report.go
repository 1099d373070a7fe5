package cli

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/store/kv"
)

// runReport is the JSON that run prints.
type runReport struct {
	Store    string `json:"store"`
	Steer    string `json:"steer,omitempty"`
	Workload string `json:"workload"`
	Keys     uint64 `json:"keys"`
	// Value is the largest size of a value in bytes. Sizes and Distribution describe sizes and
	// popularity in words. Rate is the rate of each client in an open loop, in operations per
	// second.
	Value        int     `json:"value"`
	Sizes        string  `json:"sizes"`
	Distribution string  `json:"distribution"`
	Zipf         float64 `json:"zipf"`
	Rate         float64 `json:"rate,omitempty"`
	kv.Summary
	// Slow is the factor of slow motion; 0 means that the rack is not in slow motion. Times and rates
	// are by the rack's clock; RealThroughput is in operations per second of real time, if Slow is set.
	Slow           int     `json:"slow,omitempty"`
	RealThroughput float64 `json:"realThroughput,omitempty"`
	// BytesPerOp and PacketsPerOp are the bytes and packets that the switch has received, divided
	// by the number of operations.
	BytesPerOp   float64 `json:"bytesPerOp"`
	PacketsPerOp float64 `json:"packetsPerOp"`
}

// loadName is the name of the workload that only loads the keys.
const loadName = "load"

func (f *runFlags) report(res *kv.Result) *runReport {
	c, name := &f.config, f.config.Workload.Name
	if f.loadOnly {
		name = loadName
	}
	popular := c.Popular()
	if f.ops != nil {
		popular = fmt.Sprintf("%d operations", len(f.ops))
		if c.Pace > 0 {
			popular += fmt.Sprintf(" at %g times their pace", c.Pace)
		}
	}
	return &runReport{
		Store: f.store, Steer: f.steer, Workload: name, Keys: c.Keys, Value: c.Value, Zipf: c.Zipf, Sizes: c.Sizes.String(),
		Distribution: popular, Rate: c.Rate, Summary: res.Summary(),
	}
}

// write prints the report. Then it returns an exit status of 1 if an operation has failed or a value
// was wrong.
func (r *runReport) write(cmd *cobra.Command, asCSV bool) (err error) {
	switch {
	case wantJSON(cmd):
		err = printJSON(cmd, r)
	case asCSV:
		err = r.writeCSV(cmd)
	default:
		err = r.writeText(cmd)
	}
	if err == nil && r.Failed+r.Wrong > 0 {
		err = exitCode(1)
	}
	return err
}

func (r *runReport) writeText(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	steer := either(r.Steer != "", ", steer "+r.Steer, "")
	what, popular := "workload "+r.Workload, ", "+r.Distribution
	if r.Workload == loadName {
		what, popular = loadName, ""
	}
	_, _ = fmt.Fprintf(out, "%s, %s: %d clients, %d keys, %s%s%s\n", r.Store, what, r.Clients, r.Keys, r.Sizes, popular, steer)
	_, _ = fmt.Fprintf(out, "%.0f operations a second (%d in %.2f s)\n", r.Throughput, r.Ops, r.Seconds)
	writeReal(out, r.Slow, r.Throughput, r.Seconds)
	_, _ = fmt.Fprintf(out, "first try %.1f%%, %d races lost, %.2f round trips, %.0f bytes and %.2f packets an operation\n",
		100*r.FirstTry, r.Retries, r.RTTsPerOp, r.BytesPerOp, r.PacketsPerOp)
	if r.Existed > 0 {
		_, _ = fmt.Fprintf(out, "%d inserts found that their key existed\n", r.Existed)
	}
	if r.Failed+r.Wrong+r.NotFound > 0 {
		first := either(r.FirstError != "", "; first: "+r.FirstError, "")
		_, _ = fmt.Fprintf(out, "%d failed, %d wrong values, %d keys not found%s\n", r.Failed, r.Wrong, r.NotFound, first)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "usec\tops\tp50\tp90\tp99\tp99.9\tmax\t")
	for _, l := range r.Latencies {
		_, _ = fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t\n", l.Kind, l.Ops, l.P50, l.P90, l.P99, l.P999, l.Max)
	}
	return errors.Join(w.Flush(), writeBreakdown(out, r.Breakdown))
}

// writeBreakdown prints the mean times of the phases that have occurred. Each kind of operation has
// a line.
func writeBreakdown(out io.Writer, list []kv.Breakdown) error {
	if len(list) == 0 {
		return nil
	}
	all := list[len(list)-1].Phases
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(w, "usec\tmean")
	for _, p := range kv.Phases() {
		if _, ok := all[p.String()]; ok {
			_, _ = fmt.Fprint(w, "\t"+p.String())
		}
	}
	_, _ = fmt.Fprintln(w, "\t")
	for _, b := range list {
		_, _ = fmt.Fprintf(w, "%s\t%.1f", b.Kind, b.Mean)
		for _, p := range kv.Phases() {
			if _, ok := all[p.String()]; !ok {
				continue
			}
			if usec, ok := b.Phases[p.String()]; ok {
				_, _ = fmt.Fprintf(w, "\t%.1f", usec)
			} else {
				_, _ = fmt.Fprint(w, "\t-")
			}
		}
		_, _ = fmt.Fprintln(w, "\t")
	}
	return w.Flush()
}

// phaseUsec returns the mean time that operations of all kinds have spent in a phase, in
// microseconds; 0 if there is no breakdown.
func (r *runReport) phaseUsec(p kv.Phase) float64 {
	if len(r.Breakdown) == 0 {
		return 0
	}
	return r.Breakdown[len(r.Breakdown)-1].Phases[p.String()]
}

func (r *runReport) writeCSV(cmd *cobra.Command) error {
	w := csv.NewWriter(cmd.OutOrStdout())
	num := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	p := map[string]kv.Latency{}
	for _, l := range r.Latencies {
		p[l.Kind] = l
	}
	head := []string{
		"store", "workload", "clients", "keys", "value", "zipf", "ops_per_s", "first_try", "retries", "rtts_per_op", "bytes_per_op", "read_p50_us", "read_p99_us", "update_p50_us", "update_p99_us",
		"insert_p50_us", "insert_p99_us", "distribution", "sizes",
	}
	row := []string{
		r.Store, r.Workload, strconv.Itoa(r.Clients), strconv.FormatUint(r.Keys, 10), strconv.Itoa(r.Value), num(r.Zipf), num(r.Throughput),
		num(r.FirstTry), strconv.FormatUint(r.Retries, 10), num(r.RTTsPerOp), num(r.BytesPerOp), num(p["read"].P50), num(p["read"].P99),
		num(p["update"].P50), num(p["update"].P99), num(p["insert"].P50), num(p["insert"].P99), r.Distribution, r.Sizes,
	}
	for _, p := range kv.Phases() {
		head = append(head, strings.NewReplacer(" ", "_", "-", "_").Replace(p.String())+"_us")
		row = append(row, num(r.phaseUsec(p)))
	}
	_, _ = w.Write(head), w.Write(row) // Error returns the first error
	w.Flush()
	return w.Error()
}
