package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
	"github.com/rdmalab/rdmalab/topo/why"
)

// whyWait bounds the questions to the peer and to the switch: why answers also if these are silent.
const whyWait = 2 * time.Second

func whyCmd() *cobra.Command {
	var work string
	cmd := &cobra.Command{
		Use:               "why HOST [QPN] | why FILE",
		Short:             "Tell why a queue pair, a work request or a transfer in a capture failed or healed",
		SuggestFor:        []string{"explain"},
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			isHost := func(name string) bool {
				r, err := openRack(cmd)
				return err == nil && r.CheckHost(name) == nil
			}
			if isCapture(args[0], isHost) {
				if len(args) > 1 || cmd.Flags().Changed("wr") {
					return badUse("of the file of a capture, why tells all stories: leave out what is behind %s", args[0])
				}
				return whyFile(cmd, args[0])
			}
			qpn, err := qpnOf(args)
			if err != nil {
				return err
			}
			return whyHost(cmd, args[0], qpn, work)
		},
	}
	cmd.Flags().StringVar(&work, "wr", "", "tell of one work request: its wr_id, or else its number among the posts, like 17 or 0x65 (default: of the queue pair)")
	listFlags(cmd)
	return cmd
}

// qpnOf returns the number of the queue pair among the arguments; 0 if there is none.
func qpnOf(args []string) (uint32, error) {
	if len(args) < 2 {
		return 0, nil
	}
	qpn, err := strconv.ParseUint(args[1], 0, 24)
	if err != nil || qpn == 0 {
		return 0, badUse("%q is no queue pair number: give one of `rdmalab qps %s`, such as 0x2f81", args[1], args[0])
	}
	return uint32(qpn), nil
}

// whyHost tells of a queue pair of a host, or of one work request.
func whyHost(cmd *cobra.Command, host string, qpn uint32, work string) error {
	choose := func(list []hostd.QPObject) *hostd.QPObject { return why.Choose(list, qpn) }
	var id uint64
	if work != "" {
		var err error
		if id, err = strconv.ParseUint(work, 0, 64); err != nil {
			return badUse("--wr %q: give the wr_id of a work request, or its number, like 17 or 0x65", work)
		}
		if qpn == 0 {
			choose = func(list []hostd.QPObject) *hostd.QPObject { return why.ChooseWork(list, id) }
		}
	}
	r, err := openRack(cmd)
	if err != nil {
		return err
	}
	if err := r.CheckHost(host); err != nil {
		return err
	}
	v, err := viewOf(cmd.Context(), r, host, choose)
	if err == nil && v.Own.QP == nil {
		err = noQP(host, qpn, work)
	}
	if err != nil {
		return err
	}
	if work != "" {
		w := why.WorkOf(v.Own.QP, id)
		if w == nil {
			return fmt.Errorf("queue pair %#x of %s has noted nothing of work request %s: it had no trouble, newer cases have replaced it, or it was flushed behind one that failed; `rdmalab why %s %#x` has the newest cases",
				v.Own.QP.QPN, host, work, host, v.Own.QP.QPN)
		}
		v = why.Narrow(v, w)
	}
	return show(cmd, why.Tell(v), printStory)
}

// noQP is the error if a host has no queue pair to tell of.
func noQP(host string, qpn uint32, work string) error {
	switch {
	case qpn != 0:
		return fmt.Errorf("%s has no queue pair %#x, and remembers none; `rdmalab qps %s` lists them", host, qpn, host)
	case work != "":
		return fmt.Errorf("no queue pair of %s has noted anything of work request %s; `rdmalab qps %s` lists them", host, work, host)
	}
	return fmt.Errorf("no queue pair of %s has sent anything again, refused anything or failed; `rdmalab qps %s` lists them", host, host)
}

// viewOf asks the host, its peer and the switch about the queue pair that choose returns. Without one, the
// view has no queue pair.
func viewOf(ctx context.Context, r *rack.Rack, host string, choose func([]hostd.QPObject) *hostd.QPObject) (v why.View, err error) {
	var own hostd.Objects
	if err := ask(ctx, r.Control(host), host, http.MethodGet, hostd.PathQPs, nil, &own); err != nil {
		return v, err
	}
	q := choose(own.QPs)
	v.Own = why.Side{Host: host, QP: q}
	if q == nil || q.PeerQPN == 0 {
		return v, nil
	}
	v.Peer.Host = r.Spec.PeerName(q.Peer)
	ctx, cancel := context.WithTimeout(ctx, whyWait)
	defer cancel()
	if r.CheckHost(v.Peer.Host) != nil {
		v.Peer.Trouble = "it is no host of the rack"
	} else {
		var peer hostd.Objects
		if err := ask(ctx, r.Control(v.Peer.Host), v.Peer.Host, http.MethodGet, hostd.PathQPs, nil, &peer); err != nil {
			v.Peer.Trouble = err.Error()
		}
		v.Peer.QP = why.PeerOf(peer.QPs, q)
	}
	v.Packets = keptPackets(ctx, r, q)
	v.Decided = decidedOn(ctx, r, &v)
	v.Faults = faultsOn(ctx, r, host, v.Peer.Host)
	v.Stalls = stallsOn(ctx, r, append(r.Spec.SwitchNames(), host, v.Peer.Host)...)
	return v, nil
}

