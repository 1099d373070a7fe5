package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

func switchConnectionsCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "connections",
		Short: "Show the reliable connections that the switch tracks, and its shared connections",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listConnections(cmd, all)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also show the other flow of each connection, and connections that have ended")
	listFlags(cmd)
	cmd.AddCommand(adoptCmd(), dropCmd())
	return cmd
}

// listConnections shows the switch's connections and flows. If all is true, it shows both flows of
// each connection, and connections that have ended.
func listConnections(cmd *cobra.Command, all bool) error {
	return listing(cmd, "/connections", func(out io.Writer, names rackfile.Names, r swordbox.Report) error {
		return printConnections(out, names, &r, all)
	})
}

func printConnections(out io.Writer, names rackfile.Names, r *swordbox.Report, all bool) error {
	if len(r.Flows)+len(r.Dialed)+len(r.Former) == 0 {
		_, err := fmt.Fprintln(out, "no reliable connection has been seen")
		return err
	}
	if err := printShared(out, names, r); err != nil {
		return err
	}
	if err := printFormer(out, names, r); err != nil {
		return err
	}
	moved := make(map[uint32]handler.Flow)
	for _, m := range r.Handlers {
		for _, row := range m.Flows {
			moved[row.ID] = row
		}
	}
	rows := slices.DeleteFunc(slices.Clone(r.Flows), func(i conntrack.Info) bool { return !all && !shown(r, &i, moved) })
	const (
		none   = "no connection between hosts is alive"
		header = "FROM\tQP\tTO\tQP\tSTATE\tMTU\tNEXT PSN\tMOVED\tSHIFT\tIDLE"
	)
	return handler.WriteTable(out, rows, none, header, func(row *conntrack.Info) string {
		next, mtu := either(row.Synced, psnText(row.Expected), "?"), either(row.MTU != 0, strconv.Itoa(row.MTU), "?")
		count, shift, state := "-", "-", row.State.String()
		if m, ok := moved[row.ID]; ok {
			count, shift, state = strconv.FormatUint(m.Moved, 10), strconv.Itoa(m.Shift), m.State
		}
		return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%v", names.Of(row.Requester), qpText(row.ReqQPN),
			names.Of(row.Responder), qpText(row.RespQPN), state, mtu, next, count, shift, idleText(row.Idle))
	})
}

// shown reports whether a flow is shown. Of the two flows of an open connection, only one is shown:
// the flow with moved requests; otherwise the flow to a server to which the switch has connections;
// otherwise the flow whose requests were answered.
func shown(r *swordbox.Report, row *conntrack.Info, moved map[uint32]handler.Flow) bool {
	switch {
	case row.State == conntrack.Closed:
		return false
	case row.Peer < 0:
		return true
	}
	weight := func(i *conntrack.Info) (w int) {
		if _, ok := moved[i.ID]; ok {
			w += 4
		}
		for _, d := range r.Dialed {
			if d.Server == i.Responder {
				w += 2
			}
		}
		if i.HasAcked {
			w++
		}
		return w
	}
	for i := range r.Flows {
		if p := &r.Flows[i]; int(p.ID) == row.Peer {
			a, b := weight(row), weight(p)
			return a > b || a == b && row.ID < p.ID
		}
	}
	return true
}

// printShared prints the switch's connections, and the connections that the switch borrows from
// clients.
func printShared(out io.Writer, names rackfile.Names, r *swordbox.Report) error {
	carried := make(map[switchconn.Key]handler.Shared)
	var borrowed []handler.Shared
	for _, m := range r.Handlers {
		for _, s := range m.Shared {
			if names.Of(s.Owner) == "switch" || s.OwnQPN == 0 {
				carried[switchconn.Key{Server: s.Server, Shard: s.Shard}] = s
			} else {
				borrowed = append(borrowed, s)
			}
		}
	}
	if len(r.Dialed)+len(borrowed) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SHARED\tSTATE\tGEN\tOF\tQP\tSERVER QP\tNEXT PSN\tOPEN\tQUEUE\tTRIES") // Flush reports errors
	var notes strings.Builder
	line := func(name, state, generation, owner string, s handler.Shared) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d/%d\t%d\t%d\n", name, state, generation, owner, qpText(s.OwnQPN), qpText(s.ServerQPN),
			psnText(s.NextPSN), s.Outstanding, s.Ring, s.Queued, s.Retries)
		if s.Waits != nil {
			waiting(&notes, names, name, &s)
		}
	}
	for _, d := range r.Dialed {
		name := fmt.Sprintf("%s/%d", names.Of(d.Server), d.Shard)
		s, ok := carried[d.Key]
		switch {
		case d.Shared == nil:
			fmt.Fprintf(w, "%s\t%v\t-\tswitch\t-\t-\t-\t-\t-\t%d\n", name, d.State, d.Attempts)
			if d.Error != "" {
				fmt.Fprintf(&notes, "%s: %s\n", name, d.Error)
			}
		case ok && s.OwnQPN == d.Shared.OwnQPN:
			line(name, d.State.String(), fmt.Sprint(d.Shared.Generation), "switch", s)
		default: // no request was moved to it
			idle := handler.Shared{OwnQPN: d.Shared.OwnQPN, ServerQPN: d.Shared.ServerQPN, NextPSN: d.Shared.SendPSN}
			line(name, d.State.String(), fmt.Sprint(d.Shared.Generation), "switch", idle)
		}
	}
	for _, s := range borrowed {
		line(fmt.Sprintf("%s/%d", names.Of(s.Server), s.Shard), s.State, "-", names.Of(s.Owner), s)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, notes.String())
	return err
}

