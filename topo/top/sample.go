// Package top is the live view of a rack as a pure model: its inputs are samples and key presses,
// its outputs a screen and requests to a Doer.
//
// Model has no clock, socket or process. It requests commands and samples from a Doer. A Sample has
// everything that the view shows; rates are differences of two samples. A screen therefore depends
// only on the messages before it, and tests compare screens with files. Package live has the Doer
// for a real rack.
package top

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Sample is the state of a rack at one moment. Counters begin at 0 when their process starts.
type Sample struct {
	At   time.Time
	Rack string
	// Gone says why there is no rack. Then only At and Rack are set.
	Gone string
	// State is the state of the worst node.
	State   string
	Program string
	// Uptime is how long the switch's daemon has run, 0 if the switch does not answer.
	Uptime time.Duration
	// Nodes are the hosts in the order of the rack file, then the switch.
	Nodes  []Node
	QPs    []QP
	Faults []Fault
	// Partition lists the groups of hosts that cannot reach each other.
	Partition [][]string
	// Captures is how many captures run on the switch.
	Captures int
	Switch   Switch
}

// Node is a host with its link, or the switch.
type Node struct {
	Name, Role, State string
	// Link is the link's state; "" for the switch.
	Link string
	// Rates of the last full second; up is from the host to the switch.
	UpPackets, UpBits, DownPackets, DownBits uint64
	// Dropped counts frames of the link that the switch or a fault has dropped, Retrans packets
	// that the NIC has retransmitted.
	Dropped, Retrans uint64
	// Faults are the IDs of the fault rules that are active on the link.
	Faults []string
	// Clients is how many clients of stores run on the host; Ops is how many operations they did in
	// the last full second. P99 is the 99th percentile of their times in microseconds.
	Clients  int
	Ops, P99 uint64
	// Columns are further counters of the stores on the host.
	Columns []Counter
}

// QP is a queue pair of a host.
type QP struct {
	Host        string
	QPN         wire.QPN
	Type, State string
	Peer        string // name of a host, or an address
	PeerQPN     wire.QPN
	SendPSN     wire.PSN
	RecvPSN     wire.PSN
	SendQueued  int
	RecvQueued  int
	Retrans     uint64
}

// Fault is a fault rule, active or ended.
type Fault struct {
	ID, State, Text string
	Hits            uint64
}

// Switch has the state of the switch and its program.
type Switch struct {
	Counters []Counter
	Tables   []Table
	Shared   []Shared
	Words    []Word
	Keys     []Key
}

// Counter is a number that grows.
type Counter struct {
	Name  string
	Value uint64
}

// Table says how full a table is.
type Table struct {
	Name      string
	Used, Max int
}

// Shared is a switch's connection to a memory server.
type Shared struct {
	Name, State string
	Open, Most  int // requests in flight, and the largest number allowed
	Queued      int
	Tries       int // attempts to connect or, of a connection that carries requests, retries
	NextPSN     wire.PSN
}

// Word is a word of a server's memory that the switch tracks.
type Word struct {
	Server  string
	VA      uint64
	State   string
	Value   uint64
	Pending int // requests for the word that are in flight
}

// Key is a key of a store for which the switch steers many requests.
type Key struct {
	Key, Reads, Appends, Steered uint64
	// Rate is the requests a second that the switch has counted.
	Rate float64
	// Server and VA say where the newest node is; "" means that the switch does not know.
	Server string
	VA     uint64
}

// rates has the values of an earlier sample by name, and computes rates from them.
type rates struct {
	seconds float64
	drops   map[string]uint64
	retrans map[string]uint64
	qps     map[qpKey]QP
	counts  map[string]uint64
	words   map[wordKey]uint64
	columns map[string]uint64 // counters of stores, by columnOf
}

type qpKey struct {
	host string
	qpn  wire.QPN
}

type wordKey struct {
	server string
	va     uint64
}

// since prepares the rates between the samples `s` and `later`. If a sample is nil, or there
// was no rack when s was taken, all rates are 0.
func since(s, later *Sample) *rates {
	r := &rates{
		drops: map[string]uint64{}, retrans: map[string]uint64{}, qps: map[qpKey]QP{},
		counts: map[string]uint64{}, words: map[wordKey]uint64{}, columns: map[string]uint64{},
	}
	if s == nil || later == nil || s.Gone != "" {
		return r
	}
	r.seconds = later.At.Sub(s.At).Seconds()
	for _, n := range s.Nodes {
		r.drops[n.Name], r.retrans[n.Name] = n.Dropped, n.Retrans
		for _, c := range n.Columns {
			r.columns[columnOf(n.Name, c.Name)] = c.Value
		}
	}
	for _, q := range s.QPs {
		r.qps[qpKey{q.Host, q.QPN}] = q
	}
	for _, c := range s.Switch.Counters {
		r.counts[c.Name] = c.Value
	}
	for _, w := range s.Switch.Words {
		r.words[wordKey{w.Server, w.VA}] = w.Value
	}
	return r
}

// of returns the rate of a counter whose value is v now. It is 0 for a counter that is new, and for
// one that has decreased because its process was restarted.
func (r *rates) of(before map[string]uint64, name string, v uint64) uint64 {
	was, ok := before[name]
	if !ok || v < was || r.seconds <= 0 {
		return 0
	}
	return uint64(float64(v-was)/r.seconds + 0.5)
}

// psns returns how many PSNs a second a queue pair has used (`on`: as requester or as responder,
// whichever is more), and how many packets a second it has retransmitted (again).
func (r *rates) psns(q *QP) (on, again uint64) {
	was, ok := r.qps[qpKey{q.Host, q.QPN}]
	if !ok || r.seconds <= 0 {
		return 0, 0
	}
	if d := max(wire.Diff(q.SendPSN, was.SendPSN), wire.Diff(q.RecvPSN, was.RecvPSN)); d > 0 && was.State == q.State {
		on = uint64(float64(d)/r.seconds + 0.5)
	}
	if q.Retrans > was.Retrans {
		again = uint64(float64(q.Retrans-was.Retrans)/r.seconds + 0.5)
	}
	return on, again
}

// rank is the order in which queue pairs are shown: 0 for those that failed, 1 for active ones, 2
// for the others.
func (r *rates) rank(q *QP) int {
	on, again := r.psns(q)
	switch {
	case statePaint(q.State) == bad:
		return 0
	case on+again > 0 || q.SendQueued > 0:
		return 1
	}
	return 2
}

// mixed puts the queue pairs into the order in which they are shown. list is in the order of rank.
// If the failed queue pairs would fill more than half of the rows, active ones come before the
// other failed ones.
func (r *rates) mixed(list []QP, rows int) []QP {
	count := func(rank int) (n int) {
		for i := range list {
			if r.rank(&list[i]) == rank {
				n++
			}
		}
		return n
	}
	failed, busy := count(0), count(1)
	first := max(1, rows/2-1)
	if failed <= first || busy == 0 {
		return list
	}
	return slices.Concat(list[:first], list[failed:failed+busy], list[first:failed], list[failed+busy:])
}

func (r *rates) changed(w *Word) bool {
	was, ok := r.words[wordKey{w.Server, w.VA}]
	return ok && was != w.Value
}
