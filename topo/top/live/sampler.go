// Package live runs the view of package top on a real rack: it takes samples through the control
// sockets of the daemons, runs the commands of keys as processes of this program, and draws on the
// terminal.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
	"github.com/rdmalab/rdmalab/topo/top"
)

// askWait bounds how long a sample waits for a daemon.
const askWait = 2 * time.Second

// farWait does so of a rack on several machines, on which programs are started by ssh.
const farWait = 10 * time.Second

// Reading is what the daemons of a rack have answered at one moment. The zero value of an answer
// means that its daemon does not answer.
type Reading struct {
	At     time.Time
	Rack   *rackfile.Rack
	Paths  rackfile.Paths // of the control sockets
	Status rack.Status
	// Hosts are the status of the hosts' daemons, in the order of Status.Hosts.
	Hosts    []hostd.Status
	Switch   switchd.Status
	Program  switchd.ProgramInfo
	Counters switchd.Counters
	Faults   []fault.Status
	Tables   []handler.Table
	// Groups are of a switch program that counts; Report and Keys are of program swordbox alone.
	Groups []handler.Group
	Report swordbox.Report
	Keys   []cloversteer.Key
	// Trunks are the ends of the trunks to other machines.
	Trunks []TrunkEnd
}

// TrunkEnd is what a switch counts and measures of a trunk to another machine.
type TrunkEnd struct {
	Trunk, Switch string
	trunk.Stats
}

