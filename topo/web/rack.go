package web

import (
	"os"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/top"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

// Rack is the state of a rack at one moment.
type Rack struct {
	Name string `json:"name"`
	// Time is that of the reading, in milliseconds since 1970.
	Time int64 `json:"time"`
	// Present is false if there is no such rack; then Gone says why, and the rest is empty.
	Present bool   `json:"present"`
	Gone    string `json:"gone,omitempty"`
	// Control is true if requests with the token may change the rack.
	Control bool   `json:"control"`
	Version string `json:"version"`
	// State is up, or the state of the worst node.
	State   string  `json:"state,omitempty"`
	Program string  `json:"program,omitempty"`
	Uptime  float64 `json:"uptimeSeconds,omitempty"`
	// Slow is the factor of slow motion, 0 without.
	Slow int `json:"slow,omitempty"`
	// Nodes are the hosts in the order of the rack file, then the switch.
	Nodes     []Node     `json:"nodes,omitempty"`
	Faults    []Fault    `json:"faults,omitempty"`
	Partition [][]string `json:"partition,omitempty"`
	Captures  int        `json:"captures"`
	// Counters and Tables are those of the switch and its program; Connections are the switch's
	// connections.
	Counters    []Counter    `json:"counters,omitempty"`
	Tables      []Table      `json:"tables,omitempty"`
	Connections []Connection `json:"connections,omitempty"`
}

// Node is a host with its link, or the switch. Up is from the host to the switch, Down the other way.
type Node struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	State string `json:"state"`
	Link  string `json:"link,omitempty"`
	IPv4  string `json:"ipv4,omitempty"`
	// Rates of the last full second.
	UpPackets   uint64 `json:"upPacketsPerSecond"`
	UpBits      uint64 `json:"upBitsPerSecond"`
	DownPackets uint64 `json:"downPacketsPerSecond"`
	DownBits    uint64 `json:"downBitsPerSecond"`
	// Drops are frames of the link that the switch or a fault has dropped; Resent are packets that the NIC
	// has sent again. The rates are those since the reading before.
	Drops       uint64 `json:"drops"`
	Resent      uint64 `json:"resent"`
	DropsRate   uint64 `json:"dropsPerSecond"`
	ResentRate  uint64 `json:"resentPerSecond"`
	QueuePairs  int    `json:"queuePairs"`
	FailedPairs int    `json:"failedQueuePairs"`
	// Faults are the names of the fault rules that are in force on the link.
	Faults  []string  `json:"faults,omitempty"`
	Clients int       `json:"clients,omitempty"`
	Ops     uint64    `json:"operationsPerSecond,omitempty"`
	P99     uint64    `json:"p99Microseconds,omitempty"`
	Stores  []Counter `json:"stores,omitempty"`
}

// Fault is a fault rule that is in force or has ended.
type Fault struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Text  string `json:"text"` // as inject takes it
	Hits  uint64 `json:"hits"`
}

// Counter is a number that grows.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	Help  string `json:"help,omitempty"`
}

// Table says how full a table of the switch is.
type Table struct {
	Name string `json:"name"`
	Used int    `json:"used"`
	Max  int    `json:"max"`
}

// Connection is a switch's connection to a memory server.
type Connection struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	InFlight int    `json:"inFlight"`
	Most     int    `json:"most"`
	Queued   int    `json:"queued"`
}

// gone is the state of a rack that is not there.
func gone(name string, err error) *Rack {
	return &Rack{Name: name, Time: time.Now().UnixMilli(), Gone: err.Error()}
}

// rackOf makes the state of a reading; was is the state before, or nil.
func rackOf(g *live.Reading, was *Rack) *Rack {
	s := g.Sample()
	r := &Rack{
		Name: s.Rack, Time: s.At.UnixMilli(), Present: true, State: s.State, Program: s.Program, Uptime: s.Uptime.Seconds(), Slow: g.Status.Slow,
		Partition: s.Partition, Captures: s.Captures, Counters: counters(s.Switch.Counters),
	}
	ips := make(map[string]string)
	for i := range g.Status.Hosts {
		if n := &g.Status.Hosts[i]; n.IPv4.IsValid() {
			ips[n.Name] = n.IPv4.String()
		}
	}
	before := make(map[string]*Node)
	seconds := 0.0
	if was != nil && was.Present {
		seconds = float64(r.Time-was.Time) / 1000
		for i := range was.Nodes {
			before[was.Nodes[i].Name] = &was.Nodes[i]
		}
	}
	for i := range s.Nodes {
		n := nodeOf(&s.Nodes[i], before[s.Nodes[i].Name], seconds)
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
		r.Faults = append(r.Faults, Fault(f))
	}
	for _, t := range s.Switch.Tables {
		r.Tables = append(r.Tables, Table(t))
	}
	for i := range s.Switch.Shared {
		c := &s.Switch.Shared[i]
		r.Connections = append(r.Connections, Connection{Name: c.Name, State: c.State, InFlight: c.Open, Most: c.Most, Queued: c.Queued})
	}
	return r
}

func nodeOf(n *top.Node, was *Node, seconds float64) Node {
	out := Node{
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

func counters(list []top.Counter) (out []Counter) {
	for _, c := range list {
		out = append(out, Counter{Name: c.Name, Value: c.Value})
	}
	return out
}

// isSwitch reports whether a node is a switch.
func (n *Node) isSwitch() bool { return n.Role == rackfile.SwitchName }

// switchOf reports whether a name is that of a switch among the nodes.
func switchOf(nodes []Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name && n.isSwitch() })
}

// firstSwitch returns the name of the first switch of a rack, whose links are recorded; that of the
// only switch if the rack's description cannot be read.
func firstSwitch(paths rackfile.Paths) string {
	text, err := os.ReadFile(paths.Spec())
	if err != nil {
		return rackfile.SwitchName
	}
	r, err := rackfile.Decode(text)
	if err != nil {
		return rackfile.SwitchName
	}
	return r.SwitchNames()[0]
}
