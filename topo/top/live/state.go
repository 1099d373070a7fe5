package live

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/rackapi"
	"github.com/rdmalab/rdmalab/topo/top"
)

// State returns the state of the reading as the API tells it, with Lists. was is the state before, or nil; the rates of
// counters are those since then.
func (g *Reading) State(was *rackapi.Rack) *rackapi.Rack {
	s := g.Sample()
	return g.stateOf(&s, was)
}

// stateOf is State of what was collected.
func (g *Reading) stateOf(s *top.Sample, was *rackapi.Rack) *rackapi.Rack {
	r := &rackapi.Rack{
		Name: s.Rack, Time: s.At.UnixMilli(), Present: true, State: s.State, Program: s.Program, Uptime: s.Uptime.Seconds(), Slow: g.Status.Slow,
		Partition: s.Partition, Captures: s.Captures, Counters: counters(s.Switch.Counters),
	}
	ips := make(map[string]string)
	for i := range g.Status.Hosts {
		if n := &g.Status.Hosts[i]; n.IPv4.IsValid() {
			ips[n.Name] = n.IPv4.String()
		}
	}
	before := make(map[string]*rackapi.Node)
	seconds := 0.0
	if was != nil && was.Present {
		seconds = float64(r.Time-was.Time) / 1000
		for i := range was.Nodes {
			before[was.Nodes[i].Name] = &was.Nodes[i]
		}
	}
	for i := range s.Nodes {
		n := nodeState(&s.Nodes[i], before[s.Nodes[i].Name], seconds)
		n.IPv4 = ips[n.Name]
		for j := range s.QPs {
			if s.QPs[j].Host != n.Name {
				continue
			}
			n.QueuePairs++
			if s.QPs[j].State == "ERR" || s.QPs[j].State == "SQE" {
				n.FailedPairs++
			}
		}
		r.Nodes = append(r.Nodes, n)
	}
	for _, f := range s.Faults {
		r.Faults = append(r.Faults, rackapi.Fault(f))
	}
	for _, t := range s.Switch.Tables {
		r.Tables = append(r.Tables, rackapi.Table(t))
	}
	for i := range s.Switch.Shared {
		c := &s.Switch.Shared[i]
		r.Connections = append(r.Connections, rackapi.Connection{
			Name: c.Name, State: c.State, InFlight: c.Open, Most: c.Most, Queued: c.Queued, Tries: c.Tries, NextPSN: uint32(c.NextPSN),
		})
	}
	r.Detail = true
	for i := range s.QPs {
		q := &s.QPs[i]
		r.Lists.QueuePairs = append(r.Lists.QueuePairs, rackapi.QueuePair{
			Host: q.Host, QPN: uint32(q.QPN), Type: q.Type, State: q.State, Peer: q.Peer, PeerQPN: uint32(q.PeerQPN), SendPSN: uint32(q.SendPSN),
			RecvPSN: uint32(q.RecvPSN), SendQueued: q.SendQueued, RecvQueued: q.RecvQueued, Resent: q.Retrans,
		})
	}
	for _, w := range s.Switch.Words {
		r.Lists.Words = append(r.Lists.Words, rackapi.Word(w))
	}
	for _, k := range s.Switch.Keys {
		r.Lists.Keys = append(r.Lists.Keys, rackapi.Key(k))
	}
	return r
}

func nodeState(n *top.Node, was *rackapi.Node, seconds float64) rackapi.Node {
	out := rackapi.Node{
		Name: n.Name, Role: n.Role, State: n.State, Link: n.Link, UpPackets: n.UpPackets, UpBits: n.UpBits, DownPackets: n.DownPackets,
		DownBits: n.DownBits, Drops: n.Dropped, Resent: n.Retrans, Faults: n.Faults, Clients: n.Clients, Ops: n.Ops, P99: n.P99,
		Stores: counters(n.Columns),
	}
	if was != nil {
		out.DropsRate, out.ResentRate = rate(was.Drops, out.Drops, seconds), rate(was.Resent, out.Resent, seconds)
	}
	return out
}

// rate is 0 for a counter that has become smaller, because its process was restarted.
func rate(was, now uint64, seconds float64) uint64 {
	if now < was || seconds <= 0 {
		return 0
	}
	return uint64(float64(now-was)/seconds + 0.5)
}

func counters(list []top.Counter) (out []rackapi.Counter) {
	for _, c := range list {
		out = append(out, rackapi.Counter{Name: c.Name, Value: c.Value})
	}
	return out
}

// SampleOf returns what the live view shows of a state, whichever way it has come. Without Detail, lists are empty.
func SampleOf(r *rackapi.Rack) top.Sample {
	s := top.Sample{At: time.UnixMilli(r.Time), Rack: r.Name}
	if !r.Present {
		s.Gone = r.Gone
		if s.Gone == "" {
			s.Gone = "there is no such rack"
		}
		return s
	}
	s.State, s.Program, s.Partition, s.Captures = r.State, r.Program, r.Partition, r.Captures
	s.Uptime = time.Duration(r.Uptime * float64(time.Second))
	for i := range r.Nodes {
		n := &r.Nodes[i]
		s.Nodes = append(s.Nodes, top.Node{
			Name: n.Name, Role: n.Role, State: n.State, Link: n.Link, UpPackets: n.UpPackets, UpBits: n.UpBits, DownPackets: n.DownPackets,
			DownBits: n.DownBits, Dropped: n.Drops, Retrans: n.Resent, Faults: n.Faults, Clients: n.Clients, Ops: n.Ops, P99: n.P99,
			Columns: countersOf(n.Stores),
		})
	}
	for i := range r.Lists.QueuePairs {
		q := &r.Lists.QueuePairs[i]
		s.QPs = append(s.QPs, top.QP{
			Host: q.Host, QPN: wire.QPN(q.QPN), Type: q.Type, State: q.State, Peer: q.Peer, PeerQPN: wire.QPN(q.PeerQPN), SendPSN: wire.PSN(q.SendPSN),
			RecvPSN: wire.PSN(q.RecvPSN), SendQueued: q.SendQueued, RecvQueued: q.RecvQueued, Retrans: q.Resent,
		})
	}
	for _, f := range r.Faults {
		s.Faults = append(s.Faults, top.Fault(f))
	}
	sw := &s.Switch
	sw.Counters = countersOf(r.Counters)
	for _, t := range r.Tables {
		sw.Tables = append(sw.Tables, top.Table(t))
	}
	for i := range r.Connections {
		c := &r.Connections[i]
		sw.Shared = append(sw.Shared, top.Shared{
			Name: c.Name, State: c.State, Open: c.InFlight, Most: c.Most, Queued: c.Queued, Tries: c.Tries, NextPSN: wire.PSN(c.NextPSN),
		})
	}
	for _, w := range r.Lists.Words {
		sw.Words = append(sw.Words, top.Word(w))
	}
	for _, k := range r.Lists.Keys {
		sw.Keys = append(sw.Keys, top.Key(k))
	}
	return s
}

func countersOf(list []rackapi.Counter) (out []top.Counter) {
	for _, c := range list {
		out = append(out, top.Counter{Name: c.Name, Value: c.Value})
	}
	return out
}