// Read asks the daemons of the rack called name. The error is that of the rack: there is none, or it
// cannot be inspected. A daemon that does not answer within two seconds is no error.
func Read(ctx context.Context, name string) (*Reading, error) {
	g := &Reading{At: time.Now()}
	r, err := machines.OpenRack(ctx, name, func(error) {}) // the status has what is lost
	if err != nil {
		return nil, err
	}
	wait := askWait
	if len(r.Spec.Machines) > 0 {
		wait = farWait
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	g.Rack, g.Paths = r.Spec, r.Paths
	var wg sync.WaitGroup
	names := r.Spec.SwitchNames()
	parts := make([]Reading, len(names))
	for i, name := range names {
		wg.Go(func() { parts[i].ask(ctx, r.Control(name)) })
	}
	g.Status, err = r.Status(ctx)
	wg.Wait()
	if err != nil {
		return nil, err
	}
	for i := range parts {
		g.add(names[i], &parts[i])
	}
	g.decode()
	return g, nil
}

// add adds what one switch has answered. The program and the counters that are not of ports are those
// of the first.
func (g *Reading) add(name string, one *Reading) {
	for i := range one.Counters.Ports {
		if p := &one.Counters.Ports[i]; p.Trunk != nil {
			g.Trunks = append(g.Trunks, TrunkEnd{p.Host, name, *p.Trunk})
		}
	}
	if g.Program.Name == "" {
		g.Program, g.Counters = one.Program, one.Counters
		g.Counters.Ports = nil
	}
	g.Counters.Ports = append(g.Counters.Ports, one.Counters.Ports...)
	g.Faults, g.Tables = append(g.Faults, one.Faults...), append(g.Tables, one.Tables...)
	g.Groups, g.Keys = append(g.Groups, one.Groups...), append(g.Keys, one.Keys...)
	g.Report.Handlers, g.Report.Dialed = append(g.Report.Handlers, one.Report.Handlers...), append(g.Report.Dialed, one.Report.Dialed...)
}

// decode reads what the daemons have answered to the request for their status. The status of another
// version is used as far as it can be decoded.
func (g *Reading) decode() {
	g.Hosts = make([]hostd.Status, len(g.Status.Hosts))
	for i := range g.Hosts {
		if d := g.Status.Hosts[i].Daemon; len(d) > 0 {
			_ = json.Unmarshal(d, &g.Hosts[i])
		}
	}
	if d := g.Status.Switch.Daemon; len(d) > 0 {
		_ = json.Unmarshal(d, &g.Switch)
	}
	for i := 1; i < len(g.Status.Switches); i++ {
		var other switchd.Status
		if d := g.Status.Switches[i].Daemon; len(d) > 0 && json.Unmarshal(d, &other) == nil {
			g.Switch.Ports = append(g.Switch.Ports, other.Ports...)
		}
	}
}

// Sample takes a sample of the rack called name. If a daemon does not answer, the fields that it
// would fill stay empty. Gone is set if there is no rack.
func Sample(ctx context.Context, name string) top.Sample {
	g, err := Read(ctx, name)
	if err != nil {
		return top.Sample{At: time.Now(), Rack: name, Gone: err.Error()}
	}
	return SampleOf(g.State(nil))
}

// Sample collects what the live view shows of the reading, from which State makes the types of the API.
func (g *Reading) Sample() top.Sample {
	s := top.Sample{At: g.At, Rack: g.Status.Name, State: string(g.Status.State), Program: g.Status.Switch.Program}
	names := g.Rack.Names()
	for i := range g.Status.Hosts {
		addHost(&s, &g.Status.Hosts[i], &g.Hosts[i], names)
	}
	switches := g.Status.Switches
	if len(switches) == 0 {
		switches = []rack.NodeStatus{g.Status.Switch}
	}
	for i := range switches {
		s.Nodes = append(s.Nodes, top.Node{Name: switches[i].Name, Role: rackfile.SwitchName, State: string(switches[i].State)})
	}
	g.fill(&s, names)
	return s
}

func addHost(s *top.Sample, n *rack.NodeStatus, d *hostd.Status, names rackfile.Names) {
	s.Nodes = append(s.Nodes, top.Node{
		Name: n.Name, Role: n.Role, State: string(n.State), Link: string(n.Link), Retrans: d.NIC.RetransPkts,
	})
	if c := d.Clients; c != nil {
		one := &s.Nodes[len(s.Nodes)-1]
		one.Clients, one.Ops, one.P99 = c.Count, c.Rate, uint64(c.P99+0.5)
	}
	addColumns(&s.Nodes[len(s.Nodes)-1], d.Stores)
	if t := d.Tear; t != nil {
		s.Faults = append(s.Faults, top.Fault{
			ID: "tear-" + n.Name, State: string(fault.Active),
			Text: fault.Rule{Link: n.Name, Kind: fault.Tear, Probability: t.Probability, Delay: t.Pause, For: t.For}.String(),
		})
	}
	for _, q := range d.QPs {
		peer := q.Peer
		if a, err := netip.ParseAddr(peer); err == nil {
			peer = names.Of(a)
		}
		s.QPs = append(s.QPs, top.QP{
			Host: n.Name, QPN: wire.QPN(q.QPN), Type: q.Type, State: q.State, Peer: peer, PeerQPN: wire.QPN(q.PeerQPN),
			SendPSN: wire.PSN(q.SendPSN), RecvPSN: wire.PSN(q.RecvPSN), SendQueued: q.SendQueued, RecvQueued: q.RecvQueued,
			Retrans: q.RetransPkts,
		})
	}
}

// addColumns adds the columns of the stores that are up on a host. Stores that this program does
// not know are left out.
func addColumns(n *top.Node, list []store.Status) {
	for _, st := range list {
		desc, err := store.Find(st.Store)
		if err != nil {
			continue
		}
		for i, name := range desc.Columns[:min(len(desc.Columns), len(st.Values))] {
			n.Columns = append(n.Columns, top.Counter{Name: name, Value: st.Values[i]})
		}
	}
}

// ask sends the requests other than status to the switch. The fields for requests that were not
// answered stay empty. If the switch runs another program than swordbox, ask leaves out the requests
// that only swordbox answers.
func (g *Reading) ask(ctx context.Context, client *control.Client) {
	for _, q := range []struct {
		path string
		out  any
		box  bool // program swordbox alone answers the request
	}{
		{"/program", &g.Program, false},
		{"/counters", &g.Counters, false},
		{"/faults", &g.Faults, false},
		{"/tables", &g.Tables, false},
		{"/program/counters", &g.Groups, false},
		{"/connections", &g.Report, true},
		{"/lists/keys", &g.Keys, true},
	} {
		if q.box && g.Program.Name != rackfile.ProgramSwordBox {
			continue
		}
		var refused *control.Error // a program without counters
		if err := client.Call(ctx, http.MethodGet, q.path, nil, q.out); err != nil && !errors.As(err, &refused) {
			return // the switch's state says why it does not answer
		}
	}
}

func (g *Reading) fill(s *top.Sample, names rackfile.Names) {
	st := &g.Switch
	s.Uptime, s.Partition, s.Captures = st.Uptime, st.Partition, st.Captures
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for j := range st.Ports {
			if p := &st.Ports[j]; p.Host == n.Name {
				n.UpPackets, n.UpBits, n.DownPackets, n.DownBits = p.RxPacketRate, p.RxBitRate, p.TxPacketRate, p.TxBitRate
				n.Faults = p.Faults
			}
		}
		for j := range g.Counters.Ports {
			if p := &g.Counters.Ports[j]; p.Host == n.Name {
				n.Dropped = p.RxRing
				for _, d := range p.Drops {
					n.Dropped += d
				}
			}
		}
	}
	for _, f := range g.Faults {
		if f.State != fault.Expired {
			s.Faults = append(s.Faults, top.Fault{ID: f.ID, State: string(f.State), Text: f.Rule.String(), Hits: f.Hits})
		}
	}
	for _, t := range g.Tables {
		s.Switch.Tables = append(s.Switch.Tables, top.Table{Name: t.Name, Used: t.Used, Max: t.Max})
	}
	g.count(&s.Switch)
	g.own(&s.Switch, names)
}

