package perf

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

const rule = "---------------------------------------------------------------------------------------"

// Rate is a unit of bandwidth in tables: a name, and how many of it are 1 MiB/s.
type Rate struct {
	Name   string
	PerMiB float64
	Digits int // behind the point
}

// Rates returns the units of bandwidth: that of perftest, which writes MB/sec, MB of 10^6 bytes, and Gb of
// 10^9 bits.
func Rates() []Rate {
	return []Rate{{"MiB/sec", 1, 2}, {"MB/sec", 1.048576, 2}, {"Gb/sec", 1.048576 * 8 / 1e3, 6}}
}

// WriteText prints the result in the columns that perftest users know.
func (r *Result) WriteText(w io.Writer) error { return WriteTable(w, []*Result{r}, Rates()[0]) }

// WriteTable prints results of one test, such as those of several sizes, as one table.
func WriteTable(w io.Writer, list []*Result, unit Rate) error {
	var b strings.Builder
	for i, r := range list {
		if err := r.text(&b, unit, i == 0, i == len(list)-1); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// text appends the result; first and last say whether it begins and ends a table.
func (r *Result) text(b *strings.Builder, unit Rate, first, last bool) error {
	switch {
	case r.Test == Contend && r.BW != nil:
		fmt.Fprintf(b, "%s -> %s  %d clients, %d CAS on one word in %v: %.4f Mops; %d changed it\n",
			r.From, r.To, r.Config.Clients, r.BW.Iters, r.Elapsed, r.BW.MsgRate, r.Swapped)
	case r.Locks != nil:
		h, err := r.Locks.Histogram()
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "%s -> %s  %d clients for %v: %d CAS, %d locks and releases; p50 %v, p99 %v\n", r.From, r.To, r.Config.Clients, r.Elapsed,
			r.Locks.Attempts, r.Locks.Acquired, time.Duration(h.ValueAtQuantile(50)), time.Duration(h.ValueAtQuantile(99)))
	case r.BW != nil:
		if first {
			r.header(b, "BW Test")
			fmt.Fprintf(b, " #bytes     #iterations    %-19s %-21s MsgRate[Mpps]\n", "BW peak["+unit.Name+"]", "BW average["+unit.Name+"]")
		}
		fmt.Fprintf(b, " %-10d %-14d %-19.*f %-21.*f %-.6f\n", r.BW.Bytes, r.BW.Iters,
			unit.Digits, r.BW.Peak*unit.PerMiB, unit.Digits, r.BW.Average*unit.PerMiB, r.BW.MsgRate)
	case r.Lat != nil:
		if first {
			r.header(b, "Latency Test")
			latencyColumns(b)
		}
		l := r.Lat
		fmt.Fprintf(b, " %-6d %-14d %-14.2f %-12.2f %-18.2f %-14.2f %-15.2f %-22.2f %-.2f\n",
			l.Bytes, l.Iters, l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.P99, l.P999)
	case r.Soak != nil:
		r.soakText(b)
	default:
		for _, c := range r.Checks {
			verdict := "ok"
			if !c.OK {
				verdict = "FAILED: " + c.Err
			}
			fmt.Fprintf(b, "%s -> %s  %-6s %v  %s\n", r.From, r.To, c.Name, c.Took, verdict)
		}
	}
	if r.Test != Contend && (r.BW != nil || r.Lat != nil) {
		if last {
			fmt.Fprintf(b, "%s\n", rule)
		}
		r.verifiedText(b)
	}
	return nil
}

func latencyColumns(b *strings.Builder) {
	fmt.Fprintf(b, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec]\n")
}

// header writes the title of a bandwidth or latency test, in the form in which perftest prints it.
func (r *Result) header(b *strings.Builder, kind string) {
	if r.Both {
		kind = "Bidirectional " + kind
	}
	if r.Test == RawBW || r.Test == RawLat {
		fmt.Fprintf(b, "%s\n                    Raw Ethernet %s\n %s -> %s   tx depth %d\n%s\n", rule, kind, r.From, r.To, r.Config.Depth, rule)
		return
	}
	if slices.Contains(OneRMATests(), r.Test) {
		op := strings.ToUpper(strings.Split(r.Test, "_")[1])
		fmt.Fprintf(b, "%s\n                    1RMA %s %s\n %s -> %s   operations of at most %d[B]   tx depth %d\n%s\n", rule, op, kind, r.From, r.To, r.MTU, r.Config.Depth, rule)
		return
	}
	op, _, _ := strings.Cut(r.Test, "_")
	fmt.Fprintf(b, "%s\n                    RDMA_%s %s\n", rule, strings.ToUpper(op[:1])+op[1:], kind)
	fmt.Fprintf(b, " %s -> %s   transport %s   mtu %d[B]   tx depth %d   CQ moderation %d\n",
		r.From, r.To, r.transport(), r.MTU, r.Config.Depth, r.Config.SignalEvery)
	if op == "atomic" {
		fmt.Fprintf(b, " atomic type %s   outstanding reads %d\n", strings.ToUpper(r.Config.Type), r.Config.RdAtomic)
	}
	fmt.Fprintf(b, "%s\n", rule)
}

func (r *Result) verifiedText(b *strings.Builder) {
	for _, status := range []string{"nack", "timeout", "dispatch_timeout"} {
		if n := r.Counters["onerma_ended_"+status]; n > 0 {
			fmt.Fprintf(b, "tried again: %d operations that ended as %s\n", n, strings.ToUpper(status))
		}
	}
	if r.Lost > 0 {
		fmt.Fprintf(b, "lost: %d of %d messages\n", r.Lost, r.Sent)
	}
	switch {
	case r.VerifiedAtomics > 0:
		fmt.Fprintf(b, "verified: %d atomics, each original value and the sum\n", r.VerifiedAtomics)
	case r.Verified > 0:
		fmt.Fprintf(b, "verified: %d bytes\n", r.Verified)
	}
}

func (r *Result) soakText(b *strings.Builder) {
	s := r.Soak
	fmt.Fprintf(b, "soak %s -> %s: %d bytes a message, mtu %d, %v\n", r.From, r.To, r.Config.Size, r.MTU, r.Elapsed)
	fmt.Fprintf(b, "  WRITE      %8d messages\n  READ       %8d messages\n  SEND       %8d messages\n", s.Writes, s.Reads, s.Sends)
	fmt.Fprintf(b, "  FETCH_ADD  %8d   sum %d, expected %d\n", s.FetchAdds, s.Sum, s.Expected)
	fmt.Fprintf(b, "  CMP_SWAP   %8d   took effect %d\n", s.CmpSwaps, s.Swapped)
	fmt.Fprintf(b, "  verified   %8d bytes, %d atomics\n", r.Verified, r.VerifiedAtomics)
	for _, name := range slices.Sorted(maps.Keys(r.Counters)) {
		fmt.Fprintf(b, "  %-26s %+d\n", name, r.Counters[name])
	}
}

func (r *Result) transport() string {
	s := cmp.Or(strings.ToUpper(r.Config.Conn), "RC")
	if r.Config.SRQ {
		s += "+SRQ"
	}
	if r.Config.QPs > 1 {
		s += fmt.Sprintf(" x%d", r.Config.QPs)
	}
	return s
}
