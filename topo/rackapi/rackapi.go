// Package rackapi has the state of a rack as the versioned HTTP API of `rdmalab web` tells it, and a client that reads it
// from a server. The page, `rdmalab top` and other programs see a rack through these types. openapi.json of package web
// describes them; fields are added, and none is removed or changes its meaning.
package rackapi

// PathRack is the path of the state of the rack, and Detail its query with which the state has Lists.
const (
	PathRack = "/api/v1/rack"
	Detail   = "detail=true"
)

// RoleSwitch is the role of a switch.
const RoleSwitch = "switch"

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
	// Detail is true if the rest is filled: in the answer to a request for it (Detail).
	Detail bool  `json:"detail,omitempty"`
	Lists  Lists `json:"lists,omitzero"`
}

// Lists are what is known of single objects, which may be many.
type Lists struct {
	QueuePairs []QueuePair `json:"queuePairs,omitempty"`
	Words      []Word      `json:"words,omitempty"`
	Keys       []Key       `json:"keys,omitempty"`
}

// QueuePair is a queue pair of a host.
type QueuePair struct {
	Host       string `json:"host"`
	QPN        uint32 `json:"qpn"`
	Type       string `json:"type"`
	State      string `json:"state"`
	Peer       string `json:"peer,omitempty"` // name of a host, or an address
	PeerQPN    uint32 `json:"peerQpn"`
	SendPSN    uint32 `json:"sendPsn"`
	RecvPSN    uint32 `json:"recvPsn"`
	SendQueued int    `json:"sendQueued"`
	RecvQueued int    `json:"recvQueued"`
	Resent     uint64 `json:"resent"`
}

// Word is a word of a server's memory that the switch tracks. Numbers of 64 bits are decimal strings in JSON, because
// programs in JavaScript have only 53.
type Word struct {
	Server  string `json:"server"`
	VA      uint64 `json:"va,string"`
	State   string `json:"state"`
	Value   uint64 `json:"value,string"`
	Pending int    `json:"pending"` // requests for the word that are in flight
}

// Key is a key of a store for which the switch steers many requests.
type Key struct {
	Key     uint64  `json:"key,string"`
	Reads   uint64  `json:"reads"`
	Appends uint64  `json:"appends"`
	Steered uint64  `json:"steered"`
	Rate    float64 `json:"perSecond"`
	// Server and VA say where the newest node is; without Server the switch does not know.
	Server string `json:"server,omitempty"`
	VA     uint64 `json:"va,string"`
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
	Tries    int    `json:"tries"` // attempts to connect or, of a connection that carries requests, retries
	NextPSN  uint32 `json:"nextPsn"`
}

// IsSwitch reports whether a node is a switch.
func (n *Node) IsSwitch() bool { return n.Role == RoleSwitch }
