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

// WriteText prints the result in the columns that perftest users know.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	switch {
	case r.Test == Contend && r.BW != nil:
		fmt.Fprintf(&b, "%s -> %s  %d clients, %d CAS on one word in %v: %.4f Mops; %d changed it\n",
			r.From, r.To, r.Config.Clients, r.BW.Iters, r.Elapsed, r.BW.MsgRate, r.Swapped)
	case r.Locks != nil:
		h, err := r.Locks.Histogram()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s -> %s  %d clients for %v: %d CAS, %d locks and releases; p50 %v, p99 %v\n", r.From, r.To, r.Config.Clients, r.Elapsed,
			r.Locks.Attempts, r.Locks.Acquired, time.Duration(h.ValueAtQuantile(50)), time.Duration(h.ValueAtQuantile(99)))
	case r.BW != nil:
		r.header(&b, "BW Test")
		fmt.Fprintf(&b, " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n")
		fmt.Fprintf(&b, " %-10d %-14d %-19.2f %-21.2f %-.6f\n", r.BW.Bytes, r.BW.Iters, r.BW.Peak, r.BW.Average, r.BW.MsgRate)
	case r.Lat != nil:
		r.header(&b, "Latency Test")
		fmt.Fprintf(&b, " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99%% percentile[usec]   99.9%% percentile[usec]\n")
		l := r.Lat
		fmt.Fprintf(&b, " %-6d %-14d %-14.2f %-12.2f %-18.2f %-14.2f %-15.2f %-22.2f %-.2f\n",
			l.Bytes, l.Iters, l.Min, l.Max, l.Typical, l.Average, l.Stdev, l.P99, l.P999)
	case r.Soak != nil:
		r.soakText(&b)
	default:
		for _, c := range r.Checks {
			verdict := "ok"
			if !c.OK {
				verdict = "FAILED: " + c.Err
			}
			fmt.Fprintf(&b, "%s -> %s  %-6s %v  %s\n", r.From, r.To, c.Name, c.Took, verdict)
		}
	}
	if r.Test != Contend && (r.BW != nil || r.Lat != nil) {
		fmt.Fprintf(&b, "%s\n", rule)
		r.verifiedText(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// header writes the title of a bandwidth or latency test, in the form in which perftest prints it.
func (r *Result) header(b *strings.Builder, kind string) {
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