// waiting writes the oldest unanswered request of a shared connection, and the clients that wait
// for its responses.
func waiting(b *strings.Builder, names rackfile.Names, name string, s *handler.Shared) {
	fmt.Fprintf(b, "%s waits for PSN %s since %v:\n  %s of %s, queue pair %s, its PSN %s\n", name, psnText(s.Waits.PSN), idleText(s.Waits.Age),
		s.Waits.Op, names.Of(s.Waits.Client), qpText(s.Waits.ClientQPN), psnText(s.Waits.ClientPSN))
	var who []string
	const most = 3
	for i, c := range s.Waiters {
		if i == most {
			who = append(who, fmt.Sprintf("and %d more", len(s.Waiters)-most))
			break
		}
		who = append(who, fmt.Sprintf("%s %s (%d)", names.Of(c.Client), qpText(c.QPN), c.Entries))
	}
	if len(who) > 0 {
		fmt.Fprintf(b, "  with it wait %s\n", strings.Join(who, ", "))
	}
}

func printFormer(out io.Writer, names rackfile.Names, r *swordbox.Report) error {
	if len(r.Former) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "BROKEN BY RESTART\tQP\tTO\tQP\tOLDEST PSN") // Flush reports errors
	for _, f := range r.Former {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", names.Of(f.Client), qpText(f.ClientQPN), names.Of(f.Server), qpText(f.ServerQPN), psnText(f.Oldest))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

func idleText(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(100 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(100 * time.Nanosecond)
}

type adoptFlags struct {
	shard, mtu, depth                   int
	serverQPN, ownQPN, sendPSN, recvPSN string
	mac                                 string
}

func adoptCmd() *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:               "adopt SERVER",
		Short:             "Give the switch a shared connection that was set up by hand",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := f.adopted(args[0])
			if err != nil {
				return err
			}
			var info switchconn.Info
			if err := askBox(cmd, http.MethodPost, "/connections", a, &info); err != nil {
				return err
			}
			return say(cmd, "the switch has connection %s/%d now", args[0], info.Shard)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.shard, "shard", 0, "number of the shared connection to the server: from 0 to N-1 if the rules have shards=N (default 0)")
	fs.StringVar(&f.serverQPN, "server-qpn", "", "number of the server's queue pair, decimal or 0x… (required)")
	fs.StringVar(&f.ownQPN, "qpn", "", "queue pair number of the switch, to which the server's queue pair sends, decimal or 0x… (required)")
	fs.StringVar(&f.sendPSN, "send-psn", "0", "first PSN that the server expects, decimal or 0x…")
	fs.StringVar(&f.recvPSN, "recv-psn", "0", "first PSN that the server sends, decimal or 0x…")
	fs.IntVar(&f.mtu, "mtu", 1024, "path MTU in bytes: 256, 512, 1024, 2048 or 4096")
	must(cmd.MarkFlagRequired("server-qpn"))
	must(cmd.MarkFlagRequired("qpn"))
	complete(cmd, "mtu", mtus...)
	fs.IntVar(&f.depth, "depth", 1, "how many READs and atomics in flight the server's queue pair accepts, 1 to 255")
	fs.StringVar(&f.mac, "mac", "", "MAC address of the server, if the server is not a host of the rack")
	return cmd
}

func (f *adoptFlags) adopted(server string) (a swordbox.Adopted, err error) {
	a = swordbox.Adopted{Server: server, Shard: f.shard, MTU: f.mtu, Depth: f.depth}
	var n [4]uint32
	for i, t := range []struct{ flag, text string }{
		{"--server-qpn", f.serverQPN}, {"--qpn", f.ownQPN}, {"--send-psn", f.sendPSN}, {"--recv-psn", f.recvPSN},
	} {
		if n[i], err = parse24(t.text); err != nil {
			return a, badUse("%s: %w", t.flag, err)
		}
	}
	a.ServerQPN, a.OwnQPN, a.SendPSN, a.RecvPSN = wire.QPN(n[0]), wire.QPN(n[1]), wire.PSN(n[2]), wire.PSN(n[3])
	if f.mac != "" {
		m, err := wire.ParseMAC(f.mac)
		if err != nil {
			return a, badUse("--mac: %w", err)
		}
		a.MAC = &m
	}
	return a, nil
}

func dropCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "drop SERVER SHARD",
		Short:             "End a shared connection of the switch",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: arguments(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "/connections/" + url.PathEscape(args[0]) + "/" + url.PathEscape(args[1])
			if err := askBox(cmd, http.MethodDelete, path, nil, nil); err != nil {
				return err
			}
			return say(cmd, "connection %s/%s is ended", args[0], args[1])
		},
	}
}
