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

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/why"
)

// whyWait bounds the questions to the peer and to the switch: why answers also if these are silent.
const whyWait = 2 * time.Second

func whyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why HOST [QPN]",
		Short: "Tell why a queue pair failed or healed, from the post to the completion",
		Long: "why tells in sentences why a queue pair of a host has failed, or what was lost and sent again: from what this NIC has\n" +
			"noted, from what the peer's NIC has noted, and from the last packets of the switch if it keeps them (RDMALAB_KEEP, see\n" +
			"`rdmalab bundle --help`). First come the events in the order of time, each with its host, then the answer, then what to\n" +
			"look at. A NIC keeps the newest 16 cases of each queue pair, also when the queue pair is gone.\n\n" +
			"QPN is the number of the queue pair, as `rdmalab qps HOST` lists it. Without it, why tells of the queue pair of the host\n" +
			"that had trouble last.",
		Example: "  rdmalab why cn0\n" +
			"  rdmalab why cn0 0x2f81\n" +
			"  rdmalab why cn0 -o json | jq -r '.because[]'",
		SuggestFor:        []string{"explain"},
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			qpn := uint64(0)
			if len(args) > 1 {
				var err error
				if qpn, err = strconv.ParseUint(args[1], 0, 24); err != nil || qpn == 0 {
					return badUse("%q is no queue pair number: give one of `rdmalab qps %s`, such as 0x2f81", args[1], args[0])
				}
			}
			r, err := openRack(cmd)
			if err != nil {
				return err
			}
			if err := r.CheckHost(args[0]); err != nil {
				return err
			}
			v, err := viewOf(cmd.Context(), r, args[0], uint32(qpn))
			if err != nil {
				return err
			}
			return show(cmd, why.Tell(v), printStory)
		},
	}
	outputFlag(cmd)
	return cmd
}

// viewOf asks the host, its peer and the switch.
func viewOf(ctx context.Context, r *rack.Rack, host string, qpn uint32) (v why.View, err error) {
	var own hostd.Objects
	if err := ask(ctx, r.Control(host), host, http.MethodGet, hostd.PathQPs, nil, &own); err != nil {
		return v, err
	}
	q := why.Choose(own.QPs, qpn)
	switch {
	case q == nil && qpn == 0:
		return v, fmt.Errorf("no queue pair of %s has sent anything again, refused anything or failed; `rdmalab qps %s` lists them", host, host)
	case q == nil:
		return v, fmt.Errorf("%s has no queue pair %#x, and remembers none; `rdmalab qps %s` lists them", host, qpn, host)
	}
	v.Own = why.Side{Host: host, QP: q}
	if q.PeerQPN == 0 {
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
	v.Faults = faultsOn(ctx, r, host, v.Peer.Host)
	v.Stalls = stallsOn(ctx, r, rackfile.SwitchName, host, v.Peer.Host)
	return v, nil
}

// faultsOn returns the fault rules on the links of two hosts that have hit packets. A switch that does
// not answer has none.
func faultsOn(ctx context.Context, r *rack.Rack, hosts ...string) (out []why.Fault) {
	var all []fault.Status
	if err := r.Control(rackfile.SwitchName).Call(ctx, http.MethodGet, "/faults", nil, &all); err != nil {
		return nil
	}
	for _, f := range all {
		if f.Hits > 0 && slices.Contains(hosts, f.Link) {
			out = append(out, why.Fault{Text: fmt.Sprintf("%s (%v)", f.ID, f.Rule), Hits: f.Hits})
		}
	}
	return out
}

// maxKeptPackets bounds the packets of a story.
const maxKeptPackets = 64

// keptPackets returns the packets of a connection that the switch has dropped or changed, if it keeps
// its last packets. Their absence is no error.
func keptPackets(ctx context.Context, r *rack.Rack, q *hostd.QPObject) (out []why.Packet) {
	stream, err := r.Control(rackfile.SwitchName).Stream(ctx, http.MethodGet, "/past", nil)
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
