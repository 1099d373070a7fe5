// Package mode is the seam between the switch program that knows rules and connections and the machines that serialise
// requests: packages hard and paper. It holds the interface that both implement and what they tell an operator, and no
// behaviour.
package mode

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Machine serialises the requests of a set of rows. It is a value like everything here: it acts through the Ctx that it
// is handed and through its verdicts, during the call only.
//
// The caller hands it every packet of a row towards a server under a rule of its mode, moved or not, in the order of
// arrival, and only packets whose Seen is Fine. The machine calls Row.Advance for a new request that it takes or sends
// on.
type Machine interface {
	// Request decides about a request towards a memory server. r is the rule that the request matches; nil if it matches
	// none, but its row is under a rule.
	Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict
	// Response decides about a response of a memory server, or another packet of its back direction.
	Response(c *pipeline.Ctx, s conntrack.Seen, p *pipeline.Parsed) pipeline.Verdict
	// Owned takes a packet that is addressed to the switch itself: a response on a connection of its own.
	Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict
	// Tick is called when Deadline has come.
	Tick(c *pipeline.Ctx)
	// Deadline is when Tick wants to be called; clock.Never if not at all.
	Deadline() clock.Time
	// Closed says that a row has ended, before it is used again.
	Closed(c *pipeline.Ctx, r *conntrack.Row)
	// Info describes the present state for an operator.
	Info(now clock.Time) Info
	// Spec declares the tables and registers that the machine would take of a switch.
	Spec() ([]pipeline.TableSpec, []pipeline.RegisterSpec)
}

// Info is what an operator sees of a machine.
type Info struct {
	Mode rules.Mode `json:"mode"`
	// Shared are the connections that requests are moved to.
	Shared []Shared `json:"shared"`
	// Rows are the connections that were moved at least once.
	Rows []Row `json:"rows"`
	// Words are cached memory words.
	Words []Word `json:"words"`
	// Keys are those of a store that are asked for most, of a machine that steers.
	Keys []Key `json:"keys,omitempty"`
	// Counters by name.
	Counters []Counter `json:"counters"`
}

// Key is a key of a store whose requests are steered, or could be.
type Key struct {
	Key uint64 `json:"key"`
	// Reads, Appends and Steered count its requests since it was found.
	Reads   uint64 `json:"reads"`
	Appends uint64 `json:"appends"`
	Steered uint64 `json:"steered"`
	// Rate is requests a second, over the last second or so.
	Rate float64 `json:"rate"`
	// Waiting is how many appends wait for the one before.
	Waiting int `json:"waiting"`
	// Tail is its newest node; nil: it is not known.
	Tail *Tail `json:"tail,omitempty"`
}

// Tail is the newest node of a key.
type Tail struct {
	Server netip.Addr `json:"server"`
	RKey   uint32     `json:"rkey"`
	VA     uint64     `json:"va"`
	// Length in bytes.
	Length  int   `json:"length"`
	Version uint8 `json:"version"`
	// Sequence is its place among the nodes that were linked since the switch knows the chain.
	Sequence uint32 `json:"sequence"`
}

// Shared is a connection that carries the requests of many.
type Shared struct {
	Server netip.Addr `json:"server"`
	// Shard numbers the shared connections of a server.
	Shard int `json:"shard"`
	// Owner is whose connection it is: the switch's own address, or the client's from which it is borrowed.
	Owner netip.Addr `json:"owner"`
	// OwnQPN and ServerQPN are its two ends.
	OwnQPN    wire.QPN `json:"ownQpn"`
	ServerQPN wire.QPN `json:"serverQpn"`
	// State is a word like "open".
	State string `json:"state"`
	// NextPSN is the next to be sent.
	NextPSN wire.PSN `json:"nextPsn"`
	// Ring is the number of map entries, Outstanding how many of them are open, Queued how many packets wait for one.
	Ring        int `json:"ring"`
	Outstanding int `json:"outstanding"`
	Queued      int `json:"queued"`
	// Waits is what everybody waits for; nil if nothing is outstanding.
	Waits *Wait `json:"waits,omitempty"`
	// Waiters are the clients with open entries.
	Waiters []Waiter `json:"waiters,omitempty"`
	// Retries are since the last progress.
	Retries int `json:"retries"`
}

// Wait is the oldest open entry of a shared connection.
type Wait struct {
	PSN wire.PSN      `json:"psn"`
	Age time.Duration `json:"age"`
	// Of the client that sent it.
	Client    netip.Addr `json:"client"`
	ClientQPN wire.QPN   `json:"clientQpn"`
	ClientPSN wire.PSN   `json:"clientPsn"`
	// Op is what is asked, like "CAS→WRITE".
	Op string `json:"op"`
}

// Waiter is a client with open entries.
type Waiter struct {
	Client netip.Addr `json:"client"`
	QPN    wire.QPN   `json:"qpn"`
	// Entries is how many.
	Entries int `json:"entries"`
}

// Row is a client's connection that was moved at least once.
type Row struct {
	ID        uint32     `json:"id"`
	Client    netip.Addr `json:"client"`
	Server    netip.Addr `json:"server"`
	ServerQPN wire.QPN   `json:"serverQpn"`
	// Moved and Outstanding are requests.
	Moved       uint64 `json:"moved"`
	Outstanding int    `json:"outstanding"`
	// Shift is how far the PSNs of the two ends are apart.
	Shift int `json:"shift"`
	// State is a word like "shared".
	State string `json:"state"`
}

// Word is a cached word of a server's memory.
type Word struct {
	Server netip.Addr `json:"server"`
	VA     uint64     `json:"va"`
	RKey   uint32     `json:"rkey"`
	// State is a word like "known".
	State string `json:"state"`
	Value uint64 `json:"value"`
	Epoch uint32 `json:"epoch"`
	// Pending is how many requests for it are under way.
	Pending int `json:"pending"`
}

// Counter is a number with a name.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	// Help says what is counted; "" if the name does.
	Help string `json:"help,omitempty"`
}