// faultsOn returns the fault rules on the links of two hosts, and on trunks, that have hit packets. A
// switch that does not answer has none.
func faultsOn(ctx context.Context, r *rack.Rack, hosts ...string) (out []why.Fault) {
	var all []fault.Status
	for _, name := range r.Spec.SwitchNames() {
		var own []fault.Status
		if r.Control(name).Call(ctx, http.MethodGet, "/faults", nil, &own) == nil {
			all = append(all, own...)
		}
	}
	for _, f := range all {
		if _, trunk := r.Spec.TrunkNamed(f.Link); f.Hits > 0 && (trunk || slices.Contains(hosts, f.Link)) {
			out = append(out, why.Fault{Text: fmt.Sprintf("%s (%v)", f.ID, f.Rule), Hits: f.Hits, Link: f.Link, Dir: f.Dir})
		}
	}
	return out
}

// decidedOn returns what the programs of the switches have decided about packets between the two ends.
func decidedOn(ctx context.Context, r *rack.Rack, v *why.View) (out []why.Decision) {
	names := r.Spec.Names()
	for _, name := range r.Spec.SwitchNames() {
		var own switchd.Decisions
		if r.Control(name).Call(ctx, http.MethodGet, switchd.PathDecisions, nil, &own) != nil {
			continue // a switch that does not answer has none
		}
		for _, d := range own.List {
			to := names.Of(d.Dst)
			ours, peers := d.DestQPN == v.Own.QP.QPN && to == v.Own.Host, d.DestQPN == v.Own.QP.PeerQPN && to == v.Peer.Host
			if !ours && !peers {
				continue
			}
			out = append(out, why.Decision{
				At: d.At, Switch: name, Program: d.Program, Rule: d.Rule, Reason: d.Reason, Opcode: d.Opcode, PSN: d.PSN, DestQPN: d.DestQPN, From: d.Host, Packets: d.Packets,
			})
		}
	}
	slices.SortStableFunc(out, func(a, b why.Decision) int { return a.At.Compare(b.At) })
	return out
}

// maxKeptPackets bounds the packets of a story.
const maxKeptPackets = 64

// keptPackets returns the packets of a connection that the switches have dropped or changed, if they keep
// their last packets. Their absence is no error.
func keptPackets(ctx context.Context, r *rack.Rack, q *hostd.QPObject) (out []why.Packet) {
	for _, name := range r.Spec.SwitchNames() {
		out = append(out, keptBy(ctx, r, name, q)...)
	}
	slices.SortStableFunc(out, func(a, b why.Packet) int { return a.At.Compare(b.At) })
	return out[max(0, len(out)-maxKeptPackets):]
}

// keptBy is keptPackets for one switch.
func keptBy(ctx context.Context, r *rack.Rack, name string, q *hostd.QPObject) (out []why.Packet) {
	stream, err := r.Control(name).Stream(ctx, http.MethodGet, "/past", nil)
	if err != nil {
		return nil
	}
	defer stream.Close() // the stream was only read, so its error does not matter
	d, err := dump.New(io.Discard, dump.Config{Each: func(p *dump.Record) error {
		n := uint32(p.Frame.BTH.DestQP)
		if len(p.Comments) == 0 || p.Verdict == dump.Other || n != q.QPN && n != q.PeerQPN {
			return nil
		}
		out = append(out, why.Packet{
			At: time.Unix(0, p.Time), PSN: uint32(p.Frame.BTH.PSN), Opcode: opcodeText(p.Frame.BTH.Opcode, p), DestQPN: n, Link: p.Name,
			Comment: strings.Join(p.Comments, "; "),
		})
		return nil
	}})
	if err != nil {
		return nil
	}
	_ = d.Dump("", stream) // a capture that ends early has the packets that were read
	if n := len(out); n > maxKeptPackets {
		out = out[n-maxKeptPackets:]
	}
	return out
}

func opcodeText(op wire.Opcode, p *dump.Record) string {
	if op == wire.RCAck && !p.Frame.AETH.Syndrome.IsAck() {
		return p.Frame.AETH.Syndrome.String()
	}
	return op.String()
}

func printStory(out io.Writer, s why.Story) error {
	var b strings.Builder
	fmt.Fprintln(&b, s.Title)
	if len(s.Events) > 0 {
		fmt.Fprintln(&b)
	}
	for i, e := range s.Events {
		at := e.At.Format("15:04:05.000000")
		if i > 0 {
			at = "+" + max(e.At.Sub(s.Events[0].At), 0).Round(time.Microsecond).String()
		}
		fmt.Fprintf(&b, "  %-15s  %-8s  %s\n", at, e.Host, e.Text)
	}
	fmt.Fprintln(&b)
	for _, x := range s.Because {
		fmt.Fprintln(&b, x)
	}
	if len(s.Look) > 0 {
		fmt.Fprintln(&b, "\nLook at:")
	}
	for _, x := range slices.Compact(slices.Sorted(slices.Values(s.Look))) {
		fmt.Fprintf(&b, "  %s\n", x)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