// count adds a few counters of the pipeline, and those counters of the switch program that are not
// 0.
func (g *Reading) count(sw *top.Switch) {
	c := &g.Counters.Switch
	sw.Counters = []top.Counter{
		{Name: "rewritten", Value: c.Rewritten},
		{Name: "emitted", Value: c.Emitted},
		{Name: "held", Value: c.Held},
		{Name: "consumed", Value: c.Consumed},
		{Name: "flooded", Value: c.Flooded},
		{Name: "mac_moves", Value: c.MACMoves},
	}
	for _, group := range g.Groups {
		for _, one := range group.Counters {
			if one.Value > 0 {
				sw.Counters = append(sw.Counters, top.Counter{Name: group.Name + " " + one.Name, Value: one.Value})
			}
		}
	}
}

// own adds to sw the switch's connections, and the words and keys that the switch knows.
func (g *Reading) own(sw *top.Switch, names rackfile.Names) {
	carried := make(map[switchconn.Key]*handler.Shared)
	for i := range g.Report.Handlers {
		m := &g.Report.Handlers[i]
		for j := range m.Shared {
			carried[switchconn.Key{Server: m.Shared[j].Server, Shard: m.Shared[j].Shard}] = &m.Shared[j]
		}
		for _, w := range m.Words {
			sw.Words = append(sw.Words, top.Word{Server: names.Of(w.Server), VA: w.VA, State: w.State, Value: w.Value, Pending: w.Pending})
		}
	}
	for _, k := range g.Keys {
		one := top.Key{Key: k.Key, Reads: k.Reads, Appends: k.Appends, Steered: k.Steered, Rate: k.Rate}
		if k.Tail != nil {
			one.Server, one.VA = names.Of(k.Tail.Server), k.Tail.VA
		}
		sw.Keys = append(sw.Keys, one)
	}
	for _, d := range g.Report.Dialed {
		one := top.Shared{Name: fmt.Sprintf("%s/%d", names.Of(d.Server), d.Shard), State: d.State.String(), Tries: d.Attempts}
		if d.Shared != nil {
			one.NextPSN = d.Shared.SendPSN
		}
		if c := carried[d.Key]; c != nil && d.Shared != nil {
			one.Open, one.Most, one.Queued, one.Tries, one.NextPSN = c.Outstanding, c.Ring, c.Queued, c.Retries, c.NextPSN
			delete(carried, d.Key)
		}
		sw.Shared = append(sw.Shared, one)
	}
	var borrowed []top.Shared
	for k, c := range carried {
		borrowed = append(borrowed, top.Shared{
			Name: fmt.Sprintf("%s/%d", names.Of(k.Server), k.Shard), State: c.State, Open: c.Outstanding, Most: c.Ring,
			Queued: c.Queued, Tries: c.Retries, NextPSN: c.NextPSN,
		})
	}
	slices.SortFunc(borrowed, func(a, b top.Shared) int { return slices.Compare([]byte(a.Name), []byte(b.Name)) })
	sw.Shared = append(sw.Shared, borrowed...)
}
