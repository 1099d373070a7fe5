package handler

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Info is the state of a handler as an operator sees it. In JSON, each entry of Lists is a key of
// its own, beside the keys of the other fields.
type Info struct {
	// Mode is the mode of the rules that the handler carries out.
	Mode rules.Mode `json:"mode"`
	// Shared lists the shared connections, which carry moved requests.
	Shared []Shared `json:"shared"`
	// Flows lists the flows of which at least one request was moved.
	Flows []Flow `json:"rows"`
	// Words lists the memory words whose state the handler tracks.
	Words []Word `json:"words"`
	// Counters lists the handler's counters.
	Counters []Counter `json:"counters"`
	// Lists holds the handler's listings that are not empty, by name. See Listing.
	Lists map[string]any `json:"-"`
}

// MarshalJSON writes each entry of Lists as a key of the object that has the other fields.
func (i Info) MarshalJSON() ([]byte, error) {
	type plain Info
	b, err := json.Marshal(plain(i))
	if err != nil || len(i.Lists) == 0 {
		return b, err
	}
	lists, err := json.Marshal(i.Lists)
	if err != nil {
		return nil, err
	}
	return append(append(b[:len(b)-1], ','), lists[1:]...), nil
}

// Shared is a connection that carries the requests of several clients.
type Shared struct {
	Server netip.Addr `json:"server"`
	// Shard numbers the shared connections of a server.
	Shard int `json:"shard"`
	// Owner is the address of the end that made the connection. This is the switch, or a client
	// whose connection also carries the requests of other clients.
	Owner netip.Addr `json:"owner"`
	// OwnQPN is the queue pair of Owner. ServerQPN is the queue pair of the server.
	OwnQPN    wire.QPN `json:"ownQpn"`
	ServerQPN wire.QPN `json:"serverQpn"`
	// State is the name of the connection's state: that of a requester.State for a switch's
	// connection, "open" or "dead" for a client's connection.
	State string `json:"state"`
	// NextPSN is the PSN of the next request.
	NextPSN wire.PSN `json:"nextPsn"`
	// Ring is how many requests may be in flight. Outstanding is how many are. Queued is how many
	// packets wait for a free place.
	Ring        int `json:"ring"`
	Outstanding int `json:"outstanding"`
	Queued      int `json:"queued"`
	// Waits describes the oldest request in flight; nil if there is none.
	Waits *Wait `json:"waits,omitempty"`
	// Waiters lists the clients with requests in flight.
	Waiters []Waiter `json:"waiters,omitempty"`
	// Retries is the number of retries since the server last answered.
	Retries int `json:"retries"`
}

// Wait describes the oldest request in flight on a shared connection.
type Wait struct {
	PSN wire.PSN      `json:"psn"`
	Age time.Duration `json:"age"`
	// Client, ClientQPN and ClientPSN are the address, queue pair and PSN of the client that sent
	// the request.
	Client    netip.Addr `json:"client"`
	ClientQPN wire.QPN   `json:"clientQpn"`
	ClientPSN wire.PSN   `json:"clientPsn"`
	// Op is the operation, like "CAS→WRITE" for a CAS that was sent as a WRITE.
	Op string `json:"op"`
}

// Waiter is a client with requests in flight.
type Waiter struct {
	Client netip.Addr `json:"client"`
	QPN    wire.QPN   `json:"qpn"`
	// Entries is how many requests of the client are in flight.
	Entries int `json:"entries"`
}

// Flow is a flow of which at least one request was moved.
type Flow struct {
	ID        uint32     `json:"id"`
	Client    netip.Addr `json:"client"`
	Server    netip.Addr `json:"server"`
	ServerQPN wire.QPN   `json:"serverQpn"`
	// Moved counts the moved requests. Outstanding is how many requests of the flow are in flight or
	// held. Those on the client's connection count by their PSNs, and only if no moved request is in
	// flight.
	Moved       uint64 `json:"moved"`
	Outstanding int    `json:"outstanding"`
	// Shift is the difference between the PSNs at the two ends of the client's connection.
	Shift int `json:"shift"`
	// State says where the flow's requests go now: "own" (the client's connection) or "shared". It
	// is "waiting" if the switch holds some, and "dead" if the flow was refused.
	State string `json:"state"`
}

// Word is a word of a server's memory whose state the handler tracks.
type Word struct {
	Server netip.Addr `json:"server"`
	VA     uint64     `json:"va"`
	// State names the state, like "known".
	State string `json:"state"`
	// Value is the value of the word if the state says that it is known.
	Value uint64 `json:"value"`
	// Epoch counts how often the value has become unknown.
	Epoch uint32 `json:"epoch"`
	// Pending is the number of requests for the word that are in flight.
	Pending int `json:"pending"`
}

// Counter is a number with a name.
type Counter struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
	// Help says what is counted; "" if the name already says it.
	Help string `json:"help,omitempty"`
}

// Group holds the counters of one part of a program.
type Group struct {
	Name     string    `json:"name"`
	Counters []Counter `json:"counters"`
}

// Counting is a program that counts what it does, for an operator.
type Counting interface {
	pipeline.Program
	// Counters lists the counters at the time now. The switch calls it between two packets, and does
	// not change the result.
	Counters(now clock.Time) []Group
}

// Counters lists the fields of the struct stats that have a tag `name`. The name of a counter is
// prefix followed by this tag; its help text is the tag `help`.
func Counters(prefix string, stats any) (list []Counter) {
	v := reflect.ValueOf(stats)
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if name := tag.Get("name"); name != "" {
			list = append(list, Counter{Name: prefix + name, Value: v.Field(i).Uint(), Help: tag.Get("help")})
		}
	}
	return list
}
